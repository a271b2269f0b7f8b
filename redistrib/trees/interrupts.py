"""Errors and signals while arrays are given up: none gets in between an array and the note of where it is now."""

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
    """Handlers of signals that have been put off."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._waiting: list[tuple[int, Any]] = []

    def hold(self) -> None:
        """Put handlers off; those that run in this thread, which must be the first."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, lambda *given: self._waiting.append(given))

    def let(self) -> None:
        """Run the handlers of signals that have come."""
        while self._waiting:
            given = self._waiting.pop(0)
            self._handlers[given[0]](*given)

    def release(self) -> None:
        """Put all handlers back, and run those of signals that have come."""
        try:
            self._put_back(list(self._handlers))
        finally:
            self.let()

    def _put_back(self, numbers: list[int]) -> None:
        if numbers:
            try:
                signal.signal(numbers[0], self._handlers[numbers[0]])
            finally:  # a signal may come at once
                self._put_back(numbers[1:])
