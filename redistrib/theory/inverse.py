"""The type that means a placement: the inverse of `placement_of`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import Cut
from redistrib.lang.types import DimType, DistType
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.splits import Splits, split_points


def type_of(placement: Placement, mesh: Mesh) -> DistType | None:
    """The type that means a placement on a mesh, the inverse of `placement_of`; None if there is no such type.

    >>> mesh = Mesh.of("x=4,y=6")
    >>> print(type_of(placement_of(DistType.of("[3{x}12, 2{y}12]"), mesh), mesh))
    [3{x}12, 2{y}12]
    """
    if placement.devices < mesh.span:
        return None
    axes: list[list[tuple[int, str, int]]] = [[] for _ in placement.shape]  # per dimension: weight, axis name, size
    partial = []
    stride = mesh.size
    for axis in mesh.axes:
        stride //= axis.size
        if axis.size > 1:
            neighbour = mesh.devices[stride]  # the device with coordinate 1 on this axis, 0 on all others
            step = placement.index[neighbour]
            if not step.any() and placement.label[neighbour] != placement.label[mesh.devices[0]]:
                partial.append(axis.name)
            for i in np.flatnonzero(step).tolist():
                axes[i].append((int(step[i]), axis.name, axis.size))
    dims = []
    for size, count, points, dim_axes in zip(placement.shape, placement.grid, placement.points, axes, strict=True):
        if math.prod(extent for _, _, extent in dim_axes) != count:
            return None
        dim_axes.sort()
        dim = _dim_of(points, size, [name for _, name, _ in dim_axes], [extent for _, _, extent in dim_axes])
        if dim is None:
            return None
        dims.append(dim)
    names = [name for dim in dims for name in dim.axes] + partial
    if len(set(names)) < len(names) or bool(partial) != (placement.summands > 1):
        return None
    candidate = DistType(tuple(dims), tuple(partial), placement.reduction)
    if placement.devices > mesh.size and (candidate.partial or not candidate.rank):
        return None
    return candidate if placement_of(candidate, mesh, placement.devices) == placement else None


def _dim_of(points: Splits | None, size: int, axes: Sequence[str], sizes: Sequence[int]) -> DimType | None:
    """The dimension that axes of these sizes, minor to major, cut at these split points; None if there is none."""
    tiles = math.prod(sizes)
    if points is None:
        return DimType(size // tiles, tuple(axes), size)
    cuts: tuple[Cut, ...] = ("balanced", "chunk")
    candidates = [DimType(-(-size // tiles), tuple(axes), size, cut) for cut in cuts]
    if size < points[1] * tiles < 2**63:
        candidates.append(DimType(points[1], tuple(axes), size, padding=points[1] * tiles - size))
    return next((dim for dim in candidates if split_points(dim, sizes) == points), None)
