"""Weak types of partial arrays: a grid and the number of summands, and the weak collectives between them.

Up to a renaming of devices (Section 5), what is left of a partial type is how many tiles each dimension has, and how
many summands each tile. Their product divides the number of devices.

| edge                    | effect                              | elements each device receives         |
| ----------------------- | ----------------------------------- | ------------------------------------- |
| dynslice(i, m)          | tiles of i times m                  | 0                                     |
| reduce_scatter(i, m)    | summands over m, tiles of i times m | (m - 1) / m of the tile               |
| all_reduce(m)           | summands over m                     | 2 (m - 1) / m of the tile             |
| alltoall, allgather     | as `weak` has them                  | as there                              |
| unreduce(i, m)          | tiles of i over m, summands times m | 0; the tile grows                     |
| unreduce(m)             | summands times m                    | 0                                     |

Sequences have a normal form here too, in which slices come first, then reductions, and summands are made last:
`dynslice* reduce_scatter* all_reduce* alltoall* allgather* unreduce*`, with permutes beside the all-to-alls.
All-reduces are needed only where the number of summands does not divide the tile. That no other order is cheaper is
checked exhaustively in the tests, for small arrays; it is not proved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from redistrib.theory import weak
from redistrib.theory.weak import EdgeKind, Grid, WeakSpace, divided, factors, scaled

PartialKind: TypeAlias = EdgeKind | Literal["reduce_scatter", "all_reduce", "unreduce"]

ORDER: tuple[PartialKind, ...] = ("dynslice", "reduce_scatter", "all_reduce", "alltoall", "allgather", "unreduce")


class State(NamedTuple):
    """A weak type: tiles per dimension, and summands of each tile."""

    grid: Grid
    summands: int = 1


class PartialEdge(NamedTuple):
    """One weak collective.

    Attributes:
        kind: which collective.
        source, target: weak types before and after.
        dim: the dimension cut or merged, or that an all-to-all takes the factor from; None where the grid stays.
        to: the dimension that an all-to-all gives the factor to; equal to `dim` otherwise.
        factor: the product of the sizes of the axes that move.
    """

    kind: PartialKind
    source: State
    target: State
    dim: int | None
    to: int | None
    factor: int

    def received(self, tile: int) -> Fraction:
        """Elements that each device receives if its tile has `tile` elements before."""
        match self.kind:
            case "reduce_scatter" | "alltoall":
                return Fraction(tile * (self.factor - 1), self.factor)
            case "all_reduce":
                return Fraction(2 * tile * (self.factor - 1), self.factor)
            case "allgather":
                return Fraction(tile * (self.factor - 1))
            case _:
                return Fraction(0)


@dataclass(frozen=True)
class PartialSpace:
    """The weak types of one redistribution problem.

    Attributes:
        shape: global shape, in elements.
        devices: number of devices.
        bound: largest tile allowed, in elements.
    """

    shape: tuple[int, ...]
    devices: int
    bound: int

    def local_size(self, state: State) -> int:
        """Elements of one tile."""
        return WeakSpace(self.shape, self.devices, self.bound).local_size(state.grid)

    def is_node(self, state: State) -> bool:
        """Whether a weak type exists and respects the memory bound."""
        if state.summands < 1 or self.devices % state.summands:
            return False
        return WeakSpace(self.shape, self.devices // state.summands, self.bound).is_node(state.grid)


def edges(space: PartialSpace, state: State, kinds: tuple[PartialKind, ...] = ORDER) -> Iterator[PartialEdge]:
    """Every weak collective of the given kinds that leaves a node, to nodes of the space.

    >>> space = PartialSpace((4,), 4, 4)
    >>> for edge in edges(space, State((1,), 2)):
    ...     print(edge.kind, edge.target)
    dynslice State(grid=(2,), summands=2)
    reduce_scatter State(grid=(2,), summands=1)
    all_reduce State(grid=(1,), summands=1)
    unreduce State(grid=(1,), summands=4)
    """
    grid, summands = state
    free = space.devices // summands // math.prod(grid)
    tiles = WeakSpace(space.shape, space.devices // summands, space.bound)
    for kind in kinds:
        if kind in ("dynslice", "alltoall", "allgather"):
            for edge in weak.edges(tiles, grid, (kind,)):
                yield PartialEdge(kind, state, State(edge.target, summands), edge.dim, edge.to, edge.factor)
        elif kind == "reduce_scatter":
            for i, count in enumerate(grid):
                for m in factors(math.gcd(summands, space.shape[i] // count)):
                    yield PartialEdge(kind, state, State(scaled(grid, i, m), summands // m), i, i, m)
        elif kind == "all_reduce":
            for m in factors(summands):
                yield PartialEdge(kind, state, State(grid, summands // m), None, None, m)
        else:
            for m in factors(free):
                yield PartialEdge(kind, state, State(grid, summands * m), None, None, m)
            for i, count in enumerate(grid):
                for m in factors(count):
                    after = State(divided(grid, i, m), summands * m)
                    if space.local_size(after) <= space.bound:
                        yield PartialEdge(kind, state, after, i, i, m)
