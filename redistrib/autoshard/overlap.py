"""Time and memory of a schedule whose moves run beside computations, without a program: two streams over a graph.

The rules are those of `redistrib.simulator.two_streams`, which simulates programs. The body of a loop has a timeline of
its own, which repeats for each step. Of several layers that one layer stands for, a few are laid out one after the
other; each further one takes as long as the last of these.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from redistrib.autoshard.problem import SearchProblem
from redistrib.autoshard.walk_tasks import Beside, Overlap, WalkTask
from redistrib.simulator.two_streams import NEAR, Task, TaskTimes, overlapped

LAID = 8  # layers of those that one stands for, that are laid out one after the other
WINDOWS = (None, 8, 1)  # computations by which moves are issued early, tried in turn where memory is short


def variants(problem: SearchProblem, works: Sequence[WalkTask], is_short: bool) -> Iterator[Beside]:
    """Ways to run moves beside computations: of the earliest issue those with and without entries ahead and results
    behind, and where memory is short later and later ones."""
    for window in WINDOWS if is_short else WINDOWS[:1]:
        streams = _Streams(problem, works, Overlap(window))
        yield streams.beside()
        ahead, behind = tuple(streams.exposed), tuple(streams.late)
        if ahead:
            yield _Streams(problem, works, Overlap(window, ahead)).beside()
        if behind:
            yield _Streams(problem, works, Overlap(window, (), behind)).beside()
        if ahead and behind:
            yield _Streams(problem, works, Overlap(window, ahead, behind)).beside()


_Item: TypeAlias = tuple[bool, int]  # whether it is a loop; the number of the loop, or of the work


@dataclass
class _Streams:
    problem: SearchProblem
    works: Sequence[WalkTask]
    overlap: Overlap
    items: dict[int | None, list[_Item]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[_Item, dict[_Item, None]] = field(default_factory=lambda: defaultdict(dict))
    entries: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    results: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    held: list[tuple[int, int, int]] = field(default_factory=list)
    late: dict[str, None] = field(default_factory=dict)  # results whose moves end after all that their steps compute
    exposed: dict[str, None] = field(default_factory=dict)  # entries whose gathers their steps wait for

    def __post_init__(self) -> None:
        graph, keyed = self.problem.graph, defaultdict[int | None, list[tuple[int, int, int, _Item]]](list)
        for number, loop in enumerate(graph.loops):
            keyed[loop.parent].append((loop.first, 1, -1, (True, number)))
        for k, work in enumerate(self.works):
            if work.result and work.result[0] in self.overlap.behind and work.scope is not None:
                self.results[work.scope].append(k)
        for k, work in enumerate(self.works):
            keyed[work.scope].append((work.number, work.phase, k, (False, k)))
            if work.entry and work.entry[0] in self.overlap.ahead and work.scope is not None:
                self.entries[work.scope].append(k)
            item, scope = (False, k), work.scope
            while True:
                for read in work.reads:
                    other = self._in(read, scope)
                    if other is not None and other != item:
                        self.reads[item][other] = None
                if scope is None:
                    break
                item, scope = (True, scope), graph.loops[scope].parent
        for key, listed in keyed.items():
            self.items[key] = [item for *_, item in sorted(listed)]

    def _in(self, read: int, scope: int | None) -> _Item | None:
        """The item of a loop's steps that makes an operand; None where it comes from outside the loop."""
        loops = self.problem.graph.loops
        item = (False, read) if read >= 0 else (True, -2 - read)
        at = self.works[read].scope if read >= 0 else loops[-2 - read].parent
        if at is not None and at != scope and read in self.results.get(at, ()):
            at = loops[at].parent  # moved after the loop, for its last step
        while at != scope and at is not None:
            item, at = (True, at), loops[at].parent
        return item if at == scope else None

    def beside(self) -> Beside:
        seconds = _Timed(self, None).seconds
        return Beside(self.overlap, seconds, tuple(self.held))

    def number(self, item: _Item) -> int:
        """The operation at which an item stands: a loop at its first."""
        return self.problem.graph.loops[item[1]].first if item[0] else self.works[item[1]].number


