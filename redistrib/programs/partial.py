"""Types whose tiles are summands along some axes: all that programs know of them stands here.

A partial type says that what a device holds is one of several summands, which the reduction makes one array of. It is
a distributed type with the axes that number the summands, written after it: `[4{x}16, 8] sum{y}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.errors import AxisReusedError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.theory.semantics import placement_of

COMBINED = {"sum": np.add, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class PartialType(DistType):
    """A distributed type of summands.

    Attributes:
        partial: the axes that number the summands, sorted by name.
        reduction: `"sum"`, `"max"` or `"min"`.

    >>> print(summands(DistType.of("[4{x}16, 8]"), ("y",), "sum"))
    [4{x}16, 8] sum{y}
    """

    partial: tuple[str, ...] = ()
    reduction: str = "sum"

    def __str__(self) -> str:
        return f"{DistType(self.dims)} {self.reduction}{{{','.join(self.partial)}}}"

    def check(self, mesh: Mesh) -> None:
        """As for every type; and no axis numbers summands that cuts a dimension, or twice."""
        super().check(mesh)
        seen = set(self.axes)
        for name in self.partial:
            mesh.axis(name)
            if name in seen:
                raise AxisReusedError(name, f"type {self}")
            seen.add(name)


def summands(dist_type: DistType, axes: Sequence[str], reduction: str) -> DistType:
    """The type whose tiles are summands along `axes`; the type itself for no axes."""
    return PartialType(dist_type.dims, tuple(sorted(axes)), reduction) if axes else whole(dist_type)


def whole(dist_type: DistType) -> DistType:
    """The type once its summands are reduced, every device of them holding the result."""
    return DistType(dist_type.dims)


def partial_axes(dist_type: DistType) -> tuple[str, ...]:
    """The axes that number the summands; none of a type that has none."""
    return dist_type.partial if isinstance(dist_type, PartialType) else ()


def reduction_of(dist_type: DistType) -> str | None:
    """How the summands are combined; None of a type that has none."""
    return dist_type.reduction if isinstance(dist_type, PartialType) else None


def summand_of(dist_type: DistType, mesh: Mesh) -> npt.NDArray[np.int64]:
    """`[devices]` number of the summand that each device holds; the last axis counts fastest."""
    number = np.zeros(mesh.size, dtype=np.int64)
    for name in partial_axes(dist_type):
        column = mesh.names.index(name)
        number = number * mesh.shape[column] + mesh.coordinates[:, column]
    return number


def summand_count(dist_type: DistType, mesh: Mesh) -> int:
    """Number of summands; 1 of a type that has none."""
    return math.prod(mesh.axis(name).size for name in partial_axes(dist_type))


@dataclass(frozen=True)
class Reduction:
    """Summands become one array: a reduce-scatter along some axes, an all-reduce along the others.

    Attributes:
        scattered: for every axis that numbers summands the dimension that it cuts afterwards, as its most minor axis;
            None where every device ends with the whole tile.
    """

    scattered: tuple[tuple[str, int | None], ...]

    def applied(self, dist_type: DistType, mesh: Mesh) -> DistType:
        """The type afterwards."""
        dims = list(dist_type.dims)
        for axis, i in self.scattered:
            if i is not None:
                dims[i] = DimType(dims[i].tile // mesh.axis(axis).size, (axis, *dims[i].axes), dims[i].size)
        return DistType(tuple(dims))

    def received(self, dist_type: DistType, mesh: Mesh) -> list[int]:
        """Elements that each device receives, by its number in the mesh.

        An all-reduce of a tile that its members cannot share out evenly goes through the first of them.
        """
        apart = math.prod(mesh.axis(axis).size for axis, i in self.scattered if i is not None)
        rest = math.prod(mesh.axis(axis).size for axis, i in self.scattered if i is None)
        tile = dist_type.local_size
        scattered = (apart - 1) * (tile // apart)
        tile //= apart
        if tile % rest == 0:
            return [scattered + 2 * (rest - 1) * (tile // rest)] * mesh.size
        columns = [mesh.names.index(axis) for axis, i in self.scattered if i is None]
        first = (mesh.coordinates[:, columns] == 0).all(axis=1).tolist()
        return [scattered + ((rest - 1) * tile if leads else tile) for leads in first]

    def run(self, dist_type: DistType, mesh: Mesh, tiles: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Carry it out: the tile of every device afterwards, by its number in the mesh."""
        before = placement_of(whole(dist_type), mesh)
        after = placement_of(self.applied(dist_type, mesh), mesh)
        totals = combined(dist_type, mesh, tiles)
        result = []
        for d, total in enumerate(totals):
            offset = (after.start[d] - before.start[d]).tolist()
            window = tuple(slice(o, o + n) for o, n in zip(offset, after.tile, strict=True))
            result.append(np.array(total[window]))
        return result


def combined(dist_type: DistType, mesh: Mesh, tiles: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """For every device the reduction of its tile over all summands."""
    rest = [k for k, name in enumerate(mesh.names) if name not in partial_axes(dist_type)]
    add = COMBINED[reduction_of(dist_type) or "sum"]
    totals: dict[tuple[int, ...], npt.NDArray[Any]] = {}
    groups = [tuple(row) for row in mesh.coordinates[:, rest].tolist()]
    for group, tile in zip(groups, tiles, strict=True):
        totals[group] = add(totals[group], tile) if group in totals else np.array(tile)
    return [totals[group] for group in groups]
