"""The tasks of a schedule's works, laid out one after the other; of several layers that one stands for, a few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from redistrib.programs.search.buffers import TaskBuffer
from redistrib.programs.search.streams import Item, Streams
from redistrib.programs.time.two_streams import Task, TaskTimes


class LaidOut:
    """Tasks that run once, or in each step of a loop, or in its condition.

    Attributes:
        streams: the works.
        scope: the loop, by number; None outside of loops.
        tests: whether it is the condition.
        tasks: in the order of the program.
        item_of: the item of every task; None for one that a loop needs besides.
        tasks_by_item: the tasks of an item, one for each layer that is laid out.
        scratch: bytes that every task needs while it runs; of loops see `parts`.
        parts: of every loop the tasks of a step, and of the condition.
        buffers: of tasks that loops need besides.
        runs: for every operation of a layer that stands for others its run; empty where no layer does.
        picks: for works that pick entries, the tasks that do so before a loop.
        timeline: of the tasks.
    """

    timeline: TaskTimes

    def __init__(self, streams: Streams, scope: int | None, *, tests: bool = False) -> None:
        self.streams, self.scope, self.tests = streams, scope, tests
        self.tasks: list[Task] = []
        self.item_of: list[Item | None] = []
        self.tasks_by_item: dict[Item, list[int]] = {}
        self.scratch: list[int] = []
        self.parts: dict[int, Sequence[LaidOut]] = {}
        self.buffers: list[TaskBuffer] = []
        self.picks: dict[int, list[int]] = defaultdict(list)
        folded = streams.problem.folded
        self.runs = folded.runs if folded is not None and scope is None else ()
        self._seconds: dict[int, tuple[float, float]] = {}
        self._readers: list[list[int]] = []

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

    def seconds_of(self, run: int) -> tuple[float, float]:
        """When the computations of a run begin, and when they end."""
        if not self._seconds:
            tasks: dict[int, list[int]] = defaultdict(list)
            for k, item in enumerate(self.item_of):
                number = None if item is None else self.run(item)
                if number is not None and not self.tasks[k].moves:
                    tasks[number].append(k)
            start, end = self.timeline.start, self.timeline.end
            self._seconds = {
                number: (min(start[k] for k in own), max(end[k] for k in own)) for number, own in tasks.items()
            }
        return self._seconds[run]

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
            self._readers = [[] for _ in self.tasks]
            for k, other in enumerate(self.tasks):
                for read in other.reads:
                    self._readers[read].append(k)
        return self._readers[task]