class _Timed:
    """The timeline of operations that run once, or in each step of a loop; adds its live bytes to `streams.held`."""

    def __init__(self, streams: _Streams, scope: int | None) -> None:
        self.streams, self.scope = streams, scope
        self.tasks: list[Task] = []
        self.item_of: list[tuple[_Item | None, int]] = []  # of every task, and which of its layers it is in
        self.numbers: dict[_Item, list[int]] = defaultdict(list)  # of the tasks of an item, one for each layer
        self.turned: dict[tuple[int, int], bool] = {}  # see `_is_turned`
        self.layers: list[tuple[int, list[int]]] = []  # times, and the task after the last of each layer laid out
        self._lay_out()
        timeline = overlapped(self.tasks, streams.overlap.window)
        self.seconds = timeline.seconds + sum(self._further(timeline, *layer) for layer in self.layers)
        self._hold(timeline)
        if scope is not None:
            self._expose(timeline)

    # ------------------------------------------------------------------------------------------ tasks

    def _run(self, item: _Item) -> int | None:
        """The run of layers that an item stands for, by number; None where it stands for itself."""
        folded = self.streams.problem.folded
        number = self.streams.number(item)
        if folded is None or self.scope is not None or number >= len(folded.cells) or folded.times[number] == 1:
            return None
        cell = folded.cells[number]
        return None if cell is None else cell[0]

    def _lay_out(self) -> None:
        for run, group in groupby(self.streams.items[self.scope], self._run):
            items = [*group]
            if run is None:
                for item in items:
                    self._add(item, 0, {})
                continue
            folded = self.streams.problem.folded
            assert folded is not None
            times = folded.times[self.streams.number(items[0])]
            cells: dict[object, _Item] = {
                folded.cells[self.streams.number(item)]: item for item in items if self._computes(item)
            }
            ends = []
            for layer in range(min(LAID, times)):
                for item in items:
                    self._add(item, layer, cells)
                ends.append(len(self.tasks))
            self.layers.append((times, ends))

    def _computes(self, item: _Item) -> bool:
        return item[0] or not self.streams.works[item[1]].moves

    def _add(self, item: _Item, layer: int, cells: Mapping[object, _Item]) -> None:
        """Add the task of an item; `cells` are those of its layer, if it stands for several."""
        folded, reads = self.streams.problem.folded, []
        own_run = self._run(item)
        for other in self.streams.reads[item]:
            numbers = self.numbers[other]
            run = self._run(other)
            if own_run is not None and run is not None and run != own_run:
                turned = len(numbers) - 1 - layer if self._is_turned(own_run, run) else layer
                numbers = numbers[turned : turned + 1] or numbers
            elif layer and folded is not None and len(numbers) == 1 and self._computes(other):
                cell = folded.cells[self.streams.number(other)] if not other[0] else None
                if cell in cells:  # the results of the layer before the first; for other layers, of the layer before
                    numbers = self.numbers[cells[cell]][layer - 1 : layer]
            if numbers:
                reads.append(numbers[-1])
        if item[0]:
            self._loop(item, layer, reads)
            return
        work = self.streams.works[item[1]]
        if work.moves and self.scope is not None and item[1] in self.streams.entries.get(self.scope, ()):
            self._task(item, layer, Task(work.seconds, (), moves=True, grows=True))
            self.numbers[item].clear()  # the step reads the gathers that the step before has issued
            return
        if work.moves and self.scope is not None and item[1] in self.streams.results.get(self.scope, ()):
            reads = []  # the result of the step before
        self._task(item, layer, Task(work.seconds, tuple(reads), work.moves, work.taken > work.freed))

    def _is_turned(self, run: int, other: int) -> bool:
        """Whether the first layer of a run reads results of the last layer of another."""
        if (run, other) not in self.turned:
            folded, (first, _), (_, stop) = self.streams.problem.folded, self._span(run), self._span(other)
            cells = folded.cells if folded is not None else ()
            votes = 0
            for item, reads in self.streams.reads.items():
                number = self.streams.number(item)
                cell = cells[number] if number < first else None
                for read in reads if cell and cell[0] == run else ():
                    maker = self.streams.number(read)
                    made_in = cells[maker] if maker < len(cells) else None
                    if made_in and made_in[0] == other:
                        votes += 1 if maker > stop else -1
            self.turned[run, other] = votes > 0
        return self.turned[run, other]

    def _task(self, item: _Item | None, layer: int, task: Task) -> int:
        if item is not None:
            self.numbers[item].append(len(self.tasks))
        self.item_of.append((item, layer))
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _loop(self, item: _Item, layer: int, reads: list[int]) -> None:
        """A loop, and before it the gathers for its first step, and copies of the gathers ahead."""
        problem, loop = self.streams.problem, self.streams.problem.graph.loops[item[1]]
        live = self.streams.held
        before = len(live)
        step = _Timed(self.streams, item[1])
        if layer:
            del live[before:]  # counted with the first layer
        for k in self.streams.entries.get(item[1], ()):
            work = self.streams.works[k]
            _, size, dtype = work.entry or ("", 0, "")
            entry = size // max(1, loop.steps)
            picked = problem.machine.seconds_of("entry", (dtype,), size + entry, 0)
            turned = problem.machine.seconds_of("roll", (dtype,), 2 * size, 0)
            first = self._task(None, layer, Task(picked, tuple(reads)))
            gathered = self._task(None, layer, Task(work.seconds, (first,), moves=True, grows=True))
            reads = [*reads, gathered, self._task(None, layer, Task(turned, tuple(reads)))]
            if not layer:
                live.append((loop.first, loop.stop - 1, size))
        for k in self.streams.results.get(item[1], ()):
            _, size, _, _ = self.streams.works[k].result or ("", 0, 0, "")
            zeros = problem.machine.seconds_of("broadcast_in_dim", (), size, 0)
            reads = [*reads, self._task(None, layer, Task(zeros, ()))]
        ran = self._task(item, layer, Task(loop.steps * step.seconds, tuple(dict.fromkeys(reads)), is_loop=True))
        for k in self.streams.results.get(item[1], ()):
            work = self.streams.works[k]
            _, before, size, dtype = work.result or ("", 0, 0, "")
            moved = self._task(None, layer, Task(work.seconds, (ran,), moves=True, grows=size > before))
            turned = problem.machine.seconds_of("roll", (dtype,), (2 * loop.steps + 1) * size, 0)
            self._task((False, k), layer, Task(turned, (moved, ran)))
            if not layer:
                live.append((loop.first, loop.stop - 1, before))
                live.append((loop.stop, loop.stop, loop.steps * size))

    def _further(self, timeline: TaskTimes, times: int, ends: Sequence[int]) -> float:
        """Seconds of the layers that are not laid out."""
        first = ends[-2] if len(ends) > 1 else 0

        def done(start: int, stop: int) -> float:
            both = [timeline.end[k] for k in range(start, stop) if not self.tasks[k].moves]
            return max(both or [timeline.end[k] for k in range(start, stop)], default=0.0)

        begun = done(ends[-3] if len(ends) > 2 else 0, first)
        return (times - len(ends)) * (done(first, ends[-1]) - begun)

    # ------------------------------------------------------------------------------------------ memory

    def _hold(self, timeline: TaskTimes) -> None:
        """Values in flight are live: the result of a move from its issue on, its operands until it ends.

        A move that frees more than it takes may end long before the reader of its result; its operands are counted
        until then, as without overlap.
        """
        order, near = timeline.order, NEAR * timeline.seconds
        computed = [k for k in order if not self.tasks[k].moves]
        begun, turn = [timeline.start[k] for k in computed], 0
        for k in order:
            if not self.tasks[k].moves:
                turn += 1
                continue
            item, layer = self.item_of[k]
            if item is None:
                continue
            work = self.streams.works[item[1]]
            at = work.number + (work.phase == 2)
            last = self._last(item)
            if turn < len(computed) and layer in (0, last) and self.tasks[k].grows:
                self._early(computed[turn], at, layer, last, item, work)
            ending = bisect_left(begun, timeline.end[k] - near)
            if ending > turn and ending and layer in (0, last) and not self.tasks[k].grows:
                self._until(computed[ending - 1], at, layer, last, item, work.freed)

    def _expose(self, timeline: TaskTimes) -> None:
        """Name the entries whose gathers computations of the step wait for, and the results moved after all of them."""
        computed = max((timeline.end[k] for k, task in enumerate(self.tasks) if not task.moves), default=0.0)
        for k, (item, _) in enumerate(self.item_of):
            result = None if item is None or item[0] else self.streams.works[item[1]].result
            if result is not None and timeline.end[k] > computed * (1 + NEAR):
                self.streams.late[result[0]] = None
        free = 0.0
        for k in timeline.order:
            if self.tasks[k].moves:
                continue
            for read in self.tasks[k].reads:
                item = self.item_of[read][0]
                entry = None if item is None or item[0] else self.streams.works[item[1]].entry
                if entry is not None and timeline.end[read] > free:
                    self.streams.exposed[entry[0]] = None
            free = timeline.end[k]

    def _last(self, item: _Item) -> int:
        run = self._run(item)
        return 0 if run is None else len(self.numbers[item]) - 1

    def _place(self, task: int) -> tuple[int, int, int | None]:
        """The operation at which a task stands, its layer, and its run."""
        item, layer = self.item_of[task]
        if item is None:
            return -1, layer, None
        return self.streams.number(item), layer, self._run(item)

    def _early(self, task: int, at: int, layer: int, last: int, item: _Item, work: WalkTask) -> None:
        """The result of a move is there from before a computation on."""
        live, loop = self.streams.held, self.scope
        from_, in_layer, run = self._place(task)
        if from_ < 0:
            return
        is_ahead = loop is not None and item[1] in self.streams.entries.get(loop, ())
        if is_ahead and loop is not None:
            scope = self.streams.problem.graph.loops[loop]
            live.append((scope.first, at - 1, work.taken))
            live.append((from_, scope.stop - 1, work.taken))
            return
        own_run = self._run(item)
        if own_run is None:
            live.append((from_, at - 1, work.taken))
            return
        start, stop = self._span(own_run)
        if run != own_run and layer == 0:
            live.append((from_, start - 1, work.taken))
        if layer == last and run == own_run and in_layer == layer:
            live.append((from_, at - 1, work.taken))
        elif layer == last:
            live.append((start, at - 1, work.taken))
            live.extend([(start, stop, work.taken)] * (layer - in_layer - 1 if run == own_run else layer))
            live.append((from_ if run == own_run else start, stop, work.taken))

    def _until(self, task: int, at: int, layer: int, last: int, item: _Item, size: int) -> None:
        """The operands of a move are live until a computation."""
        live = self.streams.held
        until, in_layer, run = self._place(task)
        own_run = self._run(item)
        if own_run is None:
            live.append((at, until, size))
            return
        start, stop = self._span(own_run)
        if layer == last and run != own_run:
            live.append((stop + 1, until, size))
        if layer == 0:
            further = in_layer if run == own_run else last + 1
            live.append((at, until if not further else stop, size))
            live.extend([(start, stop, size)] * (further - 1))
            if further:
                live.append((start, until if run == own_run else stop, size))

    def _span(self, run: int) -> tuple[int, int]:
        """The first and the last operation of the layer that stands for those of a run."""
        folded = self.streams.problem.folded
        assert folded is not None
        numbers = [k for k, cell in enumerate(folded.cells) if cell and cell[0] == run and folded.times[k] > 1]
        return numbers[0], numbers[-1]


def clamped(seconds: float, computing: float, moving: float) -> float:
    """Seconds of two streams: no less than the longer, and no more than both one after the other."""
    return min(max(seconds, computing, moving), computing + moving) if math.isfinite(moving) else math.inf
