"""A flow that the daemon of a node runs."""

from __future__ import annotations

import json

from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from . import _stead
    from ._daemon import Daemon

#: Seconds that one thread of an event loop waits before it looks whether it is still wanted.
_TURN = 5.0


class HandedFlow:
    """A flow that the daemon runs. `await` it, or `wait`, for what it has done. It goes on when the program ends, and ends with the daemon."""

    __slots__ = {"_daemon": "Who runs it.", "id": "Its number."}
    id: int

    def __init__(self, daemon: Daemon, id: int) -> None:
        self._daemon, self.id = daemon, id

    @property
    def _open(self) -> _stead.Daemon:
        return self._daemon._open

    def status(self) -> dict[str, Any]:
        """How far it is: `flow` (its number), `name`, the streams that it `reads` and `writes`, `state` (`"running"`, `"finished"`, `"failed"`
        or `"cancelled"`), its `job`, when it was `begun` (seconds since 1970), the `seconds` that it has run, the `steps` that it has had, and
        its `report` or `error` once it is over."""
        told: dict[str, Any] = json.loads(self._open.wait_flow(self.id, 0.0))
        return told

    @property
    def done(self) -> bool:
        """True once it is over, in whatever way."""
        return bool(self.status()["state"] != "running")

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits until it is over; what it has done, as `Flow.run` says it.

        Args:
            timeout: Seconds; None waits as long as it takes.

        Raises:
            TimedOutError: It goes on. Wait again, or `cancel` it.
            CancelledError: It was given up.
            PeerError: The daemon has ended, and the flow with it; or a writer of a stream has ended in the middle.
            UsageError: It does not fit what the streams have; or it is not known any more: what is over is told of for an hour.
            Error: What else it has failed with.
        """
        return self._outcome(json.loads(self._open.wait_flow(self.id, timeout)))

    def cancel(self) -> dict[str, Any]:
        """Gives it up: readers of what it writes are told. What it says is as `status`.

        Raises:
            UsageError: It is over.
            TimedOutError: A step of it takes long, after which it ends.
        """
        told: dict[str, Any] = json.loads(self._open.cancel_flow(self.id))
        return told

    def _outcome(self, told: dict[str, Any]) -> dict[str, Any]:
        state, error = told["state"], told["error"]
        if state == "running":
            raise make("timeout", f"flow {self.id} goes on", hint="wait again, or cancel it")
        if state == "cancelled":
            raise make("cancelled", f"flow {self.id} was given up")
        if error is not None:
            raise make(error["kind"].replace("-", "_"), error["message"], hint=error["hint"])
        report: dict[str, Any] = told["report"]
        return report

    def __await__(self) -> Generator[Any, Any, dict[str, Any]]:
        return self._ended().__await__()

    async def _ended(self) -> dict[str, Any]:
        import asyncio

        loop, daemon = asyncio.get_running_loop(), self._open
        while True:
            told = json.loads(await loop.run_in_executor(None, daemon.wait_flow, self.id, _TURN))
            if told["state"] != "running":
                return self._outcome(told)

    def __repr__(self) -> str:
        return f"HandedFlow({self.id})"
