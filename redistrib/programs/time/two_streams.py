"""Two streams on every device, one for computations and one for moves, and the order in which operations are issued.

Computations run in the order of the program. A move is issued between two of them. It starts when those before it are
done, its operand is there and the links are free; a computation waits for its operands. So moves off the critical path
(of weights ahead of their products, of gradients behind theirs) run beside computations. The order is a list schedule
(Graham 1969): the links are never idle while a move could start, and take the move first whose result is read first.
Then each move whose result takes more memory than it frees is issued as late as nothing waits for it, as the
latency-hiding scheduler of XLA does.

The order takes no longer than without overlap: at every moment one of the two streams works.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

SAME_TIME = 1e-12  # of all seconds, by which times that are equal may differ


class Task(NamedTuple):
    """A computation, or a move.

    Attributes:
        seconds: it takes.
        reads: numbers of the tasks that make its operands, each smaller than its own.
        moves: whether it moves, and does not compute.
        grows: whether a move takes more memory than it frees, so that it is issued late.
        is_loop: whether it is a loop, which has both streams to itself.
    """

    seconds: float
    reads: tuple[int, ...] = ()
    moves: bool = False
    grows: bool = False
    is_loop: bool = False


class TaskTimes(NamedTuple):
    """When tasks run.

    Attributes:
        order: in which they are issued.
        start, end: of every task, in seconds.
    """

    order: tuple[int, ...]
    start: tuple[float, ...]
    end: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """When the last is done."""
        return max(self.end, default=0.0)


def in_order(tasks: Sequence[Task], order: Sequence[int]) -> TaskTimes:
    """Times of tasks that are issued in an order in which each comes after the makers of its operands."""
    start, end = [0.0] * len(tasks), [0.0] * len(tasks)
    computed = moved = 0.0
    for number in order:
        task = tasks[number]
        at = max([computed, *(end[k] for k in task.reads)])
        if task.moves or task.is_loop:
            at = max(at, moved)
        start[number], end[number] = at, at + task.seconds
        if task.moves or task.is_loop:
            moved = end[number]
        if not task.moves:
            computed = end[number]
    return TaskTimes(tuple(order), tuple(start), tuple(end))


def overlapped(tasks: Sequence[Task], window: int | None = None) -> TaskTimes:
    """When tasks run in the order of the list schedule.

    Args:
        tasks: in the order of the program.
        window: computations by which a move whose result takes more memory than it frees may be issued earlier than
            the program has it; None for any number.
    """
    order = [k for k, task in enumerate(tasks) if not task.moves]
    start, end = _listed(tasks, order, _windowed(tasks, order, window))
    start, near = _late(tasks, start, end), SAME_TIME * max(end, default=0.0)
    done, urgency = [end[k] for k in order], _urgency(tasks)
    turn = {number: k for k, number in enumerate(order)}
    after = {  # how many computations are issued before a move
        k: min(bisect_right(done, start[k] + near), turn.get(urgency[k], len(order)))
        for k, task in enumerate(tasks)
        if task.moves
    }
    issued: list[int] = []
    computed = 0
    for number in sorted(after, key=lambda k: (after[k], start[k], end[k], k)):
        issued += [*order[computed : after[number]], number]
        computed = after[number]
    return in_order(tasks, [*issued, *order[computed:]])


def _windowed(tasks: Sequence[Task], order: Sequence[int], window: int | None) -> dict[int, int]:
    """For moves that take memory the computation before which they are not issued."""
    if window is None:
        return {}
    earliest, computed = {}, 0
    for number, task in enumerate(tasks):
        if task.moves and task.grows and computed > window:
            earliest[number] = order[computed - window - 1]
        computed += not task.moves
    return earliest


def _urgency(tasks: Sequence[Task]) -> list[int]:
    """For every task the first computation that waits for it, or for moves of its result."""
    first = [len(tasks)] * len(tasks)
    for number in range(len(tasks) - 1, -1, -1):
        position = first[number] if tasks[number].moves else number
        for k in tasks[number].reads:
            first[k] = min(first[k], position)
    return first


def _listed(tasks: Sequence[Task], order: Sequence[int], earliest: dict[int, int]) -> tuple[list[float], list[float]]:
    """Starts and ends of the list schedule: moves are issued whenever they are ready."""
    count = len(tasks)
    urgency = _urgency(tasks)
    waits = [(*task.reads, *((earliest[k],) if k in earliest else ())) for k, task in enumerate(tasks)]
    missing = [len({*moves_waited_for}) for moves_waited_for in waits]
    readers: list[list[int]] = [[] for _ in tasks]
    for number, moves_waited_for in enumerate(waits):
        for k in dict.fromkeys(moves_waited_for):
            readers[k].append(number)
    start, end, there = [0.0] * count, [0.0] * count, [0.0] * count
    coming: list[tuple[float, int]] = []  # moves whose operands have a time, by that time
    ready: list[tuple[int, int]] = []  # those that could start now, the most urgent first
    computed = moved = 0.0
    turn = 0

    def done(number: int, at: float) -> None:
        start[number], end[number] = at, at + tasks[number].seconds
        for k in readers[number]:
            missing[k] -= 1
            there[k] = max(there[k], end[number])
            if not missing[k] and tasks[k].moves:
                heapq.heappush(coming, (there[k], k))

    for number, task in enumerate(tasks):
        if task.moves and not missing[number]:
            heapq.heappush(coming, (0.0, number))
    while turn < len(order) or coming or ready:
        following = order[turn] if turn < len(order) else -1
        can_compute = following >= 0 and not missing[following]
        compute_at = max(computed, there[following]) if can_compute else math.inf
        move_at = max(moved, 0.0 if ready else coming[0][0]) if ready or coming else math.inf
        if can_compute and compute_at <= move_at:
            loop = tasks[following].is_loop
            compute_at = max(compute_at, moved) if loop else compute_at
            done(following, compute_at)
            computed, turn = end[following], turn + 1
            moved = computed if loop else moved
            continue
        while coming and coming[0][0] <= move_at:
            number = heapq.heappop(coming)[1]
            heapq.heappush(ready, (urgency[number], number))
        number = heapq.heappop(ready)[1]
        done(number, move_at)
        moved = end[number]
    return start, end


def _late(tasks: Sequence[Task], start: list[float], end: list[float]) -> list[float]:
    """Starts as late as nothing else changes, of moves that take more memory than they free."""
    late = list(start)
    latest = [math.inf] * len(tasks)
    for number, task in enumerate(tasks):
        if not task.moves:
            for k in task.reads:
                latest[k] = min(latest[k], start[number])
    streams = [k for k, task in enumerate(tasks) if task.moves or task.is_loop]
    after = max(end, default=0.0)
    for number in sorted(streams, key=lambda k: (start[k], end[k], k), reverse=True):
        task = tasks[number]
        if task.moves and task.grows:
            late[number] = max(start[number], min(after, latest[number]) - task.seconds)
        after = late[number]
        for k in task.reads:
            latest[k] = min(latest[k], late[number])
    return late
