"""Live bytes of tasks on two streams by time, as the simulator counts those of programs.

A buffer is taken when its maker starts, and given up when its maker and all its readers have ended. A task needs
scratch while it runs. `redistrib.programs.time.clocks` takes and gives up the bytes of a program at the same moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from redistrib.programs.time.timeline import Levels, levels_of
from redistrib.programs.time.two_streams import TaskTimes


class TaskBuffer(NamedTuple):
    """Bytes of a device that hold a value, with the tasks that make it and read it.

    Attributes:
        size: bytes.
        makers: tasks that make it, of which the last to start takes the bytes; empty where it is there at first.
        readers: tasks that read it.
        begins: loops that take the bytes over as those of a carried value when they start.
        stays: whether the bytes are never given up.
        is_counted: whether they are counted elsewhere while they are there at first.
    """

    size: int
    makers: tuple[int, ...]
    readers: tuple[int, ...]
    begins: tuple[int, ...] = ()
    stays: bool = False
    is_counted: bool = False


def in_turn(order: Sequence[int]) -> TaskTimes:
    """The times of tasks, of a second each, of which each waits for all issued before it."""
    start = [0.0] * len(order)
    for place, task in enumerate(order):
        start[task] = float(place)
    return TaskTimes(tuple(order), tuple(start), tuple(at + 1 for at in start))


def live_bytes(buffers: Iterable[TaskBuffer], scratch: Sequence[int], timeline: TaskTimes) -> Levels:
    """Bytes that are live from each moment on, see `changes_of`."""
    return levels_of(changes_of(buffers, scratch, timeline))


def changes_of(buffers: Iterable[TaskBuffer], scratch: Sequence[int], timeline: TaskTimes) -> list[tuple[float, int]]:
    """Bytes that are taken and given up, and when.

    Args:
        buffers: of the tasks.
        scratch: bytes that each task needs while it runs.
        timeline: of the tasks.
    """
    order, begin, done = timeline
    place = [0] * len(order)
    for k, task in enumerate(order):
        place[task] = k
    changes = [(0.0, 0)]
    taken = [*scratch]  # when each task starts
    before: dict[int, list[tuple[float, int]]] = {}  # given up to a loop when it starts
    given_up: dict[int, list[tuple[float, int]]] = {}
    for size, makers, readers, begins, stays, is_counted in buffers:
        if makers:
            taken[makers[0] if len(makers) == 1 else max(makers, key=begin.__getitem__)] += size
        elif not is_counted:
            changes.append((0.0, size))
        users = makers + readers
        if stays or not (users or begins):
            continue
        if begins:
            at = max([*map(done.__getitem__, users), *map(begin.__getitem__, begins)])
            last = max((*users, *begins), key=place.__getitem__)
            (before if last not in users else given_up).setdefault(last, []).append((at, -size))
        else:
            last = max(users, key=place.__getitem__)
            given_up.setdefault(last, []).append((max(map(done.__getitem__, users)), -size))
    for task in order:
        if task in before:
            changes += before[task]
        changes.append((begin[task], taken[task]))
        if scratch[task]:
            changes.append((done[task], -scratch[task]))
        if task in given_up:
            changes += given_up[task]
    return changes
