"""How long processes wait for one another, whatever library they call; in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

WAIT_SECONDS = 300.0  # for a process that takes longer to plan and compile, or never calls
REPEATED_SECONDS = 2.0  # for a process at the barrier of a call on which all have agreed before
SAVE_SECONDS = 60.0  # for other saves into a folder
RETRY_SECONDS = 0.01  # before files that another process holds or replaces are tried again
LOOK_SECONDS = 1.0  # in a call before a process looks for what holds it up, such as processes that have ended


def pauses(most: float, first: float, longest: float) -> Iterator[float]:
    """Pauses, each twice the one before but none longer than `longest`, until `most` seconds are over."""
    until = time.monotonic() + most
    while (left := until - time.monotonic()) > 0:
        yield max(0.001, min(first, left))
        first = min(2 * first, longest)
