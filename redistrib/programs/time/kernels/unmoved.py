"""The graph of a program on one place: its operations between whole arrays, as they were before they were cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from redistrib.programs.ir.data import Compute, Loop, Move, ProgramData
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.loops import CARRY, ENTRY, STACK, TEST, Edge, LoopScope
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.value import Value, fresh

EDGE = Nest("edge of a loop", (), (), ())  # computes nothing


@dataclass
class Unmoved:
    """A program without moves: all that a move makes of an array is one array.

    Attributes:
        graph: the operations, loops flattened as a graph has them.
        array_of: for every value, by its program's id and its name, the array.
        number_of: for every computation, by its program's id and its place in it, the operation.
    """

    graph: Graph
    array_of: Mapping[tuple[int, str], str]
    number_of: Mapping[tuple[int, int], int]


def unmoved(program: ProgramData) -> Unmoved:
    """The graph of a program without calls. What comes from other devices is an input."""
    walk = _Walk()
    inputs = [walk.made(program, value) for value in program.inputs]
    walk.run(program, None)
    outputs = [walk.array_of[id(program), name] for name in program.outputs]
    graph = Graph((*inputs, *walk.received), tuple(walk.operations), (*outputs, *walk.sent), tuple(walk.loops))
    return Unmoved(graph, walk.array_of, walk.number_of)


@dataclass
class _Walk:
    operations: list[Operation] = field(default_factory=list)
    loops: list[LoopScope] = field(default_factory=list)
    received: list[Array] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    array_of: dict[tuple[int, str], str] = field(default_factory=dict)
    number_of: dict[tuple[int, int], int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def made(self, program: ProgramData, value: Value) -> Array:
        """The array of a value that no move makes."""
        name = fresh(value.name, self.names)
        self.array_of[id(program), value.name] = name
        return Array(name, value.shape, value.dtype)

    def run(self, program: ProgramData, scope: int | None) -> None:
        """Add the operations of a program, of which the inputs are there."""
        for place, op in enumerate(program.ops):
            match op:
                case Compute():
                    self.number_of[id(program), place] = len(self.operations)
                    self.operations.append(self._computed(program, op))
                case Move():
                    source = program.values[op.value]
                    if source.place.devices == op.out.place.devices and source.dtype == op.out.dtype:
                        self.array_of[id(program), op.out.name] = self.array_of[id(program), op.value]
                    else:
                        self.sent.append(self.array_of[id(program), op.value])
                        self.received.append(self.made(program, op.out))
                case Loop():
                    self._loop(program, op, scope)

    def _computed(self, program: ProgramData, op: Compute) -> Operation:
        values = dict(op.ins)
        ins = tuple(self.array_of[id(program), name] for name in values.values())
        nest, alone = op.parts[0].nest, ""
        if len(op.parts) > 1 or tuple(values) != tuple(access.array for access in nest.reads):
            alone = "several nests in one"
        outs = tuple(self.made(program, value) for _, value in op.outs)
        return Operation(nest, op.kind, ins, outs, op.source, alone)

    def _loop(self, program: ProgramData, op: Loop, scope: int | None) -> None:
        number, first = len(self.loops), len(self.operations)
        self.loops.append(LoopScope(op.name, scope, first, first, op.steps, op.reverse))
        ins, inside, form = op.ins, op.program, op.form
        for inner in op.programs:
            for value, name in zip(inner.inputs[: op.constants], ins, strict=False):
                self.array_of[id(inner), value.name] = self.array_of[id(program), name]
        starts = [self.made(inside, value) for value in inside.inputs[op.constants :]]
        carries = []
        for k, (name, array) in enumerate(zip(ins[op.constants :], starts, strict=True)):
            carries += [len(self.operations)] if k < op.carried else []
            self._edge(CARRY if k < op.carried else ENTRY, (self.array_of[id(program), name],), (array,))
        if op.condition is not None:
            for value, array in zip(op.condition.inputs[op.constants :], starts, strict=False):
                self.array_of[id(op.condition), value.name] = array.name
            self.run(op.condition, number)
            (tested,) = op.condition.outputs
            self._edge(TEST, (self.array_of[id(op.condition), tested],), ())
        self.run(inside, number)
        handed_on, made = form.results([self.array_of[id(inside), name] for name in inside.outputs])
        left, stacked = form.results(op.outs)
        for k, end, out in zip(carries, handed_on, left, strict=True):
            carry = self.operations[k]
            self.operations[k] = replace(carry, ins=(*carry.ins, end), outs=(*carry.outs, self.made(program, out)))
        for end, out in zip(made, stacked, strict=True):
            self._edge(STACK, (end,), (self.made(program, out),))
        self.loops[number] = replace(self.loops[number], stop=len(self.operations))

    def _edge(self, edge: Edge, ins: tuple[str, ...], outs: tuple[Array, ...]) -> None:
        self.operations.append(Operation(EDGE, edge.kind, ins, outs, edge=edge))
