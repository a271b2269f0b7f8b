"""Launches that have not finished."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import jax

# Bytes per device of launches that need not have finished when the next one starts, where several may run at a time.
IN_FLIGHT = 64 * 2**20

# Of each launch what shows that it has ended, and its bytes per device.
Flying: TypeAlias = deque[tuple[list[jax.Array], int]]


def land(flying: Flying, limit: int, wait: Callable[[Any], None]) -> None:
    """Wait for the oldest launches until the others keep within some bytes per device; for all if these are below 0."""
    while flying and sum(size for _, size in flying) > limit:
        wait(flying.popleft()[0])
