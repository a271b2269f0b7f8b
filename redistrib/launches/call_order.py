"""Numbered calls of sets of processes, and circles of calls that wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from redistrib.report import in_ranges

Node = TypeVar("Node", bound=Hashable)


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


Wait: TypeAlias = tuple[int, NumberedCall]  # a process waits in a call


def circle_of(
    waiting: Mapping[NumberedCall, Collection[int]], lacking: Mapping[NumberedCall, Collection[int]], start: Wait
) -> tuple[Wait, ...]:
    """The shortest circle of processes, each of which waits in a call that the next has not come to.

    Args:
        waiting, lacking: for each call the processes that wait in it, and those that have not come to it.
        start: the first of the circle.

    Returns:
        The processes, and the calls in which they wait; none if there is no circle.

    >>> first, other = NumberedCall((0, 1), 0), NumberedCall((0, 1, 2), 0)
    >>> circle_of({first: {0}, other: {1}}, {first: {1}, other: {0, 2}}, (0, first)) == ((0, first), (1, other))
    True
    """

    def waits_for(wait: Wait) -> Iterator[Wait]:
        for other in lacking.get(wait[1], ()):
            yield from ((other, call) for call, processes in waiting.items() if other in processes and lacking[call])

    return circle_through(start, waits_for)


def circle_through(start: Node, waits_for: Callable[[Node], Iterable[Node]]) -> tuple[Node, ...]:
    """The shortest circle of nodes, from `start` on, of which each waits for the next; empty if there is none.

    >>> circle_through(0, {0: [1, 2], 1: [2], 2: [0]}.__getitem__)
    (0, 2)
    """
    paths: list[tuple[Node, ...]] = [(start,)]
    seen = {start}
    for path in paths:
        for node in waits_for(path[-1]):
            if node == start:
                return path
            if node not in seen:
                seen.add(node)
                paths.append((*path, node))
    return ()
