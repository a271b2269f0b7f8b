"""Time and memory of a schedule, without a program: its works as tasks of one device, timed as those of programs are.

The body of a loop has a timeline of its own, which repeats for each step. Of several layers that one layer stands for,
a few are laid out one after the other; each further one takes as long as the last of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from redistrib.programs.lower.shifts import AHEAD, BEHIND
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.search.held import add_buffers
from redistrib.programs.search.laid_out import LaidOut
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.streams import Streams
from redistrib.programs.search.works import Beside, PricedWork, WorkBuffer
from redistrib.programs.time.task_blocks import TimedTasks, timed
from redistrib.programs.time.two_streams import SAME_TIME

WINDOWS = (None, 8, 1)  # computations by which moves are issued early, tried in turn where memory is short


def variants(
    problem: SearchProblem, works: Sequence[PricedWork], buffers: Sequence[WorkBuffer], is_short: bool
) -> Iterator[Beside]:
    """Ways to run moves beside computations: of the earliest issue those with and without entries ahead and results
    behind, and where memory is short later and later ones."""
    for window in WINDOWS if is_short else WINDOWS[:1]:
        streams = Streams(problem, works, buffers, Overlap(window))
        yield _beside(streams)
        ahead, behind = tuple(streams.exposed), tuple(streams.late)
        if ahead:
            yield _beside(Streams(problem, works, buffers, Overlap(window, ahead)))
        if behind:
            yield _beside(Streams(problem, works, buffers, Overlap(window, (), behind)))
        if ahead and behind:
            yield _beside(Streams(problem, works, buffers, Overlap(window, ahead, behind)))


def apart(problem: SearchProblem, works: Sequence[PricedWork], buffers: Sequence[WorkBuffer]) -> tuple[int, int]:
    """The most bytes that are live at once where moves run between computations, and the operation that runs then."""
    laid = LaidOut(Streams(problem, works, buffers, Overlap(None), is_apart=True), None)
    return _peak(laid, timed(laid.block, is_apart=True))


def _beside(streams: Streams) -> Beside:
    laid = LaidOut(streams, None)
    whole = timed(laid.block, streams.overlap.window)
    _expose(laid, whole)
    return Beside(streams.overlap, whole.seconds, lambda: _peak(laid, whole))


def _peak(laid: LaidOut, whole: TimedTasks) -> tuple[int, int]:
    """The most bytes that are live at once, and the operation that runs then, by number."""
    add_buffers(laid)
    most, when = whole.peak()
    return most, _running(laid, whole, when)


def _running(laid: LaidOut, block: TimedTasks, when: float) -> int:
    """The operation that runs at a time, by number; of a loop that of the step at its worst moment."""
    count, times = len(laid.streams.problem.graph.operations), block.counted_by
    for k in reversed(times.order):
        item = laid.item_of[k]
        is_counted = block.is_apart or not block.tasks[k].moves
        if item is not None and is_counted and times.start[k] <= when:
            if k in laid.parts:
                part = block.fullest_part(k)
                return _running(laid.parts[k][block.parts[k].index(part)], part, part.levels.worst()[1])
            return min(laid.streams.number(item), max(0, count - 1))
    return 0


def _expose(laid: LaidOut, block: TimedTasks) -> None:
    """Name the entries whose gathers computations of a step wait for, and the results moved after all of them."""
    for task, parts in laid.parts.items():
        for part, timed_part in zip(parts, block.parts[task], strict=True):
            _expose(part, timed_part)
    if laid.scope is None or laid.tests:
        return
    streams, tasks, times = laid.streams, block.tasks, block.times
    computed = max((times.end[k] for k, task in enumerate(tasks) if not task.moves), default=0.0)
    for k, item in enumerate(laid.item_of):
        shifted = None if item is None or item < 0 else streams.works[item].shifted
        if shifted is not None and shifted.shift is BEHIND and times.end[k] > computed * (1 + SAME_TIME):
            streams.late[shifted.name] = None
    free = 0.0
    for k in times.order:
        if tasks[k].moves:
            continue
        for read in tasks[k].reads:
            item = laid.item_of[read]
            shifted = None if item is None or item < 0 else streams.works[item].shifted
            if shifted is not None and shifted.shift is AHEAD and times.end[read] > free:
                streams.exposed[shifted.name] = None
        free = times.end[k]


def clamped(seconds: float, computing: float, moving: float) -> float:
    """Seconds of two streams: no less than the longer, and no more than both one after the other."""
    return min(max(seconds, computing, moving), computing + moving) if math.isfinite(moving) else math.inf
