"""The tasks of a schedule's works, laid out one after the other; of several layers that one stands for, a few.

They make a block, which is timed as those of programs are (`redistrib.programs.time.task_blocks`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from redistrib.programs.search.streams import Item, Streams
from redistrib.programs.search.works import loop_of
from redistrib.programs.time.task_blocks import RepeatedLayers, TaskBlock, TaskBuffer
from redistrib.programs.time.two_streams import Task

LAID = 8  # layers of those that one stands for, that are laid out one after the other
FEW = 2  # of them, where only bytes are counted and moves run between computations


class LaidOut:
    """Tasks that run once, or in each step of a loop, or in its condition.

    Attributes:
        streams: the works.
        scope: the loop, by number; None outside of loops.
        tests: whether it is the condition.
        block: the tasks, and buffers that loops need besides; those of values are added by `add_buffers`.
        item_of: the item of every task; None for one that a loop needs besides.
        tasks_by_item: the tasks of an item, one for each layer that is laid out.
        parts: of every loop the tasks of a step, and of the condition.
        runs: for every operation of a layer that stands for others its run; empty where no layer does.
        picks: for works that pick entries, the tasks that do so before a loop.
    """

    def __init__(self, streams: Streams, scope: int | None, *, tests: bool = False) -> None:
        self.streams, self.scope, self.tests = streams, scope, tests
        self.block = TaskBlock()
        self.item_of: list[Item | None] = []
        self.tasks_by_item: dict[Item, list[int]] = {}
        self.parts: dict[int, Sequence[LaidOut]] = {}
        self.picks: dict[int, list[int]] = defaultdict(list)
        folded = streams.problem.folded
        self.runs = folded.runs if folded is not None and scope is None else ()
        self._results: dict[Item, list[int]] = {}  # as `tasks_by_item`: the tasks whose results are read next
        self._readers: list[list[int]] = []
        # Where tasks run in turn, it matters only to which of several layers a result belongs.
        self._needs_reads = not streams.is_apart or bool(self.runs)
        self._lay_out()

    # ------------------------------------------------------------------------------------------ items and tasks

    def run(self, item: Item) -> int | None:
        """The run of layers that an item stands for, by number; None where it stands for itself."""
        number = self.streams.number(item) if self.runs else 0
        return self.runs[number] if number < len(self.runs) else None

    def cell(self, item: Item) -> int | None:
        """The run of layers in which an item stands, by number."""
        folded, number = self.streams.problem.folded, self.streams.number(item)
        cell = folded.cells[number] if folded is not None and number < len(folded.cells) else None
        return None if cell is None else cell[0]

    def times(self, run: int) -> int:
        """The layers of a run, of which one stands for all."""
        folded = self.streams.problem.folded
        return 1 if folded is None else folded.times[folded.spans[run][0]]

    def computations_of(self, run: int) -> list[int]:
        """The tasks that compute in the layers of a run that are laid out."""
        tasks = self.block.tasks
        return [
            k
            for k, item in enumerate(self.item_of)
            if item is not None and self.run(item) == run and not tasks[k].moves
        ]

    def tasks_of(self, works: Iterable[int]) -> list[tuple[Item, list[int]]]:
        """The items of works that have tasks here, each with its tasks."""
        by_item: dict[Item, list[int]] = {}
        for work in works:
            item = self.streams.item(work, self.scope)
            if item is not None and item not in by_item and (tasks := self.tasks_by_item.get(item)) is not None:
                by_item[item] = tasks
        return [*by_item.items()]

    def first_tasks_of(self, works: Iterable[int]) -> tuple[int, ...]:
        """The first task of each item of works, of those that have tasks here."""
        items, by_item = (self.streams.item(work, self.scope) for work in works), self.tasks_by_item
        return tuple(by_item[item][0] for item in items if item in by_item)

    def readers_of(self, task: int) -> Sequence[int]:
        """The tasks that read the results of a task."""
        if not self._readers:
            self._readers = [[] for _ in self.block.tasks]
            for k, other in enumerate(self.block.tasks):
                for read in other.reads:
                    self._readers[read].append(k)
        return self._readers[task]

    # ---------------------------------------------------------------------------------------------- laying out

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
            ends = list[int]()
            for layer in range(min(FEW if streams.is_apart else LAID, times)):
                for item in in_run:
                    self._add(item, layer, cells)
                ends.append(len(self.block.tasks))
            self.block.repeated.append(RepeatedLayers(times, ends))

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
                self._results[item].clear()  # the step reads the gathers that the step before has issued
                return
            if item in streams.results.get(self.scope, ()):
                reads = []  # the result of the step before
        self._task(item, Task(work.seconds, tuple(reads), work.moves, work.taken > work.freed), work.scratch)

    def _reads(self, item: Item, layer: int, cells: Mapping[object, Item]) -> list[int]:
        """The tasks that make the operands of an item in one of its layers."""
        folded, reads = self.streams.problem.folded, []
        own_run = self.run(item)
        for other in self.streams.reads.get(item, ()):
            numbers = self._results.get(other, [])
            run = self.run(other)
            if own_run is not None and run is not None and run != own_run:
                turned = len(numbers) - 1 - layer if (own_run, run) in self.streams.turned else layer
                numbers = numbers[turned : turned + 1] or numbers
            elif layer and folded is not None and len(numbers) == 1 and self._computes(other):
                cell = folded.cells[self.streams.number(other)] if other >= 0 else None
                if cell in cells:  # the results of the layer before the first; for other layers, of the layer before
                    numbers = self._results.get(cells[cell], [])[layer - 1 : layer]
            if numbers:
                reads.append(numbers[-1])
        return reads

    def _task(self, item: Item | None, task: Task, scratch: int = 0) -> int:
        number = self.block.add(task, scratch)
        self.item_of.append(item)
        if item is not None:
            self._results.setdefault(item, []).append(number)
            self.tasks_by_item.setdefault(item, []).append(number)
        return number

    def _loop(self, item: Item, layer: int, reads: list[int]) -> None:
        """A loop, and before it the gathers for its first step, and copies of the gathers ahead."""
        problem, scope = self.streams.problem, loop_of(item)
        loop = problem.graph.loops[scope]
        parts = [LaidOut(self.streams, scope)]
        if scope in problem.graph.conditions:
            parts.append(LaidOut(self.streams, scope, tests=True))
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
            self.block.buffers.append(TaskBuffer(entry, (first,), (gathered,)))
            buffers += [(work.taken, gathered, ()), (size, rolled, ())]
        zeros_of: dict[int, int] = {}
        for k in self.streams.results.get(scope, ()):
            _, size, _, _ = self.streams.works[k].result or ("", 0, 0, "")
            zeros = problem.machine.seconds_of("broadcast_in_dim", (), size, 0)
            zeros_of[k] = self._task(None, Task(zeros, ()))
            reads = [*reads, zeros_of[k]]
        ran = self._task(item, Task(0.0, tuple(dict.fromkeys(reads)), is_loop=True))
        self.parts[ran] = parts
        self.block.loops[ran] = (loop.steps, [part.block for part in parts])
        for k in self.streams.results.get(scope, ()):
            work = self.streams.works[k]
            _, before, size, dtype = work.result or ("", 0, 0, "")
            task = Task(work.seconds, (ran,), moves=True, grows=size > before)
            moved = self._task(None, task, work.scratch)
            turned = problem.machine.seconds_of("roll", (dtype,), (2 * loop.steps + 1) * size, 0)
            rolled = self._task(k, Task(turned, (moved, ran)))
            buffers.append((before, zeros_of[k], (moved,)))
            self.block.buffers += [
                TaskBuffer(loop.steps * size, (ran,), (rolled,)),
                TaskBuffer(size, (moved,), (rolled,)),
            ]
        self.block.buffers += [TaskBuffer(size, (maker,), (*readers, ran)) for size, maker, readers in buffers]
