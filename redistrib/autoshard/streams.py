"""The works of a schedule where they run: those outside of loops, and those in the steps of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from redistrib.autoshard.problem import SearchProblem
from redistrib.autoshard.walk_tasks import Buffer, Overlap, WalkTask

Item: TypeAlias = tuple[bool, int]  # whether it is a loop; the number of the loop, or of the work


@dataclass
class Streams:
    problem: SearchProblem
    works: Sequence[WalkTask]
    buffers: Sequence[Buffer]
    overlap: Overlap
    is_apart: bool = False
    items: dict[int | None, list[Item]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[Item, dict[Item, None]] = field(default_factory=lambda: defaultdict(dict))
    entries: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    results: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    entry_works: dict[str, int] = field(default_factory=dict)  # of entries, the works that pick them
    unread: set[int] = field(default_factory=set)  # of these, those of entries that no step reads, but the one before
    buffers_of: dict[int | None, list[Buffer]] = field(default_factory=lambda: defaultdict(list))
    late: dict[str, None] = field(default_factory=dict)  # results whose moves end after all that their steps compute
    exposed: dict[str, None] = field(default_factory=dict)  # entries whose gathers their steps wait for

    def __post_init__(self) -> None:
        graph, keyed = self.problem.graph, defaultdict[int | None, list[tuple[int, int, int, Item]]](list)
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
                    other = self.item(read, scope)
                    if other is not None and other != item:
                        self.reads[item][other] = None
                if scope is None:
                    break
                item, scope = (True, scope), graph.loops[scope].parent
        for k, work in enumerate(self.works):
            if not work.moves and (operation := graph.operations[work.number]).role == "entry":
                self.entry_works[operation.outs[0].name] = k
        ahead = {k: self.works[k].entry for numbers in self.entries.values() for k in numbers}
        for buffer in self.buffers:
            self.buffers_of[buffer.scope].append(buffer)
            if buffer.role == "entry" and len(buffer.readers) == 1 and (entry := ahead.get(buffer.readers[0])):
                self.unread.add(self.entry_works[entry[0]])
        for key, listed in keyed.items():
            first = (
                [(False, k) for k in (*self.entries.get(key, ()), *self.results.get(key, ()))]
                if key is not None
                else []
            )
            rest = (item for *_, item in sorted(listed) if item not in first)
            self.items[key] = [*reversed(first), *rest]

    def item(self, read: int, scope: int | None) -> Item | None:
        """The item of a loop's steps that makes an operand, or reads it; None where it is outside the loop."""
        loops = self.problem.graph.loops
        if read >= 0 and self.works[read].scope == scope:
            return False, read
        item = (False, read) if read >= 0 else (True, -2 - read)
        at = self.works[read].scope if read >= 0 else loops[-2 - read].parent
        if at is not None and at != scope and read in self.results.get(at, ()):
            at = loops[at].parent  # moved after the loop, for its last step
        while at != scope and at is not None:
            item, at = (True, at), loops[at].parent
        return item if at == scope else None

    def number(self, item: Item) -> int:
        """The operation at which an item stands: a loop at its first."""
        return self.problem.graph.loops[item[1]].first if item[0] else self.works[item[1]].number
