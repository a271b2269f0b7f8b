"""The tasks of a schedule's works, laid out one after the other; of several layers that one stands for, a few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from redistrib.autoshard.buffers import Held
from redistrib.autoshard.streams import Item, Streams
from redistrib.simulator.two_streams import Task, TaskTimes


class LaidOut:
    """Tasks that run once, or in each step of a loop, or in its condition.

    Attributes:
        streams: the works.
        scope: the loop, by number; None outside of loops.
        tests: whether it is the condition.
        tasks: in the order of the program.
        item_of: of every task; None for one that a loop needs besides; and which of its layers the task is in.
        made: the tasks of an item, one for each layer that is laid out.
        scratch: bytes that every task needs while it runs; of loops see `parts`.
        parts: of every loop the tasks of a step, and of the condition.
        held: buffers of tasks that loops need besides.
        picks: for works that pick entries, the tasks that do so before a loop.
        timeline: of the tasks.
    """

    timeline: TaskTimes

    def __init__(self, streams: Streams, scope: int | None, *, tests: bool = False) -> None:
        self.streams, self.scope, self.tests = streams, scope, tests
        self.tasks: list[Task] = []
        self.item_of: list[tuple[Item | None, int]] = []
        self.made: dict[Item, list[int]] = defaultdict(list)
        self.scratch: list[int] = []
        self.parts: dict[int, Sequence[LaidOut]] = {}
        self.held: list[Held] = []
        self.picks: dict[int, list[int]] = defaultdict(list)
        self._spans: dict[int, tuple[int, int]] = {}
        self._seconds: dict[int, tuple[float, float]] = {}
        self._readers: dict[int, list[int]] | None = None

    def run(self, item: Item) -> int | None:
        """The run of layers that an item stands for, by number; None where it stands for itself."""
        folded = self.streams.problem.folded
        number = self.streams.number(item)
        if folded is None or self.scope is not None or number >= len(folded.cells) or folded.times[number] == 1:
            return None
        cell = folded.cells[number]
        return None if cell is None else cell[0]

    def cell(self, item: Item) -> int | None:
        """The run of layers in which an item stands, by number."""
        folded, number = self.streams.problem.folded, self.streams.number(item)
        cell = folded.cells[number] if folded is not None and number < len(folded.cells) else None
        return None if cell is None else cell[0]

    def times(self, run: int) -> int:
        """The layers of a run, of which one stands for all."""
        folded = self.streams.problem.folded
        return 1 if folded is None else folded.times[self.span(run)[0]]

    def span(self, run: int) -> tuple[int, int]:
        """The first and the last operation of the layer that stands for those of a run."""
        folded = self.streams.problem.folded
        if folded is not None and not self._spans:
            numbers: dict[int, list[int]] = defaultdict(list)
            for k, (cell, times) in enumerate(zip(folded.cells, folded.times, strict=True)):
                if cell and times > 1:
                    numbers[cell[0]].append(k)
            self._spans = {number: (own[0], own[-1]) for number, own in numbers.items()}
        return self._spans[run]

    def seconds_of(self, run: int) -> tuple[float, float]:
        """When the computations of a run begin, and when they end."""
        if not self._seconds:
            tasks: dict[int, list[int]] = defaultdict(list)
            for k, (item, _) in enumerate(self.item_of):
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
        found: dict[Item, list[int]] = {}
        for work in works:
            item = self.streams.item(work, self.scope)
            if item is not None and item not in found and (tasks := self.made.get(item)) is not None:
                found[item] = tasks
        return [*found.items()]

    def readers_of(self, task: int) -> Sequence[int]:
        """The tasks that read the results of a task."""
        if self._readers is None:
            self._readers = defaultdict(list)
            for k, other in enumerate(self.tasks):
                for read in other.reads:
                    self._readers[read].append(k)
        return self._readers[task]
