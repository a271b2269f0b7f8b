"""The tasks of a schedule's works, laid out one after the other; of several layers that one stands for, a few.

They make a block, which is timed as those of programs are (`redistrib.programs.time.task_blocks`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from redistrib.programs.lower.shifts import AHEAD, BEFORE, MOVE, WHOLE, Added
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
        work, shifted = streams.works[item], streams.shifted.get(item)
        freed = work.freed if shifted is None else shifted.sizes[BEFORE]
        reads = reads if shifted is None else []  # the entry of the next step, or the result of the step before
        self.add(item, Task(work.seconds, tuple(reads), work.moves, work.taken > freed), work.scratch)
        if shifted is not None and shifted.shift is AHEAD:
            self._results[item].clear()  # the step reads the gathers that the step before has issued

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

    def add(self, item: Item | None, task: Task, scratch: int = 0) -> int:
        """Add a task, of an item if it has one; its number."""
        number = self.block.add(task, scratch)
        self.item_of.append(item)
        if item is not None:
            self._results.setdefault(item, []).append(number)
            self.tasks_by_item.setdefault(item, []).append(number)
        return number

    def _loop(self, item: Item, layer: int, reads: list[int]) -> None:
        """A loop, and beside it the tasks that moves ahead and behind add to it."""
        streams, scope = self.streams, loop_of(item)
        loop = streams.problem.graph.loops[scope]
        parts = [LaidOut(streams, scope)]
        if scope in streams.problem.graph.conditions:
            parts.append(LaidOut(streams, scope, tests=True))
        beside = [_Beside(self, k, layer) for k in streams.shifted if streams.works[k].scope == scope]
        reads = [*reads, *(task for added in beside for task in added.begin())]
        ran = self.add(item, Task(0.0, tuple(dict.fromkeys(reads)), is_loop=True))
        self.parts[ran] = parts
        self.block.loops[ran] = (loop.steps, [part.block for part in parts])
        for added in beside:
            self.block.buffers += added.end(ran)


class _Beside:
    """The tasks that the work of a move ahead or behind adds beside a loop, which stands in a layer."""

    def __init__(self, laid: LaidOut, number: int, layer: int) -> None:
        self.laid, self.number, self.work = laid, number, laid.streams.works[number]
        self.shifted = laid.streams.shifted[number]
        self.makers: dict[str, tuple[int, ...]] = {}  # of the arrays of the description, as they are now
        self.users = defaultdict[str, list[int]](list)  # the tasks that make and read each, in order
        if (pick := laid.streams.entry_works.get(self.shifted.name)) is not None:
            made = (tasks for _, tasks in laid.tasks_of(laid.streams.works[pick].reads))
            self.makers[WHOLE] = tuple(tasks[min(layer, len(tasks) - 1)] for tasks in made)
            self.users[WHOLE] = laid.picks[pick]

    def begin(self) -> tuple[int, ...]:
        """Add the tasks before the loop; those that the loop waits for."""
        self._add(self.shifted.shift.before)
        return self._makers_of(self.shifted.shift.reads)

    def end(self, loop: int) -> Iterator[TaskBuffer]:
        """Add the tasks after the loop; the buffers of all arrays that are no values of the program as it is."""
        self._note(loop, self.shifted.shift.reads, self.shifted.shift.makes)
        self._add(self.shifted.shift.after)
        for array, (maker, *readers) in self.users.items():
            if array != WHOLE:
                yield TaskBuffer(self.shifted.size(array), (maker,), tuple(readers))

    def _add(self, operations: Iterable[Added]) -> None:
        seconds_of, shifted, work = self.laid.streams.problem.machine.seconds_of, self.shifted, self.work
        for kind, reads, makes, _ in operations:
            read, made, waits = sum(map(shifted.size, reads)), shifted.size(makes), self._makers_of(reads)
            if kind == MOVE:
                task, scratch = Task(work.seconds, waits, moves=True, grows=made > read), work.scratch
            else:
                task, scratch = Task(seconds_of(kind, (shifted.dtype,) * len(reads), read + made, 0), waits), 0
            self._note(self.laid.add(self.number if makes == WHOLE else None, task, scratch), reads, (makes,))

    def _note(self, task: int, reads: Iterable[str], makes: Iterable[str]) -> None:
        for array in dict.fromkeys((*reads, *makes)):
            self.users[array].append(task)
        self.makers |= dict.fromkeys(makes, (task,))

    def _makers_of(self, arrays: Iterable[str]) -> tuple[int, ...]:
        return tuple(task for array in arrays for task in self.makers[array])
