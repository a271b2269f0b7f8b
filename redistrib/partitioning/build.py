"""A program from a graph whose cuts are decided: every operation on its tiles, and moves where types differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.lang.types import DimType, DistType
from redistrib.partitioning.propagate import Propagation
from redistrib.partitioning.versions import Versions, still_read
from redistrib.programs.check import check
from redistrib.programs.graph import Array, Operation
from redistrib.programs.groups import group_of
from redistrib.programs.nest import Nest
from redistrib.programs.program import Compute, Place, Program, Value
from redistrib.programs.pullback import Part


def build(
    found: Propagation,
    model: CostModel | str,
    inputs: Mapping[str, DistType] | None = None,
    outputs: Mapping[int, DistType] | None = None,
    name: str = "main",
    versions: Versions | None = None,
    donated: tuple[str, ...] = (),
) -> Program:
    """The program of a graph, checked.

    Args:
        found: what is decided.
        model: what the plans of the moves minimise.
        inputs: types of inputs that begin otherwise.
        outputs: types of outputs that end otherwise, by number.
        name: of the program.
        versions: takes the moves, where `model` alone does not say how they are made.
        donated: inputs whose memory is free after their last reader.

    Raises:
        ProgramError: a subclass for each rule of derivation.
    """
    return _Build(found, Place(found.mesh), versions or Versions(model)).run(inputs or {}, outputs or {}, name, donated)


@dataclass
class _Build:
    found: Propagation
    place: Place
    known: Versions

    def __post_init__(self) -> None:
        self.known.again = self._again

    def run(
        self, inputs: Mapping[str, DistType], outputs: Mapping[int, DistType], name: str, donated: tuple[str, ...]
    ) -> Program:
        graph = self.found.graph
        starts = []
        for array in graph.inputs:
            form = inputs[array.name] if array.name in inputs else self.found.input_type(array.name)
            starts.append(self._value(array, form))
            self.known.versions[array.name] = [starts[-1]]
        ends = [""] * len(graph.outputs)

        def end(
            array: Array,
        ) -> None:  # as soon as it is there: until then it may be held as summands, which are larger
            for number, output in enumerate(graph.outputs):
                if output == array.name:
                    made = self.known.versions[output][0]
                    form = outputs.get(number) or self.found.output_type(output, made.type)
                    ends[number] = self.known.moved(output, self._value(array, form)).name

        for number, operation in enumerate(graph.operations):
            self._add(number, operation)
            for array in operation.outs:
                end(array)
        for array in graph.inputs:
            end(array)
        return check(Program(tuple(starts), tuple(still_read(self.known.ops, ends)), tuple(ends), name, donated))

    def _value(self, array: Array, form: DistType) -> Value:
        return Value(array.name, form, self.place, array.dtype)

    def _add(self, number: int, operation: Operation) -> None:
        for value in self._compute(operation, self.found.part(number)):
            self.known.versions[value.name] = [value]

    def _compute(self, operation: Operation, part: Part, name: str = "") -> list[Value]:
        """Add an operation, and the moves that it needs before; the values it makes, the first under another name."""
        try:
            signature = part.signature(self.place.mesh)
        except ProgramError as error:
            raise error.at(operation.source) from None
        nest, ins = operation.nest, []
        for access, array, needed in zip(nest.reads, operation.ins, signature.ins, strict=True):
            value = self.known.moved(array, self._value(self.found.arrays[array], needed))
            ins.append((access.array, value.name))
        made = group_of(nest.name, (part,), self.place).writes
        outs = [
            (access.array, self._value(array, made[access.array]))
            for access, array in zip(nest.writes, operation.outs, strict=True)
        ]
        if name:
            outs = [(array, replace(value, name=name)) for array, value in outs]
        self.known.ops.append(Compute(nest.name, (part,), self.place, tuple(ins), tuple(outs), operation.source))
        return [value for _, value in outs]

    def _again(self, array: str, wanted: Value) -> Value | None:
        """An array that depends on no input, made once more as it is wanted now."""
        number = self.found.constants.get(array)
        if number is None or wanted.type.partial:
            return None
        operation = self.found.graph.operations[number]
        cut = _cut_that_gives(operation.nest, wanted.type)
        return None if cut is None else self._compute(operation, Part(operation.nest, cut), wanted.name)[0]


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
