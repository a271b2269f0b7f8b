"""Time and memory of a schedule whose moves run beside computations, without a program: two streams over a graph.

The rules are those of `redistrib.programs.time.two_streams`, which simulates programs. The body of a loop has a
timeline of its own, which repeats for each step. Of several layers that one layer stands for, a few are laid out one
after the other; each further one takes as long as the last of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from redistrib.programs.search.buffers import TaskBuffer, in_turn
from redistrib.programs.search.laid_out import LaidOut
from redistrib.programs.search.memory_by_time import Memory
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.streams import Item, Streams
from redistrib.programs.search.walk_tasks import Beside, Buffer, Overlap, WalkTask, loop_of
from redistrib.programs.time.two_streams import SAME_TIME, Task, TaskTimes, overlapped

LAID = 8  # layers of those that one stands for, that are laid out one after the other
FEW = 2  # of them, where only bytes are counted and moves run between computations
WINDOWS = (None, 8, 1)  # computations by which moves are issued early, tried in turn where memory is short


def variants(
    problem: SearchProblem, works: Sequence[WalkTask], buffers: Sequence[Buffer], is_short: bool
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


def apart(problem: SearchProblem, works: Sequence[WalkTask], buffers: Sequence[Buffer]) -> tuple[int, int]:
    """The most bytes that are live at once where moves run between computations, and the operation that runs then."""
    return Memory(_Timed(Streams(problem, works, buffers, Overlap(None), is_apart=True), None)).peak()


def _beside(streams: Streams) -> Beside:
    whole = _Timed(streams, None)
    return Beside(streams.overlap, whole.seconds, lambda: Memory(whole).peak())


class _Timed(LaidOut):
    """The timeline of operations that run once, or in each step of a loop, or in its condition."""

    def __init__(self, streams: Streams, scope: int | None, *, tests: bool = False) -> None:
        super().__init__(streams, scope, tests=tests)
        self.results: dict[Item, list[int]] = {}  # as `tasks_by_item`: the tasks whose results are read next
        self.layers: list[tuple[int, list[int]]] = []  # times, and the task after the last of each layer laid out
        # Where tasks run in turn, it matters only to which of several layers a result belongs.
        self._needs_reads = not streams.is_apart or bool(self.runs)
        self._lay_out()
        if streams.is_apart:
            self.timeline = in_turn(range(len(self.tasks)))
            self.seconds = 0.0
            return
        self.timeline = timeline = overlapped(self.tasks, streams.overlap.window)
        self.seconds = timeline.seconds + sum(self._further(timeline, *layer) for layer in self.layers)
        if scope is not None and not tests:
            self._expose(timeline)

    # ------------------------------------------------------------------------------------------ tasks

    def _lay_out(self) -> None:
        streams, number = self.streams, self.streams.number
        items = streams.items.get(self.scope, [])
        if self.scope is not None and (last := streams.problem.graph.conditions.get(self.scope)) is not None:
            items = [item for item in items if (number(item) <= last) == self.tests]
        if not self.runs:
            for item in items:
                self._add(item, 0, {})
            return
        for run, group in groupby(items, self.run):
            in_run = [*group]
            if run is None:
                for item in in_run:
                    self._add(item, 0, {})
                continue
            folded = streams.problem.folded
            assert folded is not None
            times = folded.times[number(in_run[0])]
            cells: dict[object, Item] = {folded.cells[number(item)]: item for item in in_run if self._computes(item)}
            ends = []
            for layer in range(min(FEW if streams.is_apart else LAID, times)):
                for item in in_run:
                    self._add(item, layer, cells)
                ends.append(len(self.tasks))
            self.layers.append((times, ends))

    def _computes(self, item: Item) -> bool:
        return item < 0 or not self.streams.works[item].moves

    def _add(self, item: Item, layer: int, cells: Mapping[object, Item]) -> None:
        """Add the task of an item; `cells` are those of its layer, if it stands for several."""
        streams = self.streams
        reads = self._reads(item, layer, cells) if self._needs_reads else []
        if item < 0:
            self._loop(item, layer, reads)
            return
        work = streams.works[item]
        if work.moves and self.scope is not None:
            if item in streams.entries.get(self.scope, ()):
                self._task(item, Task(work.seconds, (), moves=True, grows=True), work.scratch)
                self.results[item].clear()  # the step reads the gathers that the step before has issued
                return
            if item in streams.results.get(self.scope, ()):
                reads = []  # the result of the step before
        self._task(item, Task(work.seconds, tuple(reads), work.moves, work.taken > work.freed), work.scratch)

    def _reads(self, item: Item, layer: int, cells: Mapping[object, Item]) -> list[int]:
        """The tasks that make the operands of an item in one of its layers."""
        folded, reads = self.streams.problem.folded, []
        own_run = self.run(item)
        for other in self.streams.reads.get(item, ()):
            numbers = self.results.get(other, [])
            run = self.run(other)
            if own_run is not None and run is not None and run != own_run:
                turned = len(numbers) - 1 - layer if (own_run, run) in self.streams.turned else layer
                numbers = numbers[turned : turned + 1] or numbers
            elif layer and folded is not None and len(numbers) == 1 and self._computes(other):
                cell = folded.cells[self.streams.number(other)] if other >= 0 else None
                if cell in cells:  # the results of the layer before the first; for other layers, of the layer before
                    numbers = self.results.get(cells[cell], [])[layer - 1 : layer]
            if numbers:
                reads.append(numbers[-1])
        return reads

    def _task(self, item: Item | None, task: Task, scratch: int = 0) -> int:
        number = len(self.tasks)
        if item is not None:
            self.results.setdefault(item, []).append(number)
            self.tasks_by_item.setdefault(item, []).append(number)
        self.scratch.append(scratch)
        self.item_of.append(item)
        self.tasks.append(task)
        return number

    def _loop(self, item: Item, layer: int, reads: list[int]) -> None:
        """A loop, and before it the gathers for its first step, and copies of the gathers ahead."""
        problem, scope = self.streams.problem, loop_of(item)
        loop = problem.graph.loops[scope]
        parts: list[LaidOut] = [step := _Timed(self.streams, scope)]
        seconds = loop.steps * step.seconds
        if scope in problem.graph.conditions:
            parts.append(condition := _Timed(self.streams, scope, tests=True))
            seconds += loop.steps * condition.seconds
        buffers: list[tuple[int, int, tuple[int, ...]]] = []  # bytes, their maker, their readers besides the loop
        for k in self.streams.entries.get(scope, ()):
            work = self.streams.works[k]
            _, size, dtype = work.entry or ("", 0, "")
            entry = size // max(1, loop.steps)
            picked = problem.machine.seconds_of("entry", (dtype,), size + entry, 0)
            turned = problem.machine.seconds_of("roll", (dtype,), 2 * size, 0)
            pick = self.streams.entry_works[work.entry[0] if work.entry else ""]
            array = tuple(
                tasks[min(layer, len(tasks) - 1)] for _, tasks in self.tasks_of(self.streams.works[pick].reads)
            )
            first = self._task(None, Task(picked, array))
            gathered = self._task(None, Task(work.seconds, (first,), moves=True, grows=True), work.scratch)
            rolled = self._task(None, Task(turned, array))
            reads = [*reads, gathered, rolled]
            self.picks[pick] += [first, rolled]
            self.buffers.append(TaskBuffer(entry, (first,), (gathered,)))
            buffers += [(work.taken, gathered, ()), (size, rolled, ())]
        zeros_of: dict[int, int] = {}
        for k in self.streams.results.get(scope, ()):
            _, size, _, _ = self.streams.works[k].result or ("", 0, 0, "")
            zeros = problem.machine.seconds_of("broadcast_in_dim", (), size, 0)
            zeros_of[k] = self._task(None, Task(zeros, ()))
            reads = [*reads, zeros_of[k]]
        task = Task(seconds, tuple(dict.fromkeys(reads)), is_loop=True)
        ran = self._task(item, task)
        self.parts[ran] = parts
        for k in self.streams.results.get(scope, ()):
            work = self.streams.works[k]
            _, before, size, dtype = work.result or ("", 0, 0, "")
            task = Task(work.seconds, (ran,), moves=True, grows=size > before)
            moved = self._task(None, task, work.scratch)
            turned = problem.machine.seconds_of("roll", (dtype,), (2 * loop.steps + 1) * size, 0)
            rolled = self._task(k, Task(turned, (moved, ran)))
            buffers.append((before, zeros_of[k], (moved,)))
            self.buffers += [TaskBuffer(loop.steps * size, (ran,), (rolled,)), TaskBuffer(size, (moved,), (rolled,))]
        self.buffers += [TaskBuffer(size, (maker,), (*readers, ran)) for size, maker, readers in buffers]

    def _further(self, timeline: TaskTimes, times: int, ends: Sequence[int]) -> float:
        """Seconds of the layers that are not laid out."""
        first = ends[-2] if len(ends) > 1 else 0

        def done(start: int, stop: int) -> float:
            both = [timeline.end[k] for k in range(start, stop) if not self.tasks[k].moves]
            return max(both or [timeline.end[k] for k in range(start, stop)], default=0.0)

        begun = done(ends[-3] if len(ends) > 2 else 0, first)
        return (times - len(ends)) * (done(first, ends[-1]) - begun)

    def _expose(self, timeline: TaskTimes) -> None:
        """Name the entries whose gathers computations of the step wait for, and the results moved after all of them."""
        computed = max((timeline.end[k] for k, task in enumerate(self.tasks) if not task.moves), default=0.0)
        for k, item in enumerate(self.item_of):
            result = None if item is None or item < 0 else self.streams.works[item].result
            if result is not None and timeline.end[k] > computed * (1 + SAME_TIME):
                self.streams.late[result[0]] = None
        free = 0.0
        for k in timeline.order:
            if self.tasks[k].moves:
                continue
            for read in self.tasks[k].reads:
                item = self.item_of[read]
                entry = None if item is None or item < 0 else self.streams.works[item].entry
                if entry is not None and timeline.end[read] > free:
                    self.streams.exposed[entry[0]] = None
            free = timeline.end[k]


def clamped(seconds: float, computing: float, moving: float) -> float:
    """Seconds of two streams: no less than the longer, and no more than both one after the other."""
    return min(max(seconds, computing, moving), computing + moving) if math.isfinite(moving) else math.inf
