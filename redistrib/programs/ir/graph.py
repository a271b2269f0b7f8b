"""Operations before anything is cut: nests joined by the values that they read and make.

Loops are flat: their bodies stand in the list, between operations at the edge of the loop, see `ir.loops`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from redistrib.cache import Key
from redistrib.programs.ir.loops import INNER, Carried, Edge, GraphLoop, LoopForm, LoopScope, Stacked
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Record


class Array(NamedTuple):
    """A value of a graph.

    Attributes:
        name: of the array in the graph.
        shape: in elements.
        dtype: name of the element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


class Pinned(NamedTuple):
    """How an operation must be cut.

    Attributes:
        cut: the axes that cut it, each with its size (0 for any) and an iteration dimension, the most major first.
        free: iteration dimensions that other axes may cut.
        whole: axes that may cut none.
    """

    cut: tuple[tuple[str, int, str], ...]
    free: frozenset[str]
    whole: frozenset[str] = frozenset()

    @property
    def axes(self) -> tuple[tuple[str, int, str | None], ...]:
        """All axes that are named, each with its size (0 for any) and what it cuts, None for nothing."""
        return (*self.cut, *((axis, 0, None) for axis in sorted(self.whole)))


@dataclass(frozen=True)
class Operation:
    """A nest between values.

    Attributes:
        nest: the operation; its name is its own in the graph.
        kind: the operation's name without a number, `"dot_general"`; several operations have one kind.
        ins: for each read of the nest the value.
        outs: for each write of the nest the value it makes.
        source: where it comes from, `file:line`.
        opaque: why nothing is known of it, so that every device runs all of it; empty where it can be cut.
        pinned: the cut that it must have and the dimensions that any other axis may cut; None where all is free.
        edge: what it does at the edge of a loop.
        record: what is known of it besides its nest; that of its kind, where the nest has none.
    """

    nest: Nest
    kind: str
    ins: tuple[str, ...]
    outs: tuple[Array, ...]
    source: str = ""
    opaque: str = ""
    pinned: Pinned | None = None
    edge: Edge = INNER
    record: Record = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", self.nest.record or record_of(self.kind))

    @classmethod
    def unchecked(
        cls,
        nest: Nest,
        kind: str,
        ins: tuple[str, ...],
        outs: tuple[Array, ...],
        source: str,
        opaque: str,
        record: Record,
        identity: Key,
    ) -> Operation:
        """An operation that no axis must cut and that is inside of loops, with its record and its identity: fields are
        set at once."""
        operation = object.__new__(cls)
        operation.__dict__.update(
            nest=nest, kind=kind, ins=ins, outs=outs, source=source, opaque=opaque, pinned=None, edge=INNER,
            record=record, identity=identity,
        )  # fmt: skip
        return operation

    @property
    def name(self) -> str:
        """Of the nest."""
        return self.nest.name

    @cached_property
    def identity(self) -> Key:
        """Equal for operations of one kind whose nests share their parts, as of repeated layers, while both exist."""
        return operation_identity(self.nest, self.kind, self.opaque, self.edge, self.pinned)


def operation_identity(nest: Nest, kind: str, opaque: str, edge: Edge = INNER, pinned: Pinned | None = None) -> Key:
    """The identity of an operation, see `Operation.identity`."""
    return Key((
        kind, edge, opaque, pinned, nest.record, nest.effectful, nest.replicated, nest.whole, nest.flops,
        id(nest.ranges), id(nest.reads), id(nest.writes), id(nest.combine), id(nest.linear),
    ))  # fmt: skip


@dataclass(frozen=True)
class CountedStep:
    """One step of a counted loop that is a single operation.

    Attributes:
        graph: the step on whole arrays; its inputs stand for the operands of the loop, its outputs for the results.
        form: of the loop.
        numbers: operands that are single numbers, by position.
    """

    graph: Graph
    form: LoopForm
    numbers: Mapping[int, Any]


