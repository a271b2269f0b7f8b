"""A program from a graph whose cuts are decided: every operation on its tiles, and moves where types differ."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from redistrib.errors import CutInnerFactorError, ProgramError
from redistrib.lang.types import DimType, DistType
from redistrib.programs.ir.graph import Array, Operation, Role
from redistrib.programs.ir.groups import group_of
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Loop, Place, Program, Value, used_by
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.lower.halos import shared_halos
from redistrib.programs.lower.versions import LayoutBuilder, still_read
from redistrib.programs.schedule.propagate import Propagation


def build(
    propagation: Propagation,
    builder: LayoutBuilder,
    inputs: Mapping[str, DistType] | None = None,
    outputs: Mapping[int, DistType] | None = None,
    donated: Iterable[str] = (),
) -> Program:
    """The program of a graph, checked.

    Args:
        propagation: the decided cuts.
        builder: an empty one, which says how moves are made.
        inputs: types of inputs that begin otherwise.
        outputs: types of outputs that end otherwise, by number.
        donated: inputs whose memory is free after their last reader.

    Raises:
        ProgramError: a subclass for each rule of derivation.
    """
    builder.reserve(propagation.arrays)
    return _Build(propagation, Place(propagation.mesh), builder).run(inputs or {}, outputs or {}, donated)


@dataclass
class _Build:
    propagation: Propagation
    place: Place
    builder: LayoutBuilder

    def __post_init__(self) -> None:
        self.builder.rematerialise = self._rematerialised
        if self.builder.outside is None:
            self.builder.halos = shared_halos(self.propagation)

    def run(self, inputs: Mapping[str, DistType], outputs: Mapping[int, DistType], donated: Iterable[str]) -> Program:
        graph, builder = self.propagation.graph, self.builder
        for array in graph.inputs:
            form = inputs[array.name] if array.name in inputs else self.propagation.input_type(array.name)
            builder.begin(array.name, self._value(array, form))
        ends: dict[int, Value] = {}

        def end(array: Array) -> None:
            for number, output in enumerate(graph.outputs):
                if output == array.name:
                    value = builder.versions[output][0]
                    form = outputs.get(number) or self.propagation.output_type(output, value.type)
                    ends[number] = builder.needed(output, self._value(array, form))

        for array in self._operations(range(len(graph.operations)), None):
            end(array)  # as soon as it is there: until then it may be held as summands, which are larger
        for array in graph.inputs:
            end(array)
        builder.donate(*(builder.versions[name][0] for name in donated))
        builder.ops = still_read(builder.ops, [value.name for value in ends.values()])
        return builder.build(*(ends[number] for number in range(len(ends))))

    def _value(self, array: Array, form: DistType) -> Value:
        return Value(array.name, form, self.place, array.dtype)

    def _operations(self, numbers: range, scope: int | None) -> Iterator[Array]:
        """Add the operations of a loop, or those outside all loops, and the loops in it; yields their results."""
        graph, number = self.propagation.graph, numbers.start
        while number < numbers.stop:
            inside = graph.scopes[number]
            if inside != scope:
                while inside is not None and graph.loops[inside].parent != scope:
                    inside = graph.loops[inside].parent
                assert inside is not None
                yield from self._loop(inside)
                number = graph.loops[inside].stop
                continue
            operation = graph.operations[number]
            if not operation.role:
                for value in self._compute(operation, self.propagation.part(number)):
                    self.builder.hold(value.name, value)
                yield from operation.outs
            number += 1

    def _compute(self, operation: Operation, part: ScheduledNest, name: str = "") -> list[Value]:
        """Add an operation, and the moves that it needs before; the values it makes, the first under another name."""
        try:
            signature = part.signature(self.place.mesh)
        except ProgramError as error:
            raise error.at(operation.source) from None
        nest, group = operation.nest, group_of(operation.name, (part,), self.place)
        reads = [
            (
                access.array,
                array,
                replace(self._value(self.propagation.arrays[array], needed), windows=group.windows[access.array]),
            )
            for access, array, needed in zip(nest.reads, operation.ins, signature.ins, strict=True)
        ]
        written = group.writes
        outs = [
            (access.array, self._value(array, written[access.array]))
            for access, array in zip(nest.writes, operation.outs, strict=True)
        ]
        if name:
            outs = [(array, replace(value, name=name)) for array, value in outs]
        self.builder.add(nest.name, (part,), self.place, reads, outs, operation.kind, operation.source)
        return [value for _, value in outs]

    # ------------------------------------------------------------------------------------------------ loops

    def _loop(self, number: int) -> Iterator[Array]:
        """Add a loop; yields its results."""
        graph, loop = self.propagation.graph, self.propagation.graph.loops[number]
        roles: dict[Role, list[int]] = {role: [] for role in ("carry", "entry", "test", "stack", "leave")}
        for k in range(loop.first, loop.stop):
            if graph.scopes[k] == number and graph.operations[k].role:
                roles[graph.operations[k].role].append(k)
        forms = {k: self.propagation.part(k).signature(self.place.mesh) for role in roles.values() for k in role}
        carried = [self._value(graph.operations[k].outs[0], forms[k].outs[0]) for k in roles["carry"]]
        entries = [self._value(graph.operations[k].outs[0], forms[k].outs[0]) for k in roles["entry"]]
        starts = [self._needed(graph.operations[k].ins[0], forms[k].ins[0]) for k in roles["carry"]]
        starts += [self._needed(graph.operations[k].ins[0], forms[k].ins[0]) for k in roles["entry"]]
        step = self._inside(f"{loop.name}.step", (*carried, *entries))
        first = roles["test"][0] + 1 if roles["test"] else loop.first
        step._all(range(first, loop.stop), number)
        ends = [step._needed(graph.operations[k].ins[1], forms[k].ins[1]) for k in roles["carry"]]
        ends += [step._needed(graph.operations[k].ins[0], forms[k].ins[0]) for k in roles["stack"]]
        steps, condition = [(step, ends)], None
        for k in roles["test"]:
            condition = self._inside(f"{loop.name}.test", carried)
            condition._all(range(loop.first, first), number)
            steps.append((condition, [condition._needed(graph.operations[k].ins[0], DistType(()))]))
        constants = list(
            {value.name: value for inner, results in steps for value in inner._constants(results)}.values()
        )
        for inner, _ in steps:
            inner.builder.inputs[:0] = constants
        programs = [inner.builder.unchecked(*results) for inner, results in steps]
        left = {graph.operations[k].ins[0]: graph.operations[k].outs[0] for k in roles["leave"]}
        names = [left[to.name].name if to.name in left else self.builder.new_name(f"{to.name}.end") for to in carried]
        outs = [replace(to, name=name) for to, name in zip(carried, names, strict=True)]
        outs += [self._value(graph.operations[k].outs[0], forms[k].outs[0]) for k in roles["stack"]]
        self.builder.ops.append(
            Loop(
                loop.name,
                programs[0],
                tuple(value.name for value in (*constants, *starts)),
                tuple(outs),
                len(constants),
                len(carried),
                loop.steps,
                loop.reverse,
                programs[1] if condition else None,
                loop.source,
            )
        )
        for value in outs:
            self.builder.hold(value.name, value)
        yield from left.values()
        yield from (graph.operations[k].outs[0] for k in roles["stack"])

    def _inside(self, name: str, begins: Sequence[Value]) -> _Build:
        """The builder of a loop's step that begins with these values, or of its condition."""
        builder = self.builder.inside(name)
        builder.reserve(self.propagation.arrays)
        for value in begins:
            builder.begin(value.name, value)
        return _Build(self.propagation, self.place, builder)

    def _all(self, numbers: range, scope: int) -> None:
        for _ in self._operations(numbers, scope):
            pass

    def _needed(self, array: str, form: DistType) -> Value:
        return self.builder.needed(array, self._value(self.propagation.arrays[array], form))

    def _constants(self, ends: Sequence[Value]) -> list[Value]:
        """The values from outside that a step reads; results that nothing reads are left out."""
        self.builder.ops = still_read(self.builder.ops, [value.name for value in ends])
        read = {value.name for value in ends}.union(*map(used_by, self.builder.ops))
        return [value for name, value in self.builder.constants.items() if name in read]

    def _rematerialised(self, key: Hashable, target: Value) -> Value | None:
        """An array that depends on no input, computed once more as it is wanted now."""
        number = self.propagation.constants.get(target.name)
        if number is None or target.type.partial:
            return None
        operation = self.propagation.graph.operations[number]
        cut = cut_that_gives(operation.nest, target.type)
        if cut is None:
            return None
        part = ScheduledNest(operation.nest, cut)
        try:
            part.signature(self.place.mesh)
        except CutInnerFactorError:  # a reshape of which the needed tile is no tile of the operand: it is moved
            return None
        return self._compute(operation, part, self.builder.new_name(target.name))[0]


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
