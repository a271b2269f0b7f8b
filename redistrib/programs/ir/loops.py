"""What a loop is, and what the operations at its edge do.

In a graph the body of a loop stands in the list of operations once, between operations that are data-flow edges: they
compute nothing, and each is the identity, so that one cut holds for all that it reads and makes:

=======  ========================================================  =====================================================
edge     reads                                                     makes
=======  ========================================================  =====================================================
`CARRY`  the value before the loop, and the one at a step's end    the one at a step's start, and after the last step
`ENTRY`  an array with one entry for each step along dimension 0   the entry of a step, at its start
`TEST`   the condition of a `while`, before each step              nothing
`STACK`  a value of a step, at its end                             an array of those of all steps along dimension 0
=======  ========================================================  =====================================================

A value from before a loop that an operation of the body reads is there at every step.

Whoever makes a loop names these. All others ask an edge what it does, and a loop what it carries, enters and stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from redistrib.lang.types import DimType, DistType

_T = TypeVar("_T")


class LoopForm(NamedTuple):
    """How often a loop runs, and how its operands and its results follow each other.

    The operands are those that are equal at every step, then those that are carried, then arrays with an entry for each
    step along dimension 0; a step reads an entry of each array in its place. The results are the carried values after
    the last step, then the arrays of the values of all steps; a step makes its entry of each array in its place.

    Attributes:
        constants, carried: how many operands are equal at every step, and how many are carried.
        steps: how often it runs; of a loop with a condition the steps that it is counted with.
        reverse: whether the last entry comes first.
    """

    constants: int
    carried: int
    steps: int
    reverse: bool = False

    @property
    def held(self) -> int:
        """How many operands, the first, a step reads whole."""
        return self.constants + self.carried

    @property
    def order(self) -> range:
        """The numbers of the entries in the order of the steps."""
        return range(self.steps)[:: -1 if self.reverse else 1]

    def is_stacked(self, operand: int) -> bool:
        """Whether an operand has an entry for each step."""
        return operand >= self.held

    def operands(self, each: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T], Sequence[_T]]:
        """What there is for each operand, apart for those equal at every step, those carried, and arrays."""
        return each[: self.constants], each[self.constants : self.held], each[self.held :]

    def results(self, each: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]:
        """What there is for each result, apart for those carried and for arrays."""
        return each[: self.carried], each[self.carried :]

    def stacked(self, entry: DistType) -> DistType:
        """The type of an array with an entry of this type for each step."""
        return replace(entry, dims=(DimType(self.steps, (), self.steps), *entry.dims))


class WhileForm(NamedTuple):
    """How the operands of a `while` follow each other: those of its condition, those of its step, carried values.

    Attributes:
        tested, constants: how many operands the condition, and the step, read besides the carried values.
    """

    tested: int
    constants: int

    @property
    def held(self) -> int:
        """How many operands are equal at every step."""
        return self.tested + self.constants

    def operands(self, each: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T], Sequence[_T]]:
        """What there is for each operand, apart."""
        return each[: self.tested], each[self.tested : self.held], each[self.held :]


@dataclass(frozen=True, eq=False)
class Edge:
    """What an operation does at the edge of a loop.

    Attributes:
        kind: its name; empty for an operation that stands at none.
        enters: whether its first operand comes from before the loop, and its first result begins each step.
        leaves: whether its last operand comes from the end of a step, and its last result is one of the loop.
    """

    kind: str
    enters: bool = False
    leaves: bool = False

    @cached_property
    def computes(self) -> bool:
        """Whether it stands at none, so that it has work of its own."""
        return not self.kind

    @cached_property
    def carries(self) -> bool:
        """Whether it hands a value from each step to the next."""
        return self.enters and self.leaves

    @cached_property
    def slices(self) -> bool:
        """Whether it takes from an array the entry of a step."""
        return self.enters and not self.leaves

    @cached_property
    def stacks(self) -> bool:
        """Whether it makes an array of the values of all steps."""
        return self.leaves and not self.enters

    @cached_property
    def present(self) -> int | None:
        """How many operands and results, the first, are there where it stands; None for all. Others come later."""
        return None if self.computes else 1

    def makes_outside(self, write: int) -> bool:
        """Whether a result is one of the loop."""
        return self.leaves and write >= self.enters


INNER = Edge("")
CARRY = Edge("carry", enters=True, leaves=True)
ENTRY = Edge("entry", enters=True)
TEST = Edge("test")
STACK = Edge("stack", leaves=True)


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
    def outs(self) -> tuple[str, ...]:
        """Its results: what it carries, then what it stacks."""
        left = (one.result for one in self.carried if one.result is not None)
        return (*left, *(one.array for one in self.stacked))