@dataclass(frozen=True)
class Graph:
    """Operations in order, each after the makers of its operands, except the second read of a `CARRY`.

    Attributes:
        inputs: the values it starts from.
        operations: in order.
        outputs: names of the values it ends with.
        bodies: where the bodies of its loops stand, each after the one that it stands in.
    """

    inputs: tuple[Array, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]
    bodies: tuple[LoopScope, ...] = ()

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """Every value by its name."""
        results = (array for operation in self.operations for array in operation.outs)
        return {array.name: array for array in (*self.inputs, *results)}

    @cached_property
    def readers(self) -> dict[str, list[tuple[int, int]]]:
        """For every operand the operations that read it, each with the number of the read."""
        return readers(self.operations)

    @cached_property
    def makers(self) -> dict[str, tuple[int, int]]:
        """For every value that is no input the operation that makes it, and the number of the write."""
        operations = enumerate(self.operations)
        return {array.name: (k, w) for k, operation in operations for w, array in enumerate(operation.outs)}

    # ------------------------------------------------------------------------------------------------ loops

    @cached_property
    def loops(self) -> tuple[GraphLoop, ...]:
        """The loops, each after the one that it stands in."""
        at_edge: list[list[tuple[int, Operation]]] = [[] for _ in self.bodies]
        for number, (operation, scope) in enumerate(zip(self.operations, self.scopes, strict=True)):
            if scope is not None and not operation.edge.computes:
                at_edge[scope].append((number, operation))
        return tuple(_loop(body, edges) for body, edges in zip(self.bodies, at_edge, strict=True))

    @cached_property
    def scopes(self) -> tuple[int | None, ...]:
        """For every operation the innermost loop that it stands in, by number."""
        scopes: list[int | None] = [None] * len(self.operations)
        for number, loop in enumerate(self.bodies):
            scopes[loop.first : loop.stop] = [number] * (loop.stop - loop.first)
        return tuple(scopes)

    def scope_of(self, name: str) -> int | None:
        """The innermost loop in which a value exists; results of a loop are outside it."""
        if not self.bodies or name not in self.makers:
            return None
        number, write = self.makers[name]
        scope = self.scopes[number]
        if scope is None or not self.operations[number].edge.makes_outside(write):
            return scope
        return self.bodies[scope].parent

    def steps_of(self, scope: int | None) -> int:
        """How often the body of a loop runs in all; 1 outside of loops."""
        steps = 1
        while scope is not None:
            steps *= self.bodies[scope].steps
            scope = self.bodies[scope].parent
        return steps

    def times(self, number: int) -> int:
        """How often an operation runs: the product of the steps of the loops around it."""
        return self.steps_of(self.scopes[number])

    def times_of(self, name: str) -> int:
        """How often a move of a value runs. A value from before a loop is moved once, before it."""
        return self.steps_of(self.scope_of(name))

    @cached_property
    def closing(self) -> dict[int, tuple[int, ...]]:
        """For the last operation of a step the `CARRY` operations whose second read is needed after it."""
        inside: dict[int, list[int]] = {}
        for loop in self.loops:
            inside.setdefault(loop.last, []).extend(carried.number for carried in loop.carried)
        return {k: tuple(sorted(numbers)) for k, numbers in inside.items()}

    @cached_property
    def ending(self) -> dict[int, tuple[int, ...]]:
        """For the last operation of a loop the loops that end with it, by number, the innermost first."""
        inside: dict[int, list[int]] = {}
        for number in reversed(range(len(self.bodies))):
            inside.setdefault(self.bodies[number].stop - 1, []).append(number)
        return {k: tuple(numbers) for k, numbers in inside.items()}

    @cached_property
    def conditions(self) -> dict[int, int]:
        """For every loop, by number, that a condition ends, the number of its `TEST` operation."""
        return {number: loop.test for number, loop in enumerate(self.loops) if loop.test is not None}

    def tests_with(self, name: str, number: int) -> bool:
        """Whether an operation reads a carried value for the condition: a step does not see moves made for it."""
        scope = self.scope_of(name) if self.conditions else None
        return scope is not None and number <= self.conditions.get(scope, -1)

    def made_at(self, name: str) -> int:
        """The operation from which on a value takes memory; -1 for an input.

        Stacked results of a loop exist from its start, its other results when it is over. Carried values take the
        memory of their initial values, where nothing reads these afterwards.
        """
        if name not in self.makers:
            return -1
        number, write = self.makers[name]
        edge, scope = self.operations[number].edge, self.scopes[number]
        if scope is not None and edge.makes_outside(write):
            return self.bodies[scope].stop if edge.carries else self.bodies[scope].first
        return number + edge.carries

    def begins_at(self, name: str, number: int) -> int:
        """The operation before which a value is moved for a reader: before the loop, where it comes from outside."""
        loop = self._outermost(name, number)
        return number if loop is None else loop.first

    def held_until(self, number: int, read: int) -> int:
        """The operation until which a value is kept for a reader.

        Values from outside are live while the loop runs, and carried values until its steps end.
        """
        operation, scope = self.operations[number], self.scopes[number]
        if scope is not None and operation.edge.carries:
            return self.bodies[scope].stop - 1 if read else number
        loop = self._outermost(operation.ins[read], number)
        return number if loop is None else loop.stop - 1

    def _outermost(self, name: str, number: int) -> LoopScope | None:
        """The outermost loop around an operation that a value which it reads comes from outside of."""
        scope, outermost = self.scopes[number], None
        if scope is None:
            return None
        own_scope = self.scope_of(name)
        while scope is not None and scope != own_scope:
            outermost, scope = self.bodies[scope], self.bodies[scope].parent
        return outermost

    @cached_property
    def accumulators(self) -> tuple[int, ...]:
        """The `CARRY` operations whose values a loop may carry as summands: the next value is linear in the last."""
        all_carried = (carried for loop in self.loops for carried in loop.carried)
        return tuple(sorted(carried.number for carried in all_carried if self._is_linear(carried)))

    def _is_linear(self, carried: Carried) -> bool:
        """Whether linear operations lead from the value at the start of a step to the one at its end."""
        waiting, seen = [carried.end] if self.operations[carried.number].nest.linear else [], set[str]()
        while waiting:
            name = waiting.pop()
            if name == carried.start:
                return True
            if name in seen or name not in self.makers:
                continue
            seen.add(name)
            operation = self.operations[self.makers[name][0]]
            waiting += [operation.ins[r] for group in operation.nest.linear for r in group]
        return False

    def unpinned(self) -> Graph:
        """The graph without the cuts that sharding constraints ask for; these operations are copies then."""
        if not any(operation.pinned for operation in self.operations):
            return self
        return replace(self, operations=tuple(replace(operation, pinned=None) for operation in self.operations))

    def used(self) -> Graph:
        """The graph without operations and results of loops of which nothing is needed; those with effects stay."""
        operations = self.operations
        makers = {array.name: k for k, operation in enumerate(operations) for array in operation.outs}
        waiting = [k for k, operation in enumerate(operations) if operation.nest.effectful]
        waiting += [makers[name] for name in self.outputs if name in makers]
        needed = {*waiting}
        while waiting:
            number = waiting.pop()
            new = {makers[name] for name in operations[number].ins if name in makers}
            scope = self.scopes[number] if self.bodies else None
            while scope is not None:  # an operation in a loop runs as often as its condition says
                if scope in self.conditions:
                    new.add(self.conditions[scope])
                scope = self.bodies[scope].parent
            new -= needed
            needed |= new
            waiting += new
        remaining = sorted(needed)
        if self.bodies:
            read = {*self.outputs, *(name for k in remaining for name in operations[k].ins)}
            operations = tuple([_without_unread(operation, read) for operation in operations])
        needed_operations = tuple([operations[k] for k in remaining])
        return replace(self, operations=needed_operations, bodies=self.bodies_of(remaining))

    def bodies_of(self, kept: Sequence[int]) -> tuple[LoopScope, ...]:
        """The bodies of a graph that has these operations alone; those of which none is left go."""
        if not self.bodies:
            return ()
        left = {*kept}
        before = [0, *accumulate(int(k in left) for k in range(len(self.operations)))]
        number_of: dict[int, int] = {}
        bodies: list[LoopScope] = []
        for number, loop in enumerate(self.bodies):
            first, stop = before[loop.first], before[loop.stop]
            if first < stop:
                number_of[number] = len(bodies)
                parent = None if loop.parent is None else number_of[loop.parent]
                bodies.append(replace(loop, parent=parent, first=first, stop=stop))
        return tuple(bodies)


