"""The works of a schedule where they run: those outside of loops, and those in the steps of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from redistrib.programs.lower.shifts import AHEAD, BEHIND
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.works import PricedWork, ShiftedMove, WorkBuffer, leaving, loop_of

Item: TypeAlias = int  # the number of a work; of a loop as one, `leaving(loop)`


@dataclass
class Streams:
    """The works of a schedule, by the loops in whose steps they run.

    Attributes:
        problem: the search problem.
        works: of the schedule.
        buffers: of the schedule.
        overlap: how far moves run beside computations.
        is_apart: whether they run between computations.
        items: of every loop, by number, and outside of loops, the works and the loops, in the order of the program.
        shifted: the moves that steps make ahead, and then those that they make behind, by their works.
        entry_works: of entries, by name, the works that pick them.
        unread: of these, those of entries that no step reads, but the one before.
        buffers_of: the buffers that are held in the steps of a loop, and outside of loops.
        late: results, by name, whose moves end after all that their steps compute.
        exposed: entries, by name, whose gathers their steps wait for.
    """

    problem: SearchProblem
    works: Sequence[PricedWork]
    buffers: Sequence[WorkBuffer]
    overlap: Overlap
    is_apart: bool = False
    items: dict[int | None, list[Item]] = field(default_factory=lambda: defaultdict(list))
    shifted: dict[int, ShiftedMove] = field(default_factory=dict)
    entry_works: dict[str, int] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)
    buffers_of: dict[int | None, list[WorkBuffer]] = field(default_factory=lambda: defaultdict(list))
    late: dict[str, None] = field(default_factory=dict)
    exposed: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, keyed = self.problem.graph, defaultdict[int | None, list[tuple[int, int, int, Item]]](list)
        for number, loop in enumerate(graph.loops):
            keyed[loop.parent].append((loop.first, 1, number - len(graph.loops), leaving(number)))
        for k, work in enumerate(self.works):
            keyed[work.scope].append((work.number, work.phase, k, k))
            if work.scope is not None and not work.moves and (operation := graph.operations[work.number]).edge.slices:
                self.entry_works[operation.outs[0].name] = k
        for shift, names in ((AHEAD, self.overlap.ahead), (BEHIND, self.overlap.behind)):
            for k, work in enumerate(self.works) if names else ():
                if (shifted := work.shifted) is not None and shifted.shift is shift and shifted.name in names:
                    self.shifted[k] = shifted
        for buffer in self.buffers:
            self.buffers_of[buffer.scope].append(buffer)
            if buffer.edge.slices and len(buffer.readers) == 1 and (shifted := self.shifted.get(buffer.readers[0])):
                self.unread.add(self.entry_works[shifted.name])
        for key, listed in keyed.items():
            listed.sort()
            first = [k for k in reversed(self.shifted) if self.works[k].scope == key]
            self.items[key] = [*first, *(item for *_, item in listed if item not in first)]

    @cached_property
    def reads(self) -> Mapping[Item, Mapping[Item, None]]:
        """For every item those that make its operands."""
        reads: dict[Item, dict[Item, None]] = {}
        for item, scope, read in self._operands():
            other = self.item(read, scope)
            if other is not None and other != item:
                reads.setdefault(item, {})[other] = None
        return reads

    def _operands(self) -> Iterator[tuple[Item, int | None, int]]:
        """The items that read a work, each with the loop in whose steps it runs: the reader, and loops around it."""
        loops = self.problem.graph.loops
        for k, work in enumerate(self.works):
            item, scope = k, work.scope
            while True:
                for read in work.reads:
                    yield item, scope, read
                if scope is None:
                    break
                item, scope = leaving(scope), loops[scope].parent

    @cached_property
    def turned(self) -> set[tuple[int, int]]:
        """Pairs of runs of folded layers, of which the first layer of one reads results of the last of the other."""
        folded = self.problem.folded
        if folded is None:
            return set()
        votes: dict[tuple[int, int], int] = defaultdict(int)
        for item, reads in self.reads.items():
            run = self._run_before(self.number(item))
            for number in map(self.number, reads) if run is not None else ():
                cell = folded.cells[number] if number < len(folded.cells) else None
                if run is not None and cell and cell[0] in folded.spans:
                    votes[run, cell[0]] += 1 if number > folded.spans[cell[0]][1] else -1
        return {pair for pair, count in votes.items() if count > 0}

    def _run_before(self, number: int) -> int | None:
        """The run of an operation before the layer that stands for the others."""
        folded = self.problem.folded
        cell = folded.cells[number] if folded is not None and number < len(folded.cells) else None
        if folded is None or cell is None or cell[0] not in folded.spans or number >= folded.spans[cell[0]][0]:
            return None
        return cell[0]

    def item(self, read: int, scope: int | None) -> Item | None:
        """The item of a loop's steps that makes an operand, or reads it; None where it is outside the loop."""
        works, loops = self.works, self.problem.graph.loops
        at = works[read].scope if read >= 0 else loops[loop_of(read)].parent
        if at == scope:
            return read
        item = read
        if at is not None and (shifted := self.shifted.get(read)) is not None and shifted.shift is BEHIND:
            at = loops[at].parent  # moved after the loop, for its last step
        while at != scope and at is not None:
            item, at = leaving(at), loops[at].parent
        return item if at == scope else None

    def number(self, item: Item) -> int:
        """The operation at which an item stands: a loop at its first."""
        return self.works[item].number if item >= 0 else self.problem.graph.loops[loop_of(item)].first
