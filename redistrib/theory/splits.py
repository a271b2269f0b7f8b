"""Split points: where the tiles of a dimension begin that are of unequal size, and where the last one ends.

They rise from 0 to the size of the dimension; two that are equal enclose a tile without elements. A dimension whose
tiles are all of one size has none: its number of tiles says it all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from redistrib.arith import Int64
from redistrib.errors import PlacementError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType

Splits: TypeAlias = tuple[int, ...]
Cuts: TypeAlias = tuple[Splits | None, ...]  # by dimension; empty where all tiles of an array are of one size


def split_points(dim: DimType, sizes: Sequence[int]) -> Splits | None:
    """Where the tiles of a dimension begin and end; None where they are of one size.

    Args:
        dim: the dimension of a well-formed type.
        sizes: of the axes that cut it, minor to major.

    >>> split_points(DimType(4, ("x",), 14, "balanced"), [4]), split_points(DimType(4, ("x",), 14, "chunk"), [4])
    ((0, 4, 8, 11, 14), (0, 4, 8, 12, 14))
    >>> split_points(DimType(2, ("x", "y"), 6, "balanced"), [2, 2])
    (0, 2, 3, 5, 6)
    >>> split_points(DimType(4, ("x",), 6, padding=10), [4])
    (0, 4, 6, 6, 6)
    """
    if not dim.uneven:
        return None
    if dim.padding:
        tiles = np.arange(math.prod(sizes) + 1)
        return _unless_even(np.where(tiles <= dim.size // max(1, dim.tile), tiles * dim.tile, dim.size))
    start, length = np.zeros(1, dtype=np.int64), np.array([dim.size], dtype=np.int64)
    for parts in reversed(sizes):
        part, whole = np.arange(parts), length[:, None]
        if dim.cut == "balanced":
            least, longer = whole // parts, whole % parts
            first, length = part * least + np.minimum(part, longer), least + (part < longer)
        else:
            chunk = -(-whole // parts)
            full = whole // np.maximum(chunk, 1)
            first = np.where(part <= full, part * chunk, whole)
            length = np.minimum(chunk, whole - first)
        start, length = (start[:, None] + first).reshape(-1), length.reshape(-1)
    return _unless_even(np.append(start, dim.size))


def cuts_of(dist_type: DistType, mesh: Mesh) -> Cuts:
    """The split points of a well-formed type over a mesh."""
    if not dist_type.uneven:
        return ()
    cuts = [split_points(dim, [mesh.axis(name).size for name in dim.axes]) for dim in dist_type.dims]
    return tuple(cuts) if any(points is not None for points in cuts) else ()


def checked(cuts: Cuts, shape: Sequence[int], grid: Sequence[int]) -> Cuts:
    """The cuts of a placement, none of those that make tiles of one size.

    Raises:
        PlacementError: unless there is an entry for each dimension, and split points rise from 0 to its size and are
            one more than its tiles.
    """
    if not cuts:
        return ()
    if len(cuts) != len(shape):
        raise PlacementError(f"a placement of rank {len(shape)} has split points for {len(cuts)} dimensions")
    found = []
    for points, size, count in zip(cuts, shape, grid, strict=True):
        if points is not None:
            rising = all(a <= b for a, b in pairwise(points))
            if len(points) != count + 1 or points[0] != 0 or points[-1] != size or not rising:
                raise PlacementError(
                    f"the split points of {count} tiles of a dimension of {size} elements are {shown(points)}; "
                    f"they are {count + 1} numbers that rise from 0 to {size}"
                )
        found.append(None if points is None else _unless_even(np.array(points, dtype=np.int64)))
    return tuple(found) if any(points is not None for points in found) else ()


def _unless_even(points: Int64) -> Splits | None:
    length = np.diff(points)
    return None if (length == length[0]).all() else tuple(points.tolist())
