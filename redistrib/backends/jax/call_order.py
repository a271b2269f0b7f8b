"""Numbered calls of sets of processes, and circles of calls that wait for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class NumberedCall:
    """A call of some processes.

    Attributes:
        processes: their numbers, ascending.
        turn: the number of the call among those of these processes.
    """

    processes: tuple[int, ...]
    turn: int

    @property
    def name(self) -> str:
        """As a part of a key: `0-3,8/17`."""
        return f"{in_ranges(self.processes)}/{self.turn}"

    @classmethod
    def parse(cls, name: str) -> NumberedCall:
        """The call of a name."""
        ranges, _, turn = name.partition("/")
        ends = [part.split("-") for part in ranges.split(",")]
        return cls(tuple(p for part in ends for p in range(int(part[0]), int(part[-1]) + 1)), int(turn))


def circle_of(
    records: Mapping[NumberedCall, Mapping[int, str]], process: int, call: NumberedCall
) -> list[NumberedCall]:
    """The calls of a circle through a process that waits in a call, ascending; empty if there is none.

    Process a waits for b by a call if a has come to it and b, one of its processes, has not.

    >>> first, other = NumberedCall((0, 1), 0), NumberedCall((0, 1, 2), 0)
    >>> circle_of({first: {0: ""}, other: {1: ""}}, 0, first) == [first, other]
    True
    """
    lacking = {each: set(each.processes) - came.keys() for each, came in records.items()}
    by: dict[int, tuple[int, NumberedCall]] = dict.fromkeys(lacking.get(call, ()), (process, call))
    queue = list(by)
    for waiting in queue:
        for each, came in records.items():
            if waiting not in came:
                continue
            for other in lacking[each]:
                if other == process:
                    circle = {call, each}
                    while waiting != process:
                        waiting, through = by[waiting]
                        circle.add(through)
                    return sorted(circle)
                if other not in by:
                    by[other] = (waiting, each)
                    queue.append(other)
    return []


def in_ranges(processes: Sequence[int]) -> str:
    """Numbers, ascending, as text: `0-3,8`."""
    ends: list[list[int]] = []
    for process in processes:
        if ends and ends[-1][1] == process - 1:
            ends[-1][1] = process
        else:
            ends.append([process, process])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ends)
