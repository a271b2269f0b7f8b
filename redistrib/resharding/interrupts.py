"""Handlers of signals wait while an exception from one of them would lose an array.

An exception would lose an array between a launch and the record of its result, and when the buffers of an array are
first read: JAX lists them in Python, and an exception there leaves the array with an incomplete list.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

try:  # the functions of `signal` without its enumerations, whose making takes as long as a copy of a small array
    from _signal import getsignal as _get_handler  # type: ignore[import-not-found]
    from _signal import signal as _set_handler
except ImportError:
    from signal import getsignal as _get_handler
    from signal import signal as _set_handler

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGUSR1", "SIGUSR2")
_SIGNALS = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]


class SignalsPutOff:
    """A context in which Python's handlers of signals, which may raise, wait.

    They run when the function that the context returns is called, and at the end. In other threads than the main thread
    the context has no effect, because Python runs no handlers there.

    Args:
        partial: the attribute `partial` of every exception that leaves the context; none if it is None.
    """

    def __init__(self, partial: Callable[[], Any] | None = None) -> None:
        self._partial = partial
        self._holds = True
        self._handlers: dict[int, Any] = {}
        self._waiting: list[tuple[int, Any]] = []

    def __enter__(self) -> Callable[[], None]:
        try:
            self._hold()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self._let

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        partial = None if self._partial is None else self._partial()  # while no handler can cut it off
        self._note(error, partial)
        try:
            self._release()
        except BaseException as late:
            self._note(late, partial)
            raise

    def _note(self, error: Any, partial: Any) -> None:
        if error is not None and self._partial is not None:
            error.partial = partial

    def _hold(self) -> None:
        """Put handlers off, in the main thread; Python runs them in no other."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = _get_handler(number)
            if callable(handler):
                self._handlers[number] = handler
                _set_handler(number, self._take)

    def _take(self, *arguments: Any) -> None:
        if self._holds:
            self._waiting.append(arguments)
        else:
            self._handlers[arguments[0]](*arguments)

    def _let(self) -> None:
        """Run the handlers of signals that have come."""
        while self._waiting:
            arguments = self._waiting.pop(0)
            self._handlers[arguments[0]](*arguments)

    def _release(self) -> None:
        """Put all handlers back, and run those of signals that have come.

        From the beginning handlers run at once, whether they are back in their places or still stood in for. So a
        signal in the middle of putting them back disables none of the others.
        """
        try:
            self._holds = False
            self._put_back()
        except BaseException:
            self._put_back()  # the result that a raising handler has cut off
            raise
        finally:
            self._let()

    def _put_back(self) -> None:
        for number, handler in self._handlers.items():
            _set_handler(number, handler)
