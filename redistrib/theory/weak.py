"""Weak types: types up to a renumbering of the devices (Section 5).

For a fixed global shape and number of devices, a weak type is the number of tiles along each dimension (Section 7.2).
This module calls it a grid. Every grid that passes `is_node` is the grid of a type over prime axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from redistrib.arith import divisors
from redistrib.cache import cached

Grid: TypeAlias = tuple[int, ...]
EdgeKind: TypeAlias = Literal["dynslice", "alltoall", "allgather"]


@dataclass(frozen=True)
class WeakSpace:
    """The weak types of a redistribution problem.

    Attributes:
        shape: global shape, in elements.
        devices: number of devices.
        bound: memory bound: the most elements of a tile.
    """

    shape: tuple[int, ...]
    devices: int
    bound: int

    def local_size(self, grid: Grid) -> int:
        """Elements of one tile."""
        return math.prod(self.shape) // math.prod(grid) if all(self.shape) else 0

    def is_node(self, grid: Grid) -> bool:
        """Whether a weak type exists and respects the memory bound.

        The counts divide the shape and their product divides the number of devices: exactly the grids of
        well-formed types over prime axes. Equivalently, in local sizes c: every c_i divides s_i, and
        the product of s divides N times the product of c.
        """
        return (
            all(count >= 1 and size % count == 0 for size, count in zip(self.shape, grid, strict=True))
            and self.devices % math.prod(grid) == 0
            and self.local_size(grid) <= self.bound
        )


class WeakEdge(NamedTuple):
    """A multi-axis weak collective (Definition 5.3 and Section 7.1).

    Attributes:
        kind: the collective.
        source, target: grids before and after.
        dim: the dimension sliced or gathered, or the dimension from which an all-to-all takes the factor.
        to: the dimension to which an all-to-all gives the factor; equal to `dim` for other collectives.
        factor: the product of the sizes of the axes that move.
        slow: the factor of `factor` that moves along axes of slow links; 1 if all links are equally fast.
    """

    kind: EdgeKind
    source: Grid
    target: Grid
    dim: int
    to: int
    factor: int
    slow: int = 1


def edges(
    space: WeakSpace, grid: Grid, kinds: tuple[EdgeKind, ...], dims: Sequence[int] | None = None
) -> Iterator[WeakEdge]:
    """The weak collectives of these kinds, on these dimensions, from a node to nodes of the space."""
    dims = range(len(grid)) if dims is None else dims
    free = space.devices // math.prod(grid)
    for kind in kinds:
        if kind == "dynslice":
            for i in dims:
                for m in factors(math.gcd(space.shape[i] // grid[i], free)):
                    yield WeakEdge(kind, grid, scaled(grid, i, m), i, i, m)
        elif kind == "alltoall":
            for i in dims:
                for j in dims:
                    if i != j:
                        for m in factors(math.gcd(grid[i], space.shape[j] // grid[j])):
                            yield WeakEdge(kind, grid, scaled(divided(grid, i, m), j, m), i, j, m)
        else:
            for i in dims:
                for m in factors(grid[i]):
                    target = divided(grid, i, m)
                    if space.local_size(target) <= space.bound:
                        yield WeakEdge(kind, grid, target, i, i, m)


@cached(4096)
def factors(n: int) -> tuple[int, ...]:
    """Divisors of n above 1, ascending."""
    return tuple(d for d in divisors(n) if d > 1)


def scaled(grid: Grid, dim: int, factor: int) -> Grid:
    """The grid with `factor` times as many tiles along one dimension."""
    return (*grid[:dim], grid[dim] * factor, *grid[dim + 1 :])


def divided(grid: Grid, dim: int, factor: int) -> Grid:
    """The grid with `factor` times fewer tiles along one dimension."""
    return (*grid[:dim], grid[dim] // factor, *grid[dim + 1 :])


def common(a: Grid, b: Grid) -> Grid:
    """The finest grid that both refine."""
    return tuple(math.gcd(x, y) for x, y in zip(a, b, strict=True))


def refined(a: Grid, b: Grid) -> Grid:
    """The coarsest grid that refines both."""
    return tuple(math.lcm(x, y) for x, y in zip(a, b, strict=True))


def nested(a: Grid, b: Grid) -> bool:
    """Whether in every dimension one count divides the other."""
    return all(x % y == 0 or y % x == 0 for x, y in zip(a, b, strict=True))


def multiples(grid: Grid, space: WeakSpace, dims: Sequence[int] | None = None) -> Iterator[Grid]:
    """The grids that slices on these dimensions reach from `grid`, without repetition; `grid` comes first."""
    dims = range(len(grid)) if dims is None else dims

    def grow(k: int, current: Grid, free: int) -> Iterator[Grid]:
        if k == len(dims):
            yield current
            return
        dim = dims[k]
        for m in divisors(math.gcd(space.shape[dim] // current[dim], free)):
            yield from grow(k + 1, scaled(current, dim, m), free // m)

    yield from grow(0, grid, space.devices // math.prod(grid))
