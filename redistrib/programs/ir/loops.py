"""What a loop is, and what the operations at its edge do.

In a graph the body of a loop stands in the list of operations once, between operations that lead into it and out of
it. These compute nothing, and each is an identity of its operand:

=======  =======================================================================================================
edge     its operand and its result
=======  =======================================================================================================
`CARRY`  the value before the loop, and the one at the end of a step; makes the value at the start of a step
`ENTRY`  an array with one entry for each step along dimension 0; makes the entry of a step
`TEST`   the condition of a `while`, before each step
`STACK`  a value of a step; makes an array of those of all steps along dimension 0
`LEAVE`  the value at the start of a step; makes the value after the last step
=======  =======================================================================================================

A value from before a loop that an operation of the body reads is there at every step.

Whoever makes a loop names these. All others ask an edge what it does, and a loop what it carries, enters and stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, eq=False)
class Edge:
    """What an operation does at the edge of a loop.

    Attributes:
        kind: its name; empty for an operation that stands at none.
        computes: whether it stands at none, so that it has work of its own.
        begins: whether each step begins with its result.
        leaves: whether its result is one of the loop.
        carries: whether it hands a value from each step to the next.
        slices: whether it takes from an array the entry of a step.
        tests: whether another step follows only if its operand is true.
        stacks: whether it makes an array of the values of all steps.
        renames: whether its result is its operand, of the same type and in the same memory.
        reads: how many operands, the first, are read where it stands; None for all. The others are there later.
    """

    kind: str
    computes: bool = False
    begins: bool = False
    leaves: bool = False
    carries: bool = False
    slices: bool = False
    tests: bool = False
    stacks: bool = False
    renames: bool = False
    reads: int | None = None


INNER = Edge("", computes=True)
CARRY = Edge("carry", begins=True, carries=True, reads=1)
ENTRY = Edge("entry", begins=True, slices=True)
TEST = Edge("test", tests=True)
STACK = Edge("stack", leaves=True, stacks=True)
LEAVE = Edge("leave", leaves=True, renames=True, reads=0)


@dataclass(frozen=True)
class LoopScope:
    """Operations that run once a step of a loop.

    Attributes:
        name: of the loop.
        parent: number of the loop that it stands in, among the loops of the graph; None: in none.
        first, stop: numbers of its operations, those of loops inside included: from `first` to before `stop`.
        steps: how often it runs; of a `while` the steps that it is counted with.
        reverse: whether the last entry comes first.
        source: where it comes from, `file:line`.
    """

    name: str
    parent: int | None
    first: int
    stop: int
    steps: int
    reverse: bool = False
    source: str = ""


class Carried(NamedTuple):
    """A value that a loop hands from each step to the next.

    Attributes:
        number: of its `CARRY`.
        initial: the value before the loop.
        start, end: the values at the start and at the end of a step.
        result: the value after the last step; None where nothing reads it.
    """

    number: int
    initial: str
    start: str
    end: str
    result: str | None


class Stacked(NamedTuple):
    """An array with an entry for each step.

    Attributes:
        number: of its `ENTRY`, or of its `STACK`.
        array: the array.
        entry: the value of a step.
    """

    number: int
    array: str
    entry: str


@dataclass(frozen=True)
class GraphLoop(LoopScope):
    """A loop of a graph.

    Attributes:
        carried: the values that it hands from step to step.
        entries: the arrays of which each step takes an entry.
        stacked: the arrays of values of all steps.
        test: number of its `TEST`; None where its steps are counted.
        last: number of the last operation of a step: it then hands on what it carries, and its results come after.
    """

    carried: tuple[Carried, ...] = ()
    entries: tuple[Stacked, ...] = ()
    stacked: tuple[Stacked, ...] = ()
    test: int | None = None
    last: int = -1

    @property
    def ins(self) -> tuple[str, ...]:
        """Its operands besides those that are equal at every step: what it carries begins with, then arrays."""
        return (*(one.initial for one in self.carried), *(one.array for one in self.entries))

    @property
    def outs(self) -> tuple[str, ...]:
        """Its results: what it carries, then what it stacks."""
        left = (one.result for one in self.carried if one.result is not None)
        return (*left, *(one.array for one in self.stacked))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _Operation(Protocol):
    @property
    def edge(self) -> Edge: ...
    @property
    def ins(self) -> tuple[str, ...]: ...
    @property
    def outs(self) -> Sequence[_Named]: ...


def loops_of(
    bodies: Sequence[LoopScope], operations: Sequence[_Operation], scopes: Sequence[int | None]
) -> tuple[GraphLoop, ...]:
    """The loops of operations, from those at their edges.

    Args:
        bodies: where the bodies of the loops stand.
        operations: all of the graph.
        scopes: for each operation the innermost loop that it stands in, by number.
    """
    at_edge: list[list[tuple[int, _Operation]]] = [[] for _ in bodies]
    for number, (operation, scope) in enumerate(zip(operations, scopes, strict=True)):
        if scope is not None and not operation.edge.computes:
            at_edge[scope].append((number, operation))
    return tuple(_loop(body, edges) for body, edges in zip(bodies, at_edge, strict=True))


def _loop(body: LoopScope, edges: Sequence[tuple[int, _Operation]]) -> GraphLoop:
    left = {op.ins[0]: op.outs[0].name for _, op in edges if op.edge.renames}
    starts = ((k, op.outs[0].name, op.ins) for k, op in edges if op.edge.carries)
    return GraphLoop(
        **vars(body),
        carried=tuple(Carried(k, ins[0], start, ins[1], left.get(start)) for k, start, ins in starts),
        entries=tuple(Stacked(k, op.ins[0], op.outs[0].name) for k, op in edges if op.edge.slices),
        stacked=tuple(Stacked(k, op.outs[0].name, op.ins[0]) for k, op in edges if op.edge.stacks),
        test=next((k for k, op in edges if op.edge.tests), None),
        last=next((k for k, op in edges if op.edge.leaves), body.stop) - 1,
    )
