"""Pairs of types to move between, enumerations of types, and a check of plans; nothing here needs Hypothesis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import Cut, Reduction
from redistrib.lang.types import DimType, DistType, as_even
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run, scatter
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.placement import Placement, placement_of


@dataclass(frozen=True)
class RedistributionCase:
    """A pair of types to move an array between.

    Attributes:
        source, target: types of one global shape.
        mesh: the mesh of the source type.
        target_mesh: the mesh of the target type, over the same devices.

    >>> mesh, cut = Mesh.of("x=2"), DistType.of("[2{x}4]")
    >>> RedistributionCase(cut, DistType.of("[4]"), mesh, mesh).plan().received
    (2, 2)
    """

    source: DistType
    target: DistType
    mesh: Mesh
    target_mesh: Mesh

    @property
    def before(self) -> Placement:
        """Where the data is."""
        return placement_of(self.source, self.mesh)

    @property
    def after(self) -> Placement:
        """Where the data is wanted."""
        return placement_of(self.target, self.target_mesh)

    def reversed(self) -> RedistributionCase:
        """The way back."""
        return RedistributionCase(self.target, self.source, self.target_mesh, self.mesh)

    def plan(self, algorithm: str = "best", model: str = "exact") -> Plan:
        """The plan that the synthesis finds."""
        return synthesize(self.source, self.mesh, self.target, self.target_mesh, algorithm=algorithm, model=model)

    def __str__(self) -> str:
        return f"{self.source} on {self.mesh!r} -> {self.target} on {self.target_mesh!r}"


def all_cuts(names: Sequence[str], rank: int) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Every way to let axes cut dimensions: for each dimension the axes that cut it, minor to major.

    >>> len(list(all_cuts("xyz", 3)))
    106
    """
    for used in range(len(names) + 1 if rank else 1):
        for order in itertools.permutations(names, used):
            for bars in itertools.combinations(range(used + rank - 1), rank - 1) if rank else [()]:
                edges = (-1, *bars, used + rank - 1)
                sizes = [b - a - 1 for a, b in itertools.pairwise(edges)] if rank else []
                ends = [0, *itertools.accumulate(sizes)]
                yield tuple(order[a:b] for a, b in itertools.pairwise(ends))


def all_types(mesh: Mesh, shape: Sequence[int]) -> Iterator[DistType]:
    """Every well-formed type of a global shape over a mesh.

    >>> for dist_type in all_types(Mesh.of("x=2"), (2, 3)):
    ...     print(dist_type)
    [2, 3]
    [1{x}2, 3]
    """
    for cut in all_cuts(mesh.names, len(shape)):
        if all(size % tiles_of(mesh, names) == 0 for size, names in zip(shape, cut, strict=True)):
            yield cut_type(mesh, shape, cut)


def all_partial_types(mesh: Mesh, shape: Sequence[int], reduction: Reduction = "sum") -> Iterator[DistType]:
    """Every well-formed type of a global shape over a mesh, each with every set of its free axes as partial axes.

    >>> for dist_type in all_partial_types(Mesh.of("x=2"), (2, 3)):
    ...     print(dist_type)
    [2, 3]
    [2, 3] sum{x}
    [1{x}2, 3]
    """
    for dist_type in all_types(mesh, shape):
        free = [name for name in mesh.names if name not in dist_type.axes]
        for count in range(len(free) + 1):
            for partial in itertools.combinations(free, count):
                yield replace(dist_type, partial=partial, reduction=reduction if partial else None)


def cut_type(
    mesh: Mesh, shape: Sequence[int], cut: Sequence[Sequence[str]], how: Sequence[Cut] | None = None
) -> DistType:
    """The type of a global shape whose dimensions are cut by the given axes, minor to major.

    Args:
        how: for each dimension how it is cut where the axes do not divide it.

    >>> print(cut_type(Mesh.of("x=2,y=3"), (12, 5), ["yx", ""]))
    [2{y,x}12, 5]
    """
    ways: Sequence[Cut] = how or ["even"] * len(shape)
    each = zip(shape, cut, ways, strict=True)
    dims = (DimType(-(-size // tiles_of(mesh, names)), tuple(names), size, way) for size, names, way in each)
    return as_even(DistType(tuple(dims)), mesh)


def tiles_of(mesh: Mesh, names: Sequence[str]) -> int:
    """Into how many tiles some axes cut a dimension."""
    return math.prod(mesh.axis(name).size for name in names)


def numbered(shape: Sequence[int]) -> npt.NDArray[np.int64]:
    """An array in which every element is different.

    >>> numbered((2, 2)).tolist()
    [[0, 1], [2, 3]]
    """
    return np.arange(math.prod(shape), dtype=np.int64).reshape(tuple(shape))


def is_exact(plan: Plan) -> bool:
    """Whether the NumPy reference, run on an array of different elements, leaves every device with its target tile.

    >>> import redistrib as rd
    >>> is_exact(rd.synthesize("[2{x}4]", "[4]", "x=2"))
    True
    """
    whole = numbered(plan.shape)
    tiles = run(plan, scatter(whole, plan.before))
    return all(np.array_equal(got, want) for got, want in zip(tiles, scatter(whole, plan.after), strict=True))
