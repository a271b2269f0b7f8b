"""Operations before anything is cut: nests joined by the values that they read and make.

The body of a loop stands in the list once, between the operations that lead into it and out of it. These compute
nothing, and each is an identity of what it reads:

==========  ====================================================================================================
role        what it reads and makes
==========  ====================================================================================================
`"carry"`   the value before the loop, and the one at the end of a step; makes the value at the start of a step
`"entry"`   an array with one entry for each step along dimension 0; makes the entry of a step
`"test"`    the condition of a `while`, before each step
`"stack"`   a value of a step; makes an array of those of all steps along dimension 0
`"leave"`   the value at the start of a step; makes the value after the last step
==========  ====================================================================================================

A value from before a loop that an operation of the body reads is there at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

from redistrib.programs.nest import Nest

Role: TypeAlias = Literal["", "carry", "entry", "test", "stack", "leave"]


@dataclass(frozen=True)
class Array:
    """A value of a graph.

    Attributes:
        name: what the graph calls it.
        shape: in elements.
        dtype: name of the element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


class Pinned(NamedTuple):
    """How an operation must be cut.

    Attributes:
        cut: the axes that cut it, each with its size and an iteration dimension, the most major first.
        free: iteration dimensions that other axes may cut.
    """

    cut: tuple[tuple[str, int, str], ...]
    free: frozenset[str]


@dataclass(frozen=True)
class Operation:
    """A nest between values.

    Attributes:
        nest: the operation; its name is its own in the graph.
        kind: what it does, such as `"dot_general"`; several operations have one kind.
        ins: for each read of the nest the value.
        outs: for each write of the nest the value it makes.
        source: where it comes from, `file:line`.
        opaque: why nothing is known of it, so that every device runs all of it; empty where it can be cut.
        pinned: the cut that it must have and the dimensions that any other axis may cut; None where all is free.
        role: what it does at the edge of a loop; empty for all else.
    """

    nest: Nest
    kind: str
    ins: tuple[str, ...]
    outs: tuple[Array, ...]
    source: str = ""
    opaque: str = ""
    pinned: Pinned | None = None
    role: Role = ""

    @property
    def name(self) -> str:
        """Of the nest."""
        return self.nest.name


@dataclass(frozen=True)
class LoopScope:
    """Operations that run once a step of a loop.

    Attributes:
        name: of the loop.
        parent: number of the loop that it stands in, among the loops of the graph; None: in none.
        first, stop: numbers of its operations, those of loops inside included: from `first` to before `stop`.
        steps: how often it runs; of a `while` the steps that it is counted with.
        reverse: whether the last entry comes first.
        is_while: whether a condition ends it.
        source: where it comes from, `file:line`.
    """

    name: str
    parent: int | None
    first: int
    stop: int
    steps: int
    reverse: bool = False
    is_while: bool = False
    source: str = ""


