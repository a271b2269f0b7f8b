"""What one device does, as tasks and buffers: their times and the bytes that are live, for programs and searches alike.

A program makes a block (`issue.ProgramTasks`), and so does the walk of a search; both are timed here. A loop is a task
with blocks of its own, whose tasks repeat in each step. A buffer is taken when its maker starts, and given up when its
maker and all its readers have ended. A task needs scratch while it runs; a loop that of the part that needs most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from redistrib.programs.time.timeline import Levels, levels_of
from redistrib.programs.time.two_streams import Task, TaskTimes, overlapped


class TaskBuffer(NamedTuple):
    """Bytes of a device that hold a value, with the tasks that make it and read it.

    Attributes:
        size: bytes.
        makers: tasks that make it, of which the last to start takes the bytes; empty where it is there at first.
        readers: tasks that read it.
        begins: loops that take the bytes over as those of a carried value when they start.
        stays: whether the bytes are never given up.
        is_counted: whether they are counted elsewhere while they are there at first.
        is_over: whether they are there at first only, and given up before the first task.
    """

    size: int
    makers: tuple[int, ...]
    readers: tuple[int, ...]
    begins: tuple[int, ...] = ()
    stays: bool = False
    is_counted: bool = False
    is_over: bool = False


class RepeatedLayers(NamedTuple):
    """Layers of which a few are laid out one after the other; each further one takes as long as the last of these.

    Attributes:
        times: how many there are.
        ends: of each that is laid out, the task after its last.
    """

    times: int
    ends: Sequence[int]


class RepeatedBuffers(NamedTuple):
    """The buffers of layers that are not laid out: as the first of them run, and as the last.

    Attributes:
        size: bytes of all.
        makers: computations of the layers that make them; empty where they are there at first.
        readers: tasks of those that read them; None where they stay.
        are_layers: whether the readers are computations of layers too.
    """

    size: int
    makers: Sequence[int]
    readers: Sequence[int] | None
    are_layers: bool

    def spans(self, times: TaskTimes) -> Iterator[tuple[float, float]]:
        """When they are live, in two ways: late, from end to end of the layers, and early, from start to start."""
        start, end = times.start.__getitem__, times.end.__getitem__
        done = math.inf if self.readers is None else max(map(end, self.readers))
        yield max(map(end, self.makers), default=0.0), done
        begun = min(map(start, self.readers)) if self.readers is not None and self.are_layers else done
        yield min(map(start, self.makers), default=0.0), begun


@dataclass(eq=False)
class TaskBlock:
    """What runs once, or in each step of a loop, or in its condition.

    Attributes:
        tasks: in order; the seconds of loops are found from their parts.
        scratch: bytes that every task needs while it runs; of loops see `loops`.
        buffers: of values.
        loops: of loops, by task, their steps and the parts of each: the step, and the condition if there is one.
        repeated: layers that are not all laid out.
        beyond: buffers of layers that are not.
    """

    tasks: list[Task] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    buffers: list[TaskBuffer] = field(default_factory=list)
    loops: dict[int, tuple[int, Sequence[TaskBlock]]] = field(default_factory=dict)
    repeated: list[RepeatedLayers] = field(default_factory=list)
    beyond: list[RepeatedBuffers] = field(default_factory=list)

    def add(self, task: Task, scratch: int = 0) -> int:
        """Add a task; its number."""
        self.tasks.append(task)
        self.scratch.append(scratch)
        return len(self.tasks) - 1


@dataclass(eq=False)
class TimedTasks:
    """A block, and when its tasks run.

    Attributes:
        block: the block.
        tasks: with the seconds of loops.
        parts: of loops, by task, those of `TaskBlock.loops`, timed.
        times: of the tasks.
        is_apart: whether moves run between computations, so that buffers are counted by order.
    """

    block: TaskBlock
    tasks: Sequence[Task]
    parts: dict[int, Sequence[TimedTasks]]
    times: TaskTimes
    is_apart: bool

    @cached_property
    def seconds(self) -> float:
        """Until all is done."""
        return self.times.seconds + sum(self._further(layers) for layers in self.block.repeated)

    def _further(self, layers: RepeatedLayers) -> float:
        """Seconds of the layers that are not laid out."""
        times, ends = layers
        first = ends[-2] if len(ends) > 1 else 0

        def done(start: int, stop: int) -> float:
            both = [self.times.end[k] for k in range(start, stop) if not self.tasks[k].moves]
            return max(both or self.times.end[start:stop], default=0.0)

        return (times - len(ends)) * (done(first, ends[-1]) - done(ends[-3] if len(ends) > 2 else 0, first))

    @cached_property
    def _needs(self) -> tuple[int, int]:
        """Bytes that a step needs besides the values that the loop holds: by time, and if its tasks ran in turn."""
        block, alone = self.block, [*self.block.scratch]
        for task, parts in self.parts.items():
            alone[task] = max(part._needs[1] for part in parts)
        least = max(0, live_bytes(block.buffers, alone, in_turn(self.times.order)).worst()[0])
        return (least if self.is_apart else max(self.levels.worst()[0], least)), least

    @cached_property
    def scratch(self) -> Sequence[int]:
        """Bytes that every task needs while it runs."""
        scratch = [*self.block.scratch]
        for task, parts in self.parts.items():
            scratch[task] = max(part._needs[0] for part in parts)
        return scratch

    def fullest_part(self, loop: int) -> TimedTasks:
        """The part of a loop that needs most."""
        return max(self.parts[loop], key=lambda part: part._needs)

    @cached_property
    def counted_by(self) -> TaskTimes:
        """The times by which bytes are counted: where tasks run in turn, a second for each."""
        return in_turn(self.times.order) if self.is_apart else self.times

    @property
    def levels(self) -> Levels:
        """Bytes that are live from each moment of `counted_by` on, without layers that are not laid out."""
        return live_bytes(self.block.buffers, self.scratch, self.counted_by)

    def peak(self) -> tuple[int, float]:
        """The most bytes that are live at once, and the moment of `counted_by`."""
        beyond, times = self.block.beyond, self.counted_by
        if not beyond:
            return self.levels.worst()
        changes, worst = changes_of(self.block.buffers, self.scratch, times), list[tuple[int, float]]()
        for spans in zip(*(buffers.spans(times) for buffers in beyond), strict=True):
            live = [(buffers.size, *span) for buffers, span in zip(beyond, spans, strict=True) if span[0] < span[1]]
            more = [(at, change) for size, *span in live for at, change in zip(span, (size, -size), strict=True)]
            worst.append(levels_of([*changes, *more]).worst())
        return max(worst)


def timed(block: TaskBlock, window: int | None = None, *, is_apart: bool = False) -> TimedTasks:
    """When the tasks of a block run.

    Args:
        block: the block.
        window: computations by which a move that takes memory may be issued earlier than its place; None for any
            number.
        is_apart: whether moves run between computations, in the order of the tasks.
    """
    tasks, parts = [*block.tasks], dict[int, Sequence[TimedTasks]]()
    for task, (steps, blocks) in block.loops.items():
        parts[task] = [timed(part, window, is_apart=is_apart) for part in blocks]
        tasks[task] = tasks[task]._replace(seconds=steps * sum(part.seconds for part in parts[task]))
    times = one_by_one(tasks) if is_apart else overlapped(tasks, window)
    return TimedTasks(block, tasks, parts, times, is_apart)


def one_by_one(tasks: Sequence[Task]) -> TaskTimes:
    """Times of tasks of which each begins when the one before it is done."""
    start, end, now = [], [], 0.0
    for task in tasks:
        start.append(now)
        now += task.seconds
        end.append(now)
    return TaskTimes(tuple(range(len(tasks))), tuple(start), tuple(end))


def in_turn(order: Sequence[int], seconds: float = 1.0) -> TaskTimes:
    """Times of tasks of a second each, or less, of which one is begun every second."""
    start = [0.0] * len(order)
    for place, task in enumerate(order):
        start[task] = float(place)
    return TaskTimes(tuple(order), tuple(start), tuple(at + seconds for at in start))


def live_bytes(buffers: Iterable[TaskBuffer], scratch: Sequence[int], times: TaskTimes) -> Levels:
    """Bytes that are live from each moment on, see `changes_of`."""
    return levels_of(changes_of(buffers, scratch, times))


def changes_of(buffers: Iterable[TaskBuffer], scratch: Sequence[int], times: TaskTimes) -> list[tuple[float, int]]:
    """Bytes that are taken and given up, and when.

    Args:
        buffers: of the tasks.
        scratch: bytes that each task needs while it runs.
        times: of the tasks.
    """
    order, begin, done = times
    place = [0] * len(order)
    for k, task in enumerate(order):
        place[task] = k
    changes = [(0.0, 0)]
    taken = [*scratch]  # when each task starts
    before: dict[int, list[tuple[float, int]]] = {}  # given up to a loop when it starts
    given_up: dict[int, list[tuple[float, int]]] = {}
    over = []  # when all that is there at first was there
    for size, makers, readers, begins, stays, is_counted, is_over in buffers:
        if makers:
            taken[makers[0] if len(makers) == 1 else max(makers, key=begin.__getitem__)] += size
        elif not is_counted:
            changes.append((0.0, size))
        users = makers + readers
        if is_over:
            over.append((0.0, -size))
        if stays or not (users or begins):
            continue
        if begins:
            at = max([*map(done.__getitem__, users), *map(begin.__getitem__, begins)])
            last = max((*users, *begins), key=place.__getitem__)
            (before if last not in users else given_up).setdefault(last, []).append((at, -size))
        else:
            last = max(users, key=place.__getitem__)
            given_up.setdefault(last, []).append((max(map(done.__getitem__, users)), -size))
    changes += over
    for task in order:
        if task in before:
            changes += before[task]
        changes.append((begin[task], taken[task]))
        if scratch[task]:
            changes.append((done[task], -scratch[task]))
        if task in given_up:
            changes += given_up[task]
    return changes
