"""Plans for moves of summands, made by hand: reduced first, then moved. Stands in until `synthesize` takes summands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from redistrib.arith import from_digits
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllReduce, ReduceScatter, Step
from redistrib.plans.verify import verify
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.semantics import Int64, Placement, lower_bound, placement_of


def reduce_plan(source: DistType, mesh: Mesh, target: DistType, target_mesh: Mesh, dtype: str) -> Plan:
    """A verified plan from summands to whole tiles, the least received by what its steps are known to receive."""
    after = placement_of(target, target_mesh)

    def key(steps: tuple[Step, ...]) -> tuple[int, bool]:
        last = steps[-1].after
        return sum(step.received_total() for step in steps) + sum(lower_bound(last, after)), last != after

    between, steps = min(_reductions(source, mesh), key=lambda found: key(found[1]))
    if steps[-1].after != after:
        steps += synthesize(between, mesh, target, target_mesh, dtype=dtype, model="exact").steps
    cost = sum(step.received_total() for step in steps)
    size = itemsize_of(dtype)
    return verify(Plan(source, mesh, target, target_mesh, dtype, size, steps, "by hand", "exact", cost, "elements"))


def reduced(source: DistType, mesh: Mesh) -> DistType:
    """The type of whole tiles that summands are reduced to with the least received."""
    return min(_reductions(source, mesh), key=lambda found: sum(step.received_total() for step in found[1]))[0]


def _reductions(source: DistType, mesh: Mesh) -> Iterator[tuple[DistType, tuple[Step, ...]]]:
    """Every way to reduce: for each axis a dimension that it cuts afterwards, or none."""
    for choice in product((None, *range(source.rank)), repeat=len(source.partial)):
        scattered = [axis for axis, i in zip(source.partial, choice, strict=True) if i is not None]
        rest = tuple(axis for axis in source.partial if axis not in scattered)
        dims = list(source.dims)
        for axis, i in zip(source.partial, choice, strict=True):
            if i is not None:
                tile, uneven = divmod(dims[i].tile, mesh.axis(axis).size)
                if uneven:
                    break
                dims[i] = DimType(tile, (axis, *dims[i].axes), dims[i].size)
        else:
            between = DistType(tuple(dims), rest, source.reduction if rest else None)
            yield DistType(tuple(dims)), tuple(_steps(source, between, mesh, scattered, rest))


def _steps(
    source: DistType, between: DistType, mesh: Mesh, scattered: Sequence[str], rest: Sequence[str]
) -> Iterator[Step]:
    middle = placement_of(between, mesh)
    if scattered:
        yield ReduceScatter(
            _renumbered(source, mesh, [*scattered, *rest]), middle, _groups(mesh, scattered, middle.number)
        )
    if rest:
        yield AllReduce(middle, placement_of(DistType(between.dims), mesh), _groups(mesh, rest, middle.label))


def _renumbered(source: DistType, mesh: Mesh, axes: Sequence[str]) -> Placement:
    """The placement of the source, its summands numbered by other axes first: a group adds consecutive ones."""
    columns = [mesh.names.index(axis) for axis in axes]
    label = from_digits(mesh.coordinates[:, columns], [mesh.shape[k] for k in columns])
    return replace(placement_of(source, mesh), summand=label)


def _groups(mesh: Mesh, axes: Sequence[str], order: Int64) -> Int64:
    """The devices that differ along the axes only, in the order of a number for each."""
    others = [k for k, name in enumerate(mesh.names) if name not in axes]
    members = math.prod(mesh.axis(axis).size for axis in axes)
    columns = mesh.coordinates[:, others].T
    return np.lexsort((order, *columns)).reshape(-1, members)
