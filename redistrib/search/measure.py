"""Functions timed where they run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Measured(NamedTuple):
    """Seconds of calls, the first left out.

    Attributes:
        seconds: the median.
        each: all of them.
    """

    seconds: float
    each: tuple[float, ...]


def measured(function: Callable[..., Any], args: tuple[Any, ...], repeats: int) -> Measured:
    """Time calls of a function of arrays."""
    jax.block_until_ready(function(*args))
    each = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function(*args))
        each.append(time.perf_counter() - began)
    return Measured(statistics.median(each), tuple(each))