def _loop(body: LoopScope, edges: Sequence[tuple[int, Operation]]) -> GraphLoop:
    """A loop, from where its body stands and the operations at its edge."""
    carries = ((k, op.ins, [array.name for array in op.outs]) for k, op in edges if op.edge.carries)
    return GraphLoop(
        **vars(body),
        carried=tuple(Carried(k, ins[0], outs[0], ins[1], next(iter(outs[1:]), None)) for k, ins, outs in carries),
        entries=tuple(Stacked(k, op.ins[0], op.outs[0].name) for k, op in edges if op.edge.slices),
        stacked=tuple(Stacked(k, op.outs[0].name, op.ins[0]) for k, op in edges if op.edge.stacks),
        test=next((k for k, op in edges if not op.outs), None),
        last=next((k for k, op in edges if op.edge.stacks), body.stop) - 1,
    )


def _without_unread(operation: Operation, read: Collection[str]) -> Operation:
    """An operation without the results of a loop that nothing reads."""
    if len(operation.outs) < 2 or all(not operation.edge.carries or array.name in read for array in operation.outs[1:]):
        return operation
    return replace(operation, nest=replace(operation.nest, writes=operation.nest.writes[:1]), outs=operation.outs[:1])


def readers(operations: Sequence[Operation]) -> dict[str, list[tuple[int, int]]]:
    """For every value the operations that read it, each with the number of the read."""
    reads: dict[str, list[tuple[int, int]]] = {}
    for k, operation in enumerate(operations):
        for r, name in enumerate(operation.ins):
            reads.setdefault(name, []).append((k, r))
    return reads
