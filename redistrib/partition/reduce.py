"""Moves of summands, planned by hand, reduction first. Stands in until `synthesize` takes summands."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from redistrib.programs.partial import Reduction, partial_axes
from redistrib.programs.program import Value
from redistrib.theory.semantics import lower_bound


def reduction_for(value: Value, out: Value | None) -> Reduction:
    """How the summands of a value are best reduced on its way to a type over the same devices.

    Counts what the reduction receives and what the plan after it must receive at least; of equals, the one that needs
    no plan. Without a type to reach, what the reduction receives alone.
    """
    mesh = value.place.mesh
    axes = partial_axes(value.type)
    best: tuple[tuple[int, bool], Reduction] | None = None
    for dims in product((None, *range(value.type.rank)), repeat=len(axes)):
        candidate = Reduction(tuple(zip(axes, dims, strict=True)))
        between = replace(value, type=candidate.applied(value.type, mesh))
        if any(dim.tile * between_tiles(between, i) != dim.size for i, dim in enumerate(between.type.dims)):
            continue
        rest = 0 if out is None else sum(lower_bound(between.placement, out.placement))
        found = (sum(candidate.received(value.type, mesh)) + rest, out is not None and not between.means(out))
        if best is None or found < best[0]:
            best = (found, candidate)
    assert best is not None  # reducing along every axis, scattering along none, is always possible
    return best[1]


def between_tiles(value: Value, dim: int) -> int:
    """Number of tiles along a dimension."""
    tiles = 1
    for axis in value.type.dims[dim].axes:
        tiles *= value.place.mesh.axis(axis).size
    return tiles
