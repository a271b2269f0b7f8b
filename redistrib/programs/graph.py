"""Operations before anything is cut: nests joined by the values that they read and make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from redistrib.programs.nest import Nest


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
    """

    nest: Nest
    kind: str
    ins: tuple[str, ...]
    outs: tuple[Array, ...]
    source: str = ""
    opaque: str = ""
    pinned: Pinned | None = None

    @property
    def name(self) -> str:
        """Of the nest."""
        return self.nest.name


@dataclass(frozen=True)
class Graph:
    """Operations in order, each after those that make what it reads.

    Attributes:
        inputs: the values it starts from.
        operations: in order.
        outputs: names of the values it ends with.
    """

    inputs: tuple[Array, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]

    def arrays(self) -> dict[str, Array]:
        """Every value by its name."""
        made = (array for operation in self.operations for array in operation.outs)
        return {array.name: array for array in (*self.inputs, *made)}

    @cached_property
    def readers(self) -> dict[str, list[tuple[int, int]]]:
        """For every value that is read the operations that read it, each with the number of the read."""
        return readers(self.operations)

    @cached_property
    def makers(self) -> dict[str, tuple[int, int]]:
        """For every value that is no input the operation that makes it, and the number of the write."""
        operations = enumerate(self.operations)
        return {array.name: (k, w) for k, operation in operations for w, array in enumerate(operation.outs)}

    def used(self) -> Graph:
        """The graph without operations of which nothing is needed; operations with effects stay."""
        needed = set(self.outputs)
        kept: list[Operation] = []
        for operation in reversed(self.operations):
            if operation.nest.effectful or any(array.name in needed for array in operation.outs):
                needed.update(operation.ins)
                kept.append(operation)
        return replace(self, operations=tuple(reversed(kept)))


def readers(operations: Sequence[Operation]) -> dict[str, list[tuple[int, int]]]:
    """For every value the operations that read it, each with the number of the read."""
    found: dict[str, list[tuple[int, int]]] = {}
    for k, operation in enumerate(operations):
        for r, name in enumerate(operation.ins):
            found.setdefault(name, []).append((k, r))
    return found