@dataclass(frozen=True)
class Graph:
    """Operations in order, each after those that make what it reads, but for the second read of a `"carry"`.

    Attributes:
        inputs: the values it starts from.
        operations: in order.
        outputs: names of the values it ends with.
        loops: the loops, each after the one that it stands in.
    """

    inputs: tuple[Array, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]
    loops: tuple[LoopScope, ...] = ()

    def arrays(self) -> dict[str, Array]:
        """Every value by its name."""
        results = (array for operation in self.operations for array in operation.outs)
        return {array.name: array for array in (*self.inputs, *results)}

    @cached_property
    def readers(self) -> dict[str, list[tuple[int, int]]]:
        """For every value that is read the operations that read it, each with the number of the read."""
        return readers(self.operations)

    @cached_property
    def makers(self) -> dict[str, tuple[int, int]]:
        """For every value that is no input the operation that makes it, and the number of the write."""
        operations = enumerate(self.operations)
        return {array.name: (k, w) for k, operation in operations for w, array in enumerate(operation.outs)}

    # ------------------------------------------------------------------------------------------------ loops

    @cached_property
    def scopes(self) -> tuple[int | None, ...]:
        """For every operation the innermost loop that it stands in, by number."""
        scopes: list[int | None] = [None] * len(self.operations)
        for number, loop in enumerate(self.loops):
            scopes[loop.first : loop.stop] = [number] * (loop.stop - loop.first)
        return tuple(scopes)

    def scope_of(self, name: str) -> int | None:
        """The innermost loop in which a value is there; what a loop leaves behind is outside it."""
        if name not in self.makers:
            return None
        number = self.makers[name][0]
        scope = self.scopes[number]
        if scope is not None and self.operations[number].role in ("stack", "leave"):
            return self.loops[scope].parent
        return scope

    def steps_of(self, scope: int | None) -> int:
        """How often the body of a loop runs in all; 1 outside of loops."""
        steps = 1
        while scope is not None:
            steps *= self.loops[scope].steps
            scope = self.loops[scope].parent
        return steps

    def times(self, number: int) -> int:
        """How often an operation runs: the product of the steps of the loops around it."""
        return self.steps_of(self.scopes[number])

    def times_of(self, name: str) -> int:
        """How often a move of a value runs. A value from before a loop is moved once, before it."""
        return self.steps_of(self.scope_of(name))

    @cached_property
    def accumulators(self) -> tuple[int, ...]:
        """The `"carry"` operations of what a loop may carry as summands: the next value is linear in the one before."""
        numbers = []
        for k, operation in enumerate(self.operations):
            if operation.role == "carry" and operation.nest.linear and self._is_linear(operation):
                numbers.append(k)
        return tuple(numbers)

    def _is_linear(self, carry: Operation) -> bool:
        """Whether linear operations lead from the value at the start of a step to the one at its end."""
        waiting, seen = [carry.ins[1]], set[str]()
        while waiting:
            name = waiting.pop()
            if name == carry.outs[0].name:
                return True
            if name in seen or name not in self.makers:
                continue
            seen.add(name)
            operation = self.operations[self.makers[name][0]]
            waiting += [operation.ins[r] for group in operation.nest.linear for r in group]
        return False

    def used(self) -> Graph:
        """The graph without operations of which nothing is needed; operations with effects stay."""
        waiting = [k for k, operation in enumerate(self.operations) if operation.nest.effectful]
        waiting += [self.makers[name][0] for name in self.outputs if name in self.makers]
        tests: list[list[int]] = [[] for _ in self.loops]
        for k, (operation, scope) in enumerate(zip(self.operations, self.scopes, strict=True)):
            if operation.role == "test" and scope is not None:
                tests[scope].append(k)
        needed = set[int]()
        while waiting:
            number = waiting.pop()
            if number in needed:
                continue
            needed.add(number)
            waiting += [self.makers[name][0] for name in self.operations[number].ins if name in self.makers]
            scope = self.scopes[number]
            while scope is not None:  # whatever runs in a loop runs as often as its condition says
                waiting += tests[scope]
                scope = self.loops[scope].parent
        kept = sorted(needed)
        before = [0, *accumulate(int(k in needed) for k in range(len(self.operations)))]
        number_of: dict[int, int] = {}
        loops: list[LoopScope] = []
        for number, loop in enumerate(self.loops):
            first, stop = before[loop.first], before[loop.stop]
            if first < stop:
                number_of[number] = len(loops)
                parent = None if loop.parent is None else number_of[loop.parent]
                loops.append(replace(loop, parent=parent, first=first, stop=stop))
        return replace(self, operations=tuple(self.operations[k] for k in kept), loops=tuple(loops))


def readers(operations: Sequence[Operation]) -> dict[str, list[tuple[int, int]]]:
    """For every value the operations that read it, each with the number of the read."""
    reads: dict[str, list[tuple[int, int]]] = {}
    for k, operation in enumerate(operations):
        for r, name in enumerate(operation.ins):
            reads.setdefault(name, []).append((k, r))
    return reads
