"""The key-value store by which the processes of a job meet, of whatever library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from redistrib.errors import CommunicatorError

ROOT = "redistrib"  # of all keys


class Store(Protocol):
    """Texts by key, the same for all processes of a job.

    Every method raises `CommunicatorError` if the store does not answer.
    """

    def put(self, key: str, value: str, replace: bool = False) -> bool:
        """Set a key; whether it has the value then. A key that is set keeps its value, unless it is replaced."""

    def get(self, key: str, seconds: float) -> str | None:
        """The value of a key; None if it is not set within so many seconds."""


class JobStore(Store, Protocol):
    """A store that also lists and deletes keys, and has barriers."""

    def under(self, prefix: str) -> list[tuple[str, str]]:
        """All keys that begin with a prefix, which ends in a slash, and their values."""

    def delete(self, key: str) -> None:
        """Delete a key or, by a prefix that ends in a slash, all keys under it."""

    def meet(self, name: str, processes: Sequence[int], seconds: float) -> bool:
        """Wait at the barrier of a name; whether all processes have come within so many seconds."""


def unreachable(store: str, error: Exception) -> CommunicatorError:
    """The error of a store that does not answer."""
    return CommunicatorError(
        f"{store} does not answer: {str(error).partition(chr(10))[0]}; the job has ended, or its first process"
    )
