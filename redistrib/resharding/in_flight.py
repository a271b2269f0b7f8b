"""Launches that have not finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import jax

# Bytes per device of launches that need not have finished when the next one starts, where several may run at a time.
IN_FLIGHT = 64 * 2**20


class InFlight:
    """A queue that keeps the launches in flight within some bytes per device.

    Args:
        limit: these bytes.
        wait: waits for arrays.
    """

    def __init__(self, limit: int, wait: Callable[[Any], None]) -> None:
        self._limit, self._wait = limit, wait
        self._flying: deque[tuple[list[jax.Array], int]] = deque()

    def add(self, arrays: list[jax.Array], size: int) -> None:
        """Add a launch, and wait for the oldest ones until the others keep within the bytes."""
        self._flying.append((arrays, size))
        self._until(self._limit)

    def for_all(self) -> None:
        """Wait for all launches."""
        self._until(-1)

    def _until(self, limit: int) -> None:
        while self._flying and sum(size for _, size in self._flying) > limit:
            self._wait(self._flying.popleft()[0])
