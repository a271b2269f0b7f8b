"""Processes that die at a call of the operating system, in this process: from then on every such call fails."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

# What changes files, or says what there is. `close` is not among them: a process that dies closes its files.
CALLS = (
    "open", "mkdir", "listdir", "write", "pwrite", "posix_fallocate", "fsync", "stat", "lstat", "rename", "replace",
    "unlink", "rmdir",
)  # fmt: skip


class Death(BaseException):
    """The end of a process: no handler of errors goes on after it, because its calls fail too."""


class Mortal:
    """Counts calls of the operating system, and dies at one of them.

    Args:
        last: the number of the call that is not made; None for a process that lives.
        among: the names of the calls that are counted.
    """

    def __init__(self, last: int | None, among: Sequence[str] = (*CALLS, "flock")) -> None:
        self.last, self._among = last, among
        self._open: set[int] = set()
        self.calls: list[str] = []

    @property
    def is_dead(self) -> bool:
        return self.last is not None and len(self.calls) > self.last

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """A context in which the calls of this process are counted, and that ends with its death at the latest."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._counted(name, getattr(os, name)))
            patch.setattr(fcntl, "flock", self._counted("flock", fcntl.flock))
            close = os.close

            def closing(descriptor: int) -> None:
                self._open.discard(descriptor)
                close(descriptor)

            patch.setattr(os, "close", closing)
            with contextlib.suppress(Death):
                yield
        for descriptor in self._open:
            os.close(descriptor)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if name in self._among:
                self.calls.append(name)
            if self.is_dead:
                raise Death
            result = call(*arguments, **options)
            if name == "open":
                self._open.add(result)
            return result

        return counted
