"""Split points of a dimension with unequal tiles: the first element of every tile, and the end of the last tile.

Split points rise from 0 to the size of the dimension. A tile between two equal split points is empty. A dimension with
tiles of one size has no split points, since the number of tiles determines them.
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
Cuts: TypeAlias = tuple[Splits | None, ...]  # one entry for each dimension; empty if all tiles are of one size


def split_points(dim: DimType, sizes: Sequence[int]) -> Splits | None:
    """The split points of a dimension; None if its tiles are of one size.

    Args:
        dim: a dimension of a well-formed type.
        sizes: sizes of the axes that cut it, minor to major.

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
        part, total = np.arange(parts), length[:, None]
        if dim.cut == "balanced":
            shorter, longer_parts = total // parts, total % parts
            first, length = part * shorter + np.minimum(part, longer_parts), shorter + (part < longer_parts)
        else:
            chunk = -(-total // parts)
            full_parts = total // np.maximum(chunk, 1)
            first = np.where(part <= full_parts, part * chunk, total)
            length = np.minimum(chunk, total - first)
        start, length = (start[:, None] + first).reshape(-1), length.reshape(-1)
    return _unless_even(np.append(start, dim.size))


def cuts_of(dist_type: DistType, mesh: Mesh) -> Cuts:
    """The split points of a well-formed type over a mesh."""
    if not dist_type.uneven:
        return ()
    cuts = [split_points(dim, [mesh.axis(name).size for name in dim.axes]) for dim in dist_type.dims]
    return tuple(cuts) if any(points is not None for points in cuts) else ()


def normal_cuts(cuts: Cuts, shape: Sequence[int], grid: Sequence[int]) -> Cuts:
    """The cuts of a placement in normal form: split points of equal tiles become None.

    Raises:
        PlacementError: there is not one entry for each dimension; or the split points of a dimension do not rise from 0
            to its size, or are not one more than its tiles.
    """
    if not cuts:
        return ()
    if len(cuts) != len(shape):
        raise PlacementError(f"a placement of rank {len(shape)} has split points for {len(cuts)} dimensions")
    normal = []
    for points, size, count in zip(cuts, shape, grid, strict=True):
        if points is not None:
            rising = all(a <= b for a, b in pairwise(points))
            if len(points) != count + 1 or points[0] != 0 or points[-1] != size or not rising:
                raise PlacementError(
                    f"the split points of {count} tiles of a dimension of {size} elements are {shown(points)}; "
                    f"they are {count + 1} numbers that rise from 0 to {size}"
                )
        normal.append(None if points is None else _unless_even(np.array(points, dtype=np.int64)))
    return tuple(normal) if any(points is not None for points in normal) else ()


def _unless_even(points: Int64) -> Splits | None:
    length = np.diff(points)
    return None if (length == length[0]).all() else tuple(points.tolist())
