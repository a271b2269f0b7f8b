"""The arrays of a walk in their types, and what the walk records of them where moves run beside computations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redistrib.programs.ir.graph import Array
from redistrib.programs.ir.windows import held_shape
from redistrib.programs.lower.shifts import AHEAD, StepMove
from redistrib.programs.lower.walk import Version
from redistrib.programs.search.moves import Price
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.works import PricedWork, ShiftedMove, WorkBuffer, leaving


@dataclass(eq=False)
class PricedVersion(Version):
    """An array in one type, and the works of a walk that make and read it.

    Attributes:
        works: of the walk, that make it.
        is_entry: whether it is an entry of an array that no move ahead has been noted of.
        readers: works that read it.
        begins: loops, by number, whose carried values it is at first.
        stays: whether it is a result, of the program or of a step.
        within: versions whose bytes are read with this one: it is another name for them, or no kernel has made it yet.
        renames: whether it is another name for the bytes of another version.
    """

    works: tuple[int, ...] = ()
    is_entry: bool = False
    readers: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    stays: bool = False
    within: Sequence[PricedVersion] = ()
    renames: bool = False

    @property
    def size(self) -> int:
        """Elements that a device holds."""
        return math.prod(held_shape(self.form.local_shape, self.windows)) if self.windows else self.form.local_size

    def read_by(self, work: int) -> None:
        """Note a work that reads it."""
        self.readers.append(work)
        for version in self.within:
            version.read_by(work)

    def kept(self) -> None:
        """Note that it stays to the end."""
        self.stays = True
        for version in self.within:
            version.kept()


@dataclass
class Recorder:
    """The works of a walk.

    Attributes:
        problem: the search problem.
        arrays: of the graph, by name.
        versions: of every array, the first as it is made.
        works: so far.
        moved: for moves, by number, the array, and its version before the move and after it.
        step_moves: for moves in steps of loops, by number, what decides whether they may be made ahead or behind.
        in_pass: by the last operation of a flash kernel its works so far, and the versions that they read.
    """

    problem: SearchProblem
    arrays: Mapping[str, Array]
    versions: Mapping[str, list[PricedVersion]]
    works: list[PricedWork] = field(default_factory=list)
    moved: dict[int, tuple[str, PricedVersion, PricedVersion]] = field(default_factory=dict)
    step_moves: dict[int, StepMove] = field(default_factory=dict)
    in_pass: dict[int, tuple[list[int], list[PricedVersion]]] = field(default_factory=dict)

    def computes(self, number: int, seconds: float, read: Sequence[PricedVersion]) -> tuple[int, ...]:
        """The works that make the results of an operation, of which one is new where it is computed by itself."""
        graph, before = self.problem.graph, tuple(dict.fromkeys(k for version in read for k in version.works))
        scope = graph.scopes[number]
        edge = graph.operations[number].edge
        if edge.enters:  # there in each step, once the loop has begun
            if edge.carries:
                _begin(read[0], scope)
            else:
                read[0].read_by(len(self.works))
            self.works.append(PricedWork(number, 1, scope, 0.0, before))
            return ()
        if not edge.computes:
            read[0].kept()
        self._read_in_step(before, scope, stacked=int(edge.stacks))
        if not edge.computes or self.is_inside(number):
            return before
        for version in read:
            version.read_by(len(self.works))
        if (end := self.problem.facts.pass_ends.get(number)) is not None:
            own, operands = self.in_pass.setdefault(end, ([], []))
            own.append(len(self.works))
            operands += read
        self.works.append(PricedWork(number, 1, scope, seconds, before))
        if number == end:
            self._pass(*self.in_pass.pop(number))
        return (len(self.works) - 1,)

    def _pass(self, works: list[int], operands: list[PricedVersion]) -> None:
        """Note that a flash kernel begins when all its operands are there that it does not make itself, and holds all
        until it is done."""
        for version in operands:
            version.read_by(works[-1])
        first, later = self.works[works[0]], {works[0]}
        awaited = {k for version in operands for k in version.works if k >= 0 and self.works[k].moves}
        for k in sorted(awaited.union(range(works[0] + 1, works[-1]))):
            work = self.works[k]
            if k in awaited and work.scope == first.scope and later.isdisjoint(work.reads):
                self.works[k] = work._replace(number=min(work.number, first.number), phase=0)
                first = first._replace(reads=tuple(dict.fromkeys((*first.reads, k))))
            else:
                later.add(k)
        self.works[works[0]] = first

    def is_inside(self, number: int) -> bool:
        """Whether an operation is computed inside the kernels that read it."""
        kernel = self.problem.facts.kernel(number)
        return kernel is not None and not kernel.runs

    def move(self, name: str, source: PricedVersion, moved: PricedVersion, price: Price, at: int, reader: int) -> None:
        """Note a move as a work."""
        scope, number = self.problem.graph.scope_of(name), len(self.works)
        self._read_in_step(source.works, scope)
        is_same = (source.size, source.form.partial) == (moved.size, moved.form.partial)
        if price.is_local and not price.cost and is_same and not moved.windows:
            moved.works, moved.within, moved.renames = source.works, (source,), True
            return
        phase = 0 if reader >= 0 or at >= len(self.problem.graph.operations) else 2
        if scope is not None and self.problem.graph.loops[scope].steps:
            is_made = source is self.versions[name][0] and bool(source.works)
            has_halos = bool(source.windows or moved.windows)
            step_move = self.step_moves[number] = StepMove(bool(price.received), has_halos, source.is_entry, is_made)
            source.is_entry = source.is_entry and step_move.shift is None
        moved.works = (number,)
        source.read_by(number)
        self.moved[number] = (name, source, moved)
        task = PricedWork(at, phase, scope, price.cost, source.works, True, self._bytes(name, moved.size))
        self.works.append(task._replace(scratch=price.scratch))

    def _read_in_step(self, works: tuple[int, ...], scope: int | None, *, stacked: int = 0) -> None:
        """Note that a step reads results of works, or stacks them."""
        for k in works:
            if (step_move := self.step_moves.get(k)) is not None and self.works[k].scope == scope:
                self.step_moves[k] = step_move._replace(
                    stacked=step_move.stacked + stacked, is_read=step_move.is_read or not stacked
                )

    def hand_on(self, version: PricedVersion, scope: int | None) -> None:
        """Note that a step hands a version on to the next one."""
        version.kept()
        self._read_in_step(version.works, scope)

    def finished(self) -> list[PricedWork]:
        """The works; of moves whether they may be made ahead or behind, and bytes of operands that they read last."""
        works, loops = [*self.works], self.problem.graph.loops
        for k, step_move in self.step_moves.items():
            if (shift := step_move.shift) is not None:
                name, source, moved = self.moved[k]
                steps = loops[works[k].scope or 0].steps
                each = source.size if shift is AHEAD else moved.size
                sizes = [self._bytes(name, size) for size in (steps * each, source.size, moved.size)]
                works[k] = works[k]._replace(shifted=ShiftedMove(shift, name, self.arrays[name].dtype, sizes))
        for k, (name, source, _) in self.moved.items():
            if source.stays or (source.born < 0 and name not in self.problem.donated):
                continue
            if any(works[k].number <= loops[begun].first for begun in source.begins):
                continue  # a loop that comes later takes the bytes over
            if max(source.readers, key=lambda reader: (works[reader].place, reader)) == k:
                works[k] = works[k]._replace(freed=self._bytes(name, source.size))
        return works

    def buffers(self) -> list[WorkBuffer]:
        """The buffers of all versions."""
        problem, graph = self.problem, self.problem.graph
        inputs = {array.name for array in graph.inputs}
        begins = {op.outs[0].name: op for op in graph.operations if op.edge.enters}
        buffers: list[WorkBuffer] = []
        for name, versions in self.versions.items():
            if name in problem.facts.unstored and len(versions) == 1:
                continue
            begin = begins.get(name)
            for number, version in enumerate(versions):
                if version.renames:
                    continue
                first = number == 0
                size, scope = self._bytes(name, version.size), graph.scope_of(name)
                stays = version.stays or (first and name in inputs and name not in problem.donated)
                works, is_there = version.works, name in inputs or begin is not None
                if version.within or not (works or is_there):  # made inside the kernel that reads it first
                    works = tuple(sorted(version.readers, key=lambda work: self.works[work].place)[:1])
                    if not works:
                        continue
                buffer = WorkBuffer(size, scope, works, tuple(version.readers), tuple(version.begins), stays)
                if first and name in inputs and problem.folded is not None:
                    buffer = buffer._replace(copies=problem.folded.input_times[name])
                elif name in inputs and problem.folded is not None and problem.facts.copies[version.born :][:1] == (1,):
                    buffer = buffer._replace(size=problem.folded.input_times[name] * size)  # each is moved
                if first and begin is not None:
                    buffer = buffer._replace(edge=begin.edge, makers=())
                    if begin.edge.carries and len(begin.outs) == 1 and scope is not None:
                        buffers.append(WorkBuffer(size, graph.loops[scope].parent, (leaving(scope),), ()))
                buffers.append(buffer)
        return buffers

    def _bytes(self, name: str, elements: int) -> int:
        return self.problem.machine.bytes_of(elements, self.arrays[name].dtype)


def _begin(version: PricedVersion, scope: int | None) -> None:
    """Note that the carried value of a loop takes the bytes of a version."""
    if scope is None:
        return
    version.begins.append(scope)
    for other in version.within:
        _begin(other, scope)
