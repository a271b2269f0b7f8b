"""When a search has to be over."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


class OutOfTime(Exception):
    """The time is up; a caller that has a result already catches this."""


@dataclass(frozen=True)
class Deadline:
    """A moment, as `time.monotonic` has it; by default none.

    >>> Deadline().left, Deadline.after(0.0).passed
    (inf, True)
    """

    at: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """So many seconds from now; None for none."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, none of them negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self.at

    def check(self) -> None:
        """Do nothing while there is time.

        Raises:
            OutOfTime: if there is none.
        """
        if self.passed:
            raise OutOfTime

    def part(self, share: float) -> Deadline:
        """The moment at which a share of the remaining time has passed."""
        return self if math.isinf(self.at) else Deadline.after(share * self.left)


NEVER = Deadline()
