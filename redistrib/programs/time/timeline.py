"""The run of a program on the clocks of its devices: operations with their times, and live bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from redistrib.programs.time.prices import PricedStage


class Event(NamedTuple):
    """An operation on the devices of one clock.

    Attributes:
        name: of the operation.
        kind: `"compute"`, `"move"` or `"loop"`.
        clock: the lowest of the devices that share it.
        stream: of these devices.
        start, end: seconds since the program started.
        stages: its parts in time.
        during, after: bytes that each device holds while it runs, and when it is done.

    >>> import redistrib as rd
    >>> found = rd.simulate(rd.synthesize("[4{x}8, 8]", "[8, 4{x}8]", {"x": 2}))
    >>> [(event.kind, event.clock, event.start) for event in found.events]
    [('move', 0, 0.0)]
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

    def row(self, clock: int, stream: str = "") -> str:
        """The devices of a clock, and one of its streams, in words."""
        count = sum(other == clock for other in self.clock_of.values())
        name = f"device {clock}" if count == 1 else f"{count} devices from {clock}"
        return f"{name}, {stream}" if stream else name


class Levels(NamedTuple):
    """Bytes that are held from each moment on.

    Attributes:
        times: of the changes, ascending.
        sizes: bytes held after each.
    """

    times: list[float]
    sizes: list[int]

    def at(self, when: float) -> int:
        """Bytes held at a moment, when all its changes are made."""
        return self.sizes[bisect_right(self.times, when) - 1]

    def worst(self) -> tuple[int, float]:
        """The most bytes held, and the first moment at which they are."""
        most = max(self.sizes)
        return most, self.times[self.sizes.index(most)]


def levels_of(changes: list[tuple[float, int]]) -> Levels:
    """Bytes held by time; changes of one moment are made in their order.

    >>> levels_of([(0.0, 8), (2.0, -8), (1.0, 4)]).worst()
    (12, 1.0)
    """
    changes.sort(key=lambda change: change[0])
    return Levels([at for at, _ in changes], list(accumulate(size for _, size in changes)))


def by_time(run: Run) -> None:
    """Count the bytes held anew, by the time at which they are taken and given up."""
    levels = {clock: levels_of(changes) for clock, changes in run.changes.items()}
    for clock, held in levels.items():
        run.peak[clock] = max(held.sizes)
    run.events = [
        event._replace(during=levels[event.clock].at(event.start), after=levels[event.clock].at(event.end))
        for event in run.events
    ]
