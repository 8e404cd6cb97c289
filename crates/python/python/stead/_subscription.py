"""Steps that come to a function by themselves."""

from __future__ import annotations

import threading

from . import _stead
from ._errors import make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._stream_step import Step
    from ._streams import StreamReader


class Subscription:
    """Calls a function with each step of a stream, in a thread of its own, as `StreamReader.subscribe` gives it.

    It ends with the stream, when it is closed, when no step comes within the `timeout` of the reader, and when the function or the stream fails:
    `join` raises what has failed, such as a `TimedOutError` that says who was waited for. With `with` the block ends when the subscription has.
    """

    __slots__ = ("_call", "_closing", "_error", "_reader", "_thread")

    def __init__(self, reader: StreamReader, call: Callable[[Step], object]) -> None:
        self._reader, self._call = reader, call
        self._error: BaseException | None = None
        self._closing = _stead.Cancel()
        self._thread = threading.Thread(target=self._run, name=f"stead-steps-{reader.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing.cancelled:
                step = self._reader._wait(None, self._closing)
                if step is None or self._closing.cancelled:
                    break
                self._call(step)
                # Its memory is not taken while the next one is waited for.
                del step
        except BaseException as e:
            # Who has closed it is not told that it was.
            if not (self._closing.cancelled and getattr(e, "kind", None) == "cancelled"):
                self._error = e
        finally:
            self._reader.close()

    @property
    def is_over(self) -> bool:
        """The function was called for the last time."""
        return not self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Waits until the function was called for the last time: the stream has ended or failed, or no step came in time.

        Args:
            timeout: Seconds to wait; as long as it takes, if it is not said.

        Raises:
            TimedOutError: No step came within the `timeout` of the reader, and it has ended; or it has not ended in time (`is_over` tells which).
            PeerError: A writer has ended in the middle.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise make("timeout", f"stream '{self._reader.name}' has not ended within {timeout} s")
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends it: the function is not called again. Waits for a call that is under way."""
        self._closing.cancel()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.join()
        else:
            self.close()
