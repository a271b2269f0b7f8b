"""A program from a graph whose cuts are decided: every operation on its tiles, and moves where types differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from redistrib.cache import changed
from redistrib.errors import CutInnerFactorError, ProgramError
from redistrib.lang.types import DimType, DistType
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.check import check
from redistrib.programs.ir.graph import Array, Operation
from redistrib.programs.ir.groups import Group, group_of
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Loop, Place, Program, Value, used_by
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.versions import MovePlanner, ReadAt, nearest, still_read
from redistrib.programs.lower.walk import Lowering, Version
from redistrib.programs.schedule.propagate import Propagation


def emit(
    propagation: Propagation,
    plan: MovePlanner,
    name: str = "main",
    *,
    donated: Iterable[str] = (),
) -> Program:
    """The program of a graph, checked.

    Args:
        propagation: the schedule.
        plan: plans moves.
        name: of the program.
        donated: inputs whose memory is free after their last reader.

    Raises:
        ProgramError: a subclass for each rule of derivation.
    """
    return _Emitting(propagation, plan, name).program(donated)


@dataclass(eq=False)
class _Made(Version):
    """A version that the program has."""

    value: Value = field(kw_only=True)


class _Cut(NamedTuple):
    """An operation as it is cut."""

    part: ScheduledNest
    group: Group
    ins: tuple[DistType, ...]
    outs: tuple[DistType, ...]
    windows: tuple[tuple[Held, ...], ...]


@dataclass(eq=False)
class _Part:
    """The program, the step of a loop or its condition, in the making.

    Attributes:
        builder: of its operations.
        scope: the loop, by number; None for the program.
        outside: the part that the loop stands in.
        constants: values from outside that it reads, by name.
    """

    builder: Builder
    scope: int | None = None
    outside: _Part | None = None
    constants: dict[str, Value] = field(default_factory=dict)

    def program(self, begins: Sequence[Value], ends: Sequence[Value]) -> Program:
        """The part as a program from these values to those."""
        self.builder.inputs[:] = begins
        return self.builder.unchecked(*ends)

    def read(self, ends: Sequence[Value]) -> list[Value]:
        """The values from outside that it reads; results that nothing reads are left out."""
        self.builder.ops = still_read(self.builder.ops, [value.name for value in ends])
        read = {value.name for value in ends}.union(*map(used_by, self.builder.ops))
        return [value for name, value in self.constants.items() if name in read]


@dataclass
class _Emitting(Lowering[_Made, _Cut]):
    plan: MovePlanner
    name: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self.place = Place(self.propagation.mesh)
        self._main = _Part(self._builder(self.name))
        self._parts: dict[tuple[int, bool], _Part] = {}
        self._at_edge: dict[int, list[Value]] = {}  # by operation, what it reads and what it makes
        self._handed_on: dict[int, Value] = {}  # by the `CARRY`, at the end of a step
        self._results: dict[int, Value] = {}
        self._cuts: dict[tuple[object, ...], _Cut] = {}  # of operations that do the same, as those of repeated layers

    def program(self, donated: Iterable[str]) -> Program:
        self.run()
        builder, results = self._main.builder, [self._results[k] for k in range(len(self.graph.outputs))]
        builder.donate(*(self.versions[name][0].value for name in donated))
        builder.ops = still_read(builder.ops, [value.name for value in results])
        return check(self._main.program([self.versions[array.name][0].value for array in self.graph.inputs], results))

    # ------------------------------------------------------------------------------------------------- parts

    def _builder(self, name: str) -> Builder:
        builder = Builder(name, self.plan)
        builder.reserve(self.propagation.arrays)
        return builder

    def _part(self, scope: int | None, tests: bool = False) -> _Part:
        """The step of a loop, or its condition; the program outside of loops."""
        if scope is None:
            return self._main
        if (scope, tests) not in self._parts:
            builder = self._builder(f"{self.graph.loops[scope].name}.{'test' if tests else 'step'}")
            self._parts[scope, tests] = _Part(builder, scope, self._around(scope))
        return self._parts[scope, tests]

    def _part_at(self, scope: int | None, number: int) -> _Part:
        """The part of a loop in which an operation runs."""
        return self._part(scope, scope is not None and number <= self.graph.conditions.get(scope, -1))

    def _around(self, scope: int) -> _Part:
        """The part in which a loop stands."""
        loop = self.graph.loops[scope]
        return self._part_at(loop.parent, loop.first)

    def _inside(self, name: str, value: Value, part: _Part) -> Value:
        """A value as a part reads it; one from outside is a constant of all loops between."""
        scope, at = self.graph.scope_of(name), part
        while at.scope != scope and at.outside is not None:
            at.constants[value.name] = value
            at = at.outside
        return value

    # ------------------------------------------------------------------------------------------------ the walk

    def cut(self, number: int) -> _Cut:
        operation, cuts = self.graph.operations[number], self.propagation.cuts[number]
        carries = self.propagation.carries[number]
        key = (operation.identity, tuple(sorted(cuts.items())), tuple(carries.items()))
        cut = self._cuts.get(key)
        if cut is None:
            cut = self._cuts[key] = self._cut(number)
        return cut._replace(part=changed(cut.part, nest=operation.nest))

    def _cut(self, number: int) -> _Cut:
        operation, part = self.graph.operations[number], self.propagation.part(number)
        try:
            signature = part.signature(self.place.mesh)
        except ProgramError as error:
            raise error.at(operation.source) from None
        group = group_of(operation.name, (part,), self.place)
        windows = tuple(group.windows[access.array] for access in operation.nest.reads)
        outs = tuple(group.writes[access.array] for access in operation.nest.writes)
        return _Cut(part, group, signature.ins, outs, windows)

    def begin(self, array: Array) -> _Made:
        return self._made(self._value(array, self.propagation.start_type(array.name)), -1)

    def _made(self, value: Value, born: int) -> _Made:
        return _Made(value.type, born, born, value=value)

    def _value(self, array: Array, form: DistType) -> Value:
        return Value(array.name, form, self.place, array.dtype)

    def compute(self, number: int, cut: _Cut, read: Sequence[_Made]) -> list[_Made]:
        operation, scope = self.graph.operations[number], self.graph.scopes[number]
        outs = [self._value(array, form) for array, form in zip(operation.outs, cut.outs, strict=True)]
        if not operation.edge.computes and scope is not None:
            part = self._around(scope) if operation.edge.enters else self._part_at(scope, number)
            ins = [self._inside(name, v.value, part) for name, v in zip(operation.ins, read, strict=False)]
            self._at_edge[number] = [*ins, *outs[:1]]
        else:
            part = self._part_at(scope, number)
            ins = [self._inside(name, v.value, part) for name, v in zip(operation.ins, read, strict=True)]
            self._add(part, operation, cut.part, ins, outs)
        return [self._made(value, number) for value in outs]

    def _add(
        self, part: _Part, operation: Operation, cut: ScheduledNest, ins: Sequence[Value], outs: Sequence[Value]
    ) -> None:
        nest = operation.nest
        reads = tuple((access.array, value.name) for access, value in zip(nest.reads, ins, strict=True))
        writes = tuple((access.array, value) for access, value in zip(nest.writes, outs, strict=True))
        part.builder.ops.append(Compute(nest.name, (cut,), self.place, reads, writes, operation.kind, operation.source))

    def hand_on(self, carry: int, version: _Made) -> None:
        scope, name = self.graph.scopes[carry], self.graph.operations[carry].ins[1]
        self._handed_on[carry] = self._inside(name, version.value, self._part(scope))

    def end(self, output: int, version: _Made) -> None:
        self._results[output] = version.value

    def close(self, loop: int) -> None:
        scope, at_edge, around = self.graph.loops[loop], self._at_edge, self._around(loop)
        carried, entries, stacked = (
            [at_edge[one.number] for one in side] for side in (scope.carried, scope.entries, scope.stacked)
        )
        handed_on = [self._handed_on[one.number] for one in scope.carried]
        results = [(self._part(loop), [*handed_on, *(inner for inner, _ in stacked)])]
        if scope.test is not None:
            results.append((self._part(loop, tests=True), at_edge[scope.test]))
        read = (value for part, values in results for value in part.read(values))
        constants = list({value.name: value for value in read}.values())
        begins = [[*constants, *(inner for _, inner in side)] for side in ([*carried, *entries], carried)]
        programs = [part.program(first, last) for (part, last), first in zip(results, begins, strict=False)]
        outs = []
        for one, (_, inner) in zip(scope.carried, carried, strict=True):
            outs.append(replace(inner, name=one.result or around.builder.new_name(f"{inner.name}.end")))
        outs += [outer for _, outer in stacked]
        around.builder.ops.append(
            Loop(
                scope.name,
                programs[0],
                tuple(value.name for value in (*constants, *(outer for outer, _ in (*carried, *entries)))),
                tuple(outs),
                len(constants),
                len(carried),
                scope.steps,
                scope.reverse,
                programs[1] if scope.test is not None else None,
                scope.source,
            )
        )

    # ------------------------------------------------------------------------------------------ layout versions

    def means(self, version: _Made, form: DistType, windows: tuple[Held, ...]) -> bool:
        return version.value.holds(form, self.place, windows)

    def origin(self, key: str, form: DistType, usable: Sequence[_Made], reading: ReadAt) -> _Made:
        if self.propagation.sources is not None:
            return super().origin(key, form, usable, reading)
        target = replace(usable[0].value, type=form, windows=())
        plain = [version for version in usable if not version.windows]
        return plain[nearest([version.value for version in plain], target)]

    def move(self, key: str, source: _Made, form: DistType, windows: tuple[Held, ...], reading: ReadAt) -> _Made:
        tested = self.is_tested(key, reading.reader)
        part = self._part(self.graph.scope_of(key), tested)
        out = replace(self.versions[key][0].value, type=form, windows=windows)
        again = not windows and self.propagation.sources is None
        value = self._again(part, out, reading) if again else None
        if value is None:
            value = part.builder.moved_to(source.value, out)
        return _Made(form, reading.at, reading.until, tested, windows, value=value)

    def _again(self, part: _Part, target: Value, reading: ReadAt) -> Value | None:
        """An array that depends on no input, computed once more as it is wanted now."""
        number = self.propagation.constants.get(target.name)
        if number is None or target.type.partial:
            return None
        operation = self.propagation.graph.operations[number]
        cut = cut_that_gives(operation.nest, target.type)
        if cut is None:
            return None
        nest = ScheduledNest(operation.nest, cut)
        try:
            needed = nest.signature(self.place.mesh).ins
        except CutInnerFactorError:  # a reshape of which the needed tile is no tile of the operand: it is moved
            return None
        read = [self.read(name, form, (), reading) for name, form in zip(operation.ins, needed, strict=True)]
        ins = [self._inside(name, v.value, part) for name, v in zip(operation.ins, read, strict=True)]
        out = replace(target, name=part.builder.new_name(target.name))
        self._add(part, operation, nest, ins, [out])
        return out


def cut_that_gives(nest: Nest, target: DistType) -> DistType | None:
    """The cut of a nest that writes one array so, if there is one."""
    (access,) = nest.writes
    dims = {name: DimType(size, (), size) for name, size in zip(nest.position, nest.sizes, strict=True)}
    for names, dim in zip(access.dims, target.dims, strict=True):
        if not dim.axes:
            continue
        if len(names) != 1:
            return None
        dims[names[0]] = dim
    return DistType(tuple(dims.values()))
