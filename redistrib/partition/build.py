"""A program from a graph whose cuts are decided: every operation on its tiles, and moves where types differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from redistrib.cost.model import CostModel
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.partition.propagate import Propagation
from redistrib.partition.versions import Versions, freed
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.check import check, group_of
from redistrib.programs.graph import Array, Operation
from redistrib.programs.program import Compute, Place, Program, Value
from redistrib.programs.pullback import Part


def build(
    found: Propagation,
    model: CostModel | str,
    inputs: Mapping[str, DistType] | None = None,
    outputs: Mapping[int, DistType] | None = None,
    name: str = "main",
) -> Program:
    """The program of a graph, checked.

    Args:
        found: what is decided.
        model: what the plans of the moves minimise.
        inputs: types of inputs that begin otherwise.
        outputs: types of outputs that end otherwise, by number.
        name: of the program.

    Raises:
        ProgramError: a subclass for each rule of derivation.
    """
    return _Build(found, Place(found.mesh), Versions(model)).run(inputs or {}, outputs or {}, name)


@dataclass
class _Build:
    found: Propagation
    place: Place
    known: Versions

    def run(self, inputs: Mapping[str, DistType], outputs: Mapping[int, DistType], name: str) -> Program:
        graph = self.found.graph
        starts = []
        for array in graph.inputs:
            form = inputs[array.name] if array.name in inputs else self.found.input_type(array.name)
            starts.append(self._value(array, form))
            self.known.versions[array.name] = [starts[-1]]
        for number, operation in enumerate(graph.operations):
            self._add(number, operation)
        ends = []
        for number, output in enumerate(graph.outputs):
            made = self.known.versions[output][0]
            form = outputs.get(number) or self.found.output_type(output, made.type)
            ends.append(self.known.moved(output, self._value(self.found.arrays[output], form)).name)
        return check(Program(tuple(starts), tuple(freed(self.known.ops, ends)), tuple(ends), name))

    def _value(self, array: Array, form: DistType) -> Value:
        return Value(array.name, form, self.place, array.dtype)

    def _add(self, number: int, operation: Operation) -> None:
        nest = operation.nest
        part = Part(nest, self.found.cut(number), self._carried(number, operation))
        try:
            signature = part.signature(self.place.mesh)
        except ProgramError:
            if not part.carried:
                raise
            part = Part(nest, part.cut)
            signature = part.signature(self.place.mesh)
        ins = []
        for access, name, needed in zip(nest.reads, operation.ins, signature.ins, strict=True):
            value = self.known.moved(name, self._value(self.found.arrays[name], needed))
            ins.append((access.array, value.name))
        made = group_of(nest.name, (part,), self.place).writes
        outs = []
        for access, array in zip(nest.writes, operation.outs, strict=True):
            value = self._value(array, made[access.array])
            self.known.versions[array.name] = [value]
            outs.append((access.array, value))
        self.known.ops.append(Compute(nest.name, (part,), self.place, tuple(ins), tuple(outs)))

    # ------------------------------------------------------------------------------------- summands

    def _carried(self, number: int, operation: Operation) -> tuple[tuple[str, ...], ...]:
        """The axes of summands that pass through each linear group; empty where that would not help.

        They pass where all reads of a group are summands along the same axes, nobody has asked for them whole so far,
        and what is made has no more bytes than what was read.
        """
        carried: list[tuple[str, ...]] = []
        used = set(self.found.cuts[number])
        read = 0
        for group in operation.nest.linear:
            values = [self.known.versions[operation.ins[r]] for r in group]
            forms = {(known[0].type.partial, known[0].type.reduction) for known in values}
            (axes, kind), *others = forms
            alone = all(len(known) == 1 for known in values)
            passes = not others and kind == "sum" and alone and not used & set(axes)
            passes = passes and all(self._all_carry(operation.ins[r]) for r in group)
            carried.append(axes if passes else ())
            read += sum(known[0].tile_bytes for known in values) if passes else 0
        if not any(carried) or sum(map(bool, carried)) > 1:
            return ()
        made = sum(self._tile_bytes(number, operation, w) for w in range(len(operation.outs)))
        return tuple(carried) if made <= read else ()

    def _tile_bytes(self, number: int, operation: Operation, write: int) -> int:
        access, array = operation.nest.writes[write], operation.outs[write]
        parts = math.prod(
            self.place.mesh.axis(axis).size for axis, dim in self.found.cuts[number].items() if dim in access.names
        )
        return math.prod(array.shape) * itemsize_of(array.dtype) // parts

    def _all_carry(self, name: str) -> bool:
        """Whether all who read a value could take summands, so that it need not be whole for any of them."""
        operations = self.found.graph.operations
        readers = self.found.readers.get(name, ())
        linear = all(r in {k for group in operations[o].nest.linear for k in group} for o, r in readers)
        return linear and name not in self.found.graph.outputs
