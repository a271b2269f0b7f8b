"""Handlers of signals are put off while arrays are given up, and on again whatever comes.

So none gets in between an array and the note of where it is now.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGVTALRM", "SIGUSR1", "SIGUSR2")
_SIGNALS = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]


@contextmanager
def recoverable(partial: Callable[[], Any]) -> Iterator[Callable[[], None]]:
    """A context from which every exception leaves with `partial()` as its attribute `partial`.

    Python's handlers of signals, which may raise, run only when the function that the context gives is called, and at
    the end. Between two calls nothing is cut off.
    """
    held = _Held()
    try:
        try:
            held.hold()
            yield held.let
            held.let()
        finally:
            held.release()
    except BaseException as error:
        holder: Any = error
        holder.partial = partial()
        raise


class _Held:
    """Handlers of signals that have been put off.

    Until `release` a signal waits; from then on handlers run at once, whether they are back in their places
    or still stood in for. So a signal in the middle of putting them back disables none of the others.
    """

    def __init__(self) -> None:
        self._holds = True
        self._handlers: dict[int, Any] = {}
        self._waiting: list[tuple[int, Any]] = []

    def hold(self) -> None:
        """Put handlers off, in the main thread; Python runs them in no other."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._take)

    def _take(self, *given: Any) -> None:
        if self._holds:
            self._waiting.append(given)
        else:
            self._handlers[given[0]](*given)

    def let(self) -> None:
        """Run the handlers of signals that have come."""
        while self._waiting:
            given = self._waiting.pop(0)
            self._handlers[given[0]](*given)

    def release(self) -> None:
        """Put all handlers back, and run those of signals that have come."""
        try:
            self._holds = False
            self._put_back()
        except BaseException:
            self._put_back()  # what a handler that raises has cut off
            raise
        finally:
            self.let()

    def _put_back(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
