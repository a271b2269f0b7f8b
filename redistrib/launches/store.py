"""The key-value store by which the processes of a job meet, of whatever library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Store(Protocol):
    """Texts by key, the same for all processes of a job.

    Every method raises `CommunicatorError` if the store does not answer.
    """

    def put(self, key: str, value: str) -> bool:
        """Set a key; whether it was not set before. A key that is set keeps its value."""

    def get(self, key: str, seconds: float) -> str | None:
        """The value of a key; None if it is not set within so many seconds."""

    def under(self, prefix: str) -> list[tuple[str, str]]:
        """All keys that begin with a prefix, which ends in a slash, and their values."""

    def delete(self, key: str) -> None:
        """Delete a key or, by a prefix that ends in a slash, all keys under it."""

    def meet(self, name: str, processes: Sequence[int], seconds: float) -> bool:
        """Wait at the barrier of a name; whether all processes have come within so many seconds."""
