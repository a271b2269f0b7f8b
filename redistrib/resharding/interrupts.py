"""What is put off for a while, in the whole process, and on again whatever comes.

Handlers of signals while arrays are given up, so that none gets in between an array and the note of where it is now;
and the collection of garbage.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
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


@contextmanager
def uncollected() -> Iterator[None]:
    """A context without garbage collection, which would walk all that the caller has again and again for what tracing
    makes, and find next to nothing."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


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
            with _blocked(self._handlers):  # or one of the first to be back could keep the others from it
                for number, handler in self._handlers.items():
                    signal.signal(number, handler)
        finally:
            self.let()


@contextmanager
def _blocked(numbers: Iterable[int]) -> Iterator[None]:
    """A context after which signals come that have come in it, where the system can hold them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
