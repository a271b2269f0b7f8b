"""Times of several calls, measured in alternating order, so that a change of the machine's speed affects them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def alternate(
    calls: Mapping[str, Callable[[], Any]], rounds: int, before: Callable[[], Any] | None = None
) -> dict[str, list[float]]:
    """Seconds of each call per round; odd rounds run the calls in reverse order.

    Args:
        calls: calls by name; each returns after its work is done.
        rounds: number of rounds.
        before: a function called before each call, outside its time: a barrier, or the preparation of its input.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in list(calls)[:: 1 if turn % 2 == 0 else -1]:
            if before is not None:
                before()
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
    return times
