"""A program from a graph whose cuts are decided: every operation on its tiles, and moves where types differ."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from redistrib.errors import ProgramError
from redistrib.lang.types import DimType, DistType
from redistrib.partitioning.propagate import Propagation
from redistrib.partitioning.versions import LayoutBuilder, still_read
from redistrib.programs.graph import Array, Operation
from redistrib.programs.groups import group_of
from redistrib.programs.nest import Nest
from redistrib.programs.program import Place, Program, Value
from redistrib.programs.pullback import Part


def build(
    found: Propagation,
    builder: LayoutBuilder,
    inputs: Mapping[str, DistType] | None = None,
    outputs: Mapping[int, DistType] | None = None,
    donated: Iterable[str] = (),
) -> Program:
    """The program of a graph, checked.

    Args:
        found: what is decided.
        builder: an empty one, which says how moves are made.
        inputs: types of inputs that begin otherwise.
        outputs: types of outputs that end otherwise, by number.
        donated: inputs whose memory is free after their last reader.

    Raises:
        ProgramError: a subclass for each rule of derivation.
    """
    builder.reserve(found.arrays)
    return _Build(found, Place(found.mesh), builder).run(inputs or {}, outputs or {}, donated)


@dataclass
class _Build:
    found: Propagation
    place: Place
    builder: LayoutBuilder

    def __post_init__(self) -> None:
        self.builder.rematerialise = self._rematerialised

    def run(self, inputs: Mapping[str, DistType], outputs: Mapping[int, DistType], donated: Iterable[str]) -> Program:
        graph, builder = self.found.graph, self.builder
        for array in graph.inputs:
            form = inputs[array.name] if array.name in inputs else self.found.input_type(array.name)
            builder.begin(array.name, self._value(array, form))
        ends: dict[int, Value] = {}

        def end(array: Array) -> None:
            for number, output in enumerate(graph.outputs):
                if output == array.name:
                    made = builder.versions[output][0]
                    form = outputs.get(number) or self.found.output_type(output, made.type)
                    ends[number] = builder.needed(output, self._value(array, form))

        for number, operation in enumerate(graph.operations):
            for value in self._compute(operation, self.found.part(number)):
                builder.hold(value.name, value)
            for array in operation.outs:
                end(array)  # as soon as it is there: until then it may be held as summands, which are larger
        for array in graph.inputs:
            end(array)
        builder.donate(*(builder.versions[name][0] for name in donated))
        builder.ops = still_read(builder.ops, [value.name for value in ends.values()])
        return builder.build(*(ends[number] for number in range(len(ends))))

    def _value(self, array: Array, form: DistType) -> Value:
        return Value(array.name, form, self.place, array.dtype)

    def _compute(self, operation: Operation, part: Part, name: str = "") -> list[Value]:
        """Add an operation, and the moves that it needs before; the values it makes, the first under another name."""
        try:
            signature = part.signature(self.place.mesh)
        except ProgramError as error:
            raise error.at(operation.source) from None
        nest = operation.nest
        reads = [
            (access.array, array, self._value(self.found.arrays[array], needed))
            for access, array, needed in zip(nest.reads, operation.ins, signature.ins, strict=True)
        ]
        made = group_of(nest.name, (part,), self.place).writes
        outs = [
            (access.array, self._value(array, made[access.array]))
            for access, array in zip(nest.writes, operation.outs, strict=True)
        ]
        if name:
            outs = [(array, replace(value, name=name)) for array, value in outs]
        self.builder.add(nest.name, (part,), self.place, reads, outs, operation.kind, operation.source)
        return [value for _, value in outs]

    def _rematerialised(self, key: Hashable, wanted: Value) -> Value | None:
        """An array that depends on no input, computed once more as it is wanted now."""
        number = self.found.constants.get(wanted.name)
        if number is None or wanted.type.partial:
            return None
        operation = self.found.graph.operations[number]
        cut = _cut_that_gives(operation.nest, wanted.type)
        if cut is None:
            return None
        return self._compute(operation, Part(operation.nest, cut), self.builder.new_name(wanted.name))[0]


def _cut_that_gives(nest: Nest, wanted: DistType) -> DistType | None:
    """The cut of a nest that writes one array so, if there is one."""
    (access,) = nest.writes
    dims = {name: DimType(size, (), size) for name, size in zip(nest.position, nest.sizes, strict=True)}
    for names, dim in zip(access.dims, wanted.dims, strict=True):
        if not dim.axes:
            continue
        if len(names) != 1:
            return None
        dims[names[0]] = dim
    return DistType(tuple(dims.values()))
