"""The run of a program on the clocks of its devices: operations with their times, and live bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from redistrib.simulator.prices import PricedStage


class Event(NamedTuple):
    """An operation on the devices of one clock.

    Attributes:
        name: of the operation.
        kind: `"compute"` or `"move"`.
        clock: the lowest of the devices that share it.
        stream: of these devices.
        start, end: seconds since the program started.
        stages: its parts in time.
        during, after: bytes that each device holds while it runs, and when it is done.
    """

    name: str
    kind: str
    clock: int
    stream: str
    start: float
    end: float
    stages: tuple[PricedStage, ...]
    during: int
    after: int


@dataclass
class Run:
    """The run of a program.

    Attributes:
        clock_of: for every device the clock that it has, named after the lowest device that shares it.
        now: when each stream of each clock is done, in seconds.
        busy: seconds in which it worked.
        live, peak: bytes that each device of a clock holds, and has held at most.
        height: elements of the largest tile of anything that moved.
        met: operations met, one for each clock that takes part; work done by the simulator.
        events: in order of the program; empty unless they were asked for.
        latest: with several streams, when each clock is done on all of them.
        changes: with several streams, bytes that each device of a clock takes and gives up, and when.
    """

    clock_of: dict[int, int]
    now: dict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    busy: dict[tuple[int, str], float] = field(default_factory=lambda: defaultdict(float))
    live: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    peak: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    height: int = 0
    met: int = 0
    events: list[Event] = field(default_factory=list)
    latest: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    changes: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))


def by_time(run: Run) -> None:
    """Count the bytes held anew, by the time at which they are taken and given up."""
    times: dict[int, list[float]] = {}
    sizes: dict[int, list[int]] = {}
    for clock, changed in run.changes.items():
        changed.sort(key=lambda change: change[0])  # at one moment in the order of the program
        times[clock] = [at for at, _ in changed]
        sizes[clock] = list(accumulate(size for _, size in changed))
        run.peak[clock] = max(sizes[clock])

    def at(clock: int, when: float) -> int:
        return sizes[clock][bisect_right(times[clock], when) - 1]

    run.events = [
        event._replace(during=at(event.clock, event.start), after=at(event.clock, event.end)) for event in run.events
    ]
