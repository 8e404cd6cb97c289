"""Steps that come to a function by themselves."""

from __future__ import annotations

import threading

from ._errors import TimedOutError, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._stream_step import Step
    from ._streams import StreamReader

#: Seconds after which it is looked whether it was closed.
LOOK = 0.2


class Subscription:
    """Calls a function with each step of a stream, in a thread of its own, as `StreamReader.subscribe` gives it.

    It ends with the stream, when it is closed, and when the function or the stream fails: `join` raises what has failed. With `with` the block
    ends when the stream has.
    """

    __slots__ = ("_call", "_closing", "_error", "_reader", "_thread")

    def __init__(self, reader: StreamReader, call: Callable[[Step], object]) -> None:
        self._reader, self._call = reader, call
        self._error: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stead-steps-{reader.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    step = self._reader.next(timeout=LOOK)
                except TimedOutError:
                    continue
                if step is None:
                    break
                self._call(step)
        except BaseException as e:
            self._error = e
        finally:
            self._reader.close()

    @property
    def is_over(self) -> bool:
        """The function was called for the last time."""
        return not self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Waits until the stream has ended, and the function was called for the last time.

        Args:
            timeout: Seconds to wait; as long as it takes, if it is not said.

        Raises:
            TimedOutError: It has not ended in time.
            PeerError: A writer has ended in the middle.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise make("timeout", f"stream '{self._reader.name}' has not ended within {timeout} s")
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Ends it: the function is not called again. Waits for a call that is under way."""
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.join()
        else:
            self.close()
