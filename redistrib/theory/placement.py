"""Placements: the tile that each device holds, and the lower bound on received elements.

The meaning of a type is its base offset map, from devices to tiles (Section 4.1, Figure 7a). A `Placement` is this map:
an array of tile indices on a grid. This module does not use the typing rules of collectives, so their soundness is a
statement about two independent definitions.

A placement has these fields:

==========================================  =========================================================================
field                                       meaning
==========================================  =========================================================================
`shape`                                     the global shape
`grid`, `cuts`                              the number of tiles along each dimension and, if they differ in size, their
                                            split points, such as `(0, 3, 5, 7)`: tile k lies between split points k and
                                            k + 1
`index`                                     the tile of each device; a row of -1 means *nowhere*: the device holds no
                                            tile
`summand`, `summands`, `reduction`          for partial sums: the summand of its tile that each device holds, the number
                                            of summands, and the operation that combines them; absent where tiles are
                                            parts of the array itself
==========================================  =========================================================================

The common case has equal tiles, a tile on every device, and no partial sums; the other fields add no work to it. Tiles
of unequal size are never partial sums.

The box of a device that holds no tile is empty. Every device holds a tile if tiles are partial sums, or if the array
has rank 0, because an index without columns cannot contain -1.

The number of a summand is only a name for steps and messages. Two placements are equal iff every device holds the same
tile in both, and any two holders of a tile hold the same summand in one iff they do in the other. `stacked` makes the
summands a dimension of the array, of which every device holds one slab. Gathering this dimension and adding along it is
the reduction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from redistrib.arith import Int64 as Int64
from redistrib.arith import distinct_rows, from_digits
from redistrib.cache import cached
from redistrib.errors import PlacementError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import REDUCTIONS, Reduction
from redistrib.lang.types import DistType
from redistrib.theory import splits
from redistrib.theory.boxes import Box, Boxes
from redistrib.theory.splits import Cuts


@dataclass(frozen=True, eq=False)
class Placement:
    """The tile of a global array that each device holds.

    Attributes:
        shape: global shape, in elements.
        grid: number of tiles along each dimension; it divides `shape` unless there are split points.
        index: `[devices, rank]` tile indices, `0 <= index[d, i] < grid[i]`, or a row of -1; read-only. Row `d` belongs
            to device number `d`.
        summand: `[devices]`, `0 <= summand[d] < summands`: the summand of its tile that each device holds; read-only.
            None unless tiles are partial sums; then `summands` is 1 and `reduction` is None too.
        summands: number of summands of every element.
        reduction: the operation that combines the summands: "sum", "max" or "min".
        cuts: for each dimension the split points of its tiles, or None if they are of one size; empty if all tiles are.

    Raises:
        PlacementError: the fields do not fit together.
    """

    shape: tuple[int, ...]
    grid: tuple[int, ...]
    index: Int64
    summand: Int64 | None = None
    summands: int = 1
    reduction: Reduction | None = None
    cuts: Cuts = ()

    def __post_init__(self) -> None:
        index = np.asarray(self.index, dtype=np.int64)
        if index.ndim != 2 or index.shape[1] != len(self.shape) or len(self.grid) != len(self.shape):
            raise PlacementError(
                f"a placement of rank {len(self.shape)} needs one grid entry and one index column per dimension, "
                f"got grid {self.grid} and index of shape {index.shape}"
            )
        object.__setattr__(self, "cuts", splits.normal_cuts(self.cuts, self.shape, self.grid))
        for size, count, points in zip(self.shape, self.grid, self.points, strict=True):
            if count < 1 or (points is None and size % count):
                raise PlacementError(f"{count} tiles do not divide a dimension of {size} elements")
        if index.size and (index.max(axis=0) >= self.grid).any():
            raise PlacementError(f"a tile index lies outside the grid {self.grid}")
        if index.size and index.min() < 0 and (index != -1)[(index < 0).any(axis=1)].any():
            raise PlacementError(
                f"a tile index lies outside the grid {self.grid}; a device that holds nothing has -1 in every dimension"
            )
        if index.flags.writeable:
            index = index.copy()
            index.flags.writeable = False
        object.__setattr__(self, "index", index)
        if self.summand is not None or self.summands != 1 or self.reduction is not None:
            self._check_summands()

    def _check_summands(self) -> None:
        count = self.summands
        # np.array copies, so no caller can write to it
        summand = np.array(np.zeros(self.devices) if self.summand is None else self.summand, dtype=np.int64)
        if summand.shape != (self.devices,) or not 1 <= count <= max(1, self.devices):
            raise PlacementError(
                f"a placement of {self.devices} devices names one partial sum for each, of at most as many, "
                f"got {shown(count)} partial sums and numbers of shape {summand.shape}"
            )
        if count > 1 and self.cuts:
            raise PlacementError(
                f"a placement of {count} partial sums has tiles of unequal size; partial sums are of one size"
            )
        if count > 1 and self.nowhere.any():
            raise PlacementError(f"a placement of {count} partial sums leaves some devices without any; all hold one")
        if summand.size and (summand.min() < 0 or summand.max() >= count):
            raise PlacementError(f"the number of a partial sum lies outside 0 to {count - 1}")
        if self.reduction not in REDUCTIONS and (count > 1 or self.reduction is not None):
            raise PlacementError(
                f"{count} partial sums are reduced by {shown(self.reduction)}, not by one of {REDUCTIONS}"
            )
        summand.flags.writeable = False
        object.__setattr__(self, "summand", summand if count > 1 else None)
        object.__setattr__(self, "reduction", self.reduction if count > 1 else None)

    @classmethod
    def unchecked(cls, shape: tuple[int, ...], grid: tuple[int, ...], index: Int64, cuts: Cuts = ()) -> Placement:
        """A placement without checks, for fields that are correct by construction; `index` becomes read-only."""
        placement = object.__new__(cls)
        index.flags.writeable = False
        for name, value in (("shape", shape), ("grid", grid), ("index", index), ("cuts", cuts)):
            object.__setattr__(placement, name, value)
        return placement

    def __eq__(self, other: object) -> bool:
        """Whether every device holds the same tile in both placements and the same summand, up to summand numbers."""
        if self is other:
            return True
        if not isinstance(other, Placement):
            return NotImplemented
        return (
            self.shape == other.shape
            and self.grid == other.grid
            and self.cuts == other.cuts
            and np.array_equal(self.index, other.index)
            and self.summands == other.summands
            and self.reduction == other.reduction
            and (self.summands == 1 or np.array_equal(self.ranked, other.ranked))
        )

    def __hash__(self) -> int:
        whole = (self.shape, self.grid, self.index.tobytes())
        return hash(whole) if self.summands == 1 else hash((*whole, self.reduction, self.ranked.tobytes()))

    @cached_property
    def ranked(self) -> Int64:
        """`[devices]` summand numbers in a normal form: in every tile, summands are numbered by their first holder."""
        tile = distinct_rows(self.index).inverse
        _, first, pair = np.unique(tile * self.summands + self.label, return_index=True, return_inverse=True)
        order = np.lexsort((first, tile[first]))  # pairs of a tile and a summand: tile by tile, by first holder
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        lowest = np.full(int(tile.max(initial=0)) + 1, len(order), dtype=np.int64)
        np.minimum.at(lowest, tile[first], rank)
        result: Int64 = rank[pair] - lowest[tile]
        return result

    @property
    def partial(self) -> tuple[Int64 | None, int, Reduction | None]:
        """The fields `summand`, `summands` and `reduction`."""
        return self.summand, self.summands, self.reduction

    @property
    def label(self) -> Int64:
        """`[devices]` number of the summand that each device holds; zeros unless tiles are partial sums."""
        return np.zeros(self.devices, dtype=np.int64) if self.summand is None else self.summand

    def renumbered(self, label: npt.ArrayLike) -> Placement:
        """The same placement with other summand numbers, `label`, `[devices]`.

        Raises:
            PlacementError: two holders of a tile have the same number in one placement only.
        """
        placement = Placement(self.shape, self.grid, self.index, np.asarray(label), self.summands, self.reduction)
        if placement != self:
            raise PlacementError("the new numbers do not tell apart the partial sums that the old ones do")
        return placement

    def stacked(self, height: int | None = None) -> Placement:
        """The placement of the stack of partial sums, `[height, *shape]`, whose first dimension has `summands` slabs.

        Args:
            height: partial sums in the stack, a multiple of `summands`; by default `summands`.

        >>> mesh = Mesh.of("x=2,y=2")
        >>> stack = placement_of(DistType.of("[1{x}2] sum{y}"), mesh).stacked()
        >>> stack.shape, stack.grid, stack.index.tolist()
        ((2, 2), (2, 2), [[0, 0], [1, 0], [0, 1], [1, 1]])
        """
        index = np.concatenate([self.label[:, None], self.index], axis=1)
        height = self.summands if height is None else height
        return Placement.unchecked((height, *self.shape), (self.summands, *self.grid), index)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return int(self.index.shape[0])

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @cached_property
    def nowhere(self) -> npt.NDArray[np.bool_]:
        """`[devices]` whether a device holds no tile."""
        mask: npt.NDArray[np.bool_] = self.index[:, 0] < 0 if self.rank else np.zeros(self.devices, dtype=np.bool_)
        return mask

    @cached_property
    def holders(self) -> Int64:
        """The devices that hold a tile, ascending."""
        return np.flatnonzero(~self.nowhere)

    @property
    def points(self) -> Cuts:
        """For each dimension the split points of its tiles, or None if they are of one size."""
        return self.cuts or (None,) * self.rank

    @cached_property
    def tile(self) -> tuple[int, ...]:
        """Shape of the largest tile, in elements."""
        return tuple(
            size // count if points is None else max(b - a for a, b in pairwise(points))
            for size, count, points in zip(self.shape, self.grid, self.points, strict=True)
        )

    @cached_property
    def tile_size(self) -> int:
        """Elements of the largest tile (localsize of Figure 6); a Python integer, since it may exceed 64 bits."""
        return math.prod(self.tile)

    @cached_property
    def tiles(self) -> int:
        """Number of distinct tiles of the grid."""
        return math.prod(self.grid)

    @cached_property
    def start(self) -> Int64:
        """`[devices, rank]` base offsets in elements; read-only. Offsets of devices that hold no tile are negative."""
        start = self.edges(self.index)
        if self.cuts:
            start[self.nowhere] = -1
        start.flags.writeable = False
        return start

    def edges(self, index: Int64) -> Int64:
        """First elements of tiles, from tile indices `[..., rank]`; the index behind the last tile gives the size."""
        edges: Int64 = index * np.array(self.tile, dtype=np.int64)
        for i, points in enumerate(self.cuts):
            if points is not None:
                edges[..., i] = np.array(points, dtype=np.int64)[index[..., i]]
        return edges

    @cached_property
    def boxes(self) -> Boxes:
        """The box of the array that each device holds; row `d` belongs to device number `d`."""
        if self.cuts:
            size = self.edges(self.index + 1) - self.start
        else:
            size = np.broadcast_to(np.array(self.tile, dtype=np.int64), self.start.shape)
        return Boxes(self.start, np.where(self.nowhere[:, None], 0, size) if self.nowhere.any() else size)

    def box(self, device: int) -> Box:
        """The box of the array that one device holds."""
        return self.boxes.row(device)

    @cached_property
    def number(self) -> Int64:
        """`[devices]` row-major tile numbers; -1 where a device holds no tile.

        >>> Placement((6, 4), (3, 2), np.array([[2, 0], [-1, -1], [0, 1]])).number.tolist()
        [4, -1, 1]

        Raises:
            PlacementError: the grid has more tiles than 64 bits can number.
        """
        if self.tiles >= 2**63:
            raise PlacementError(f"the {self.tiles} tiles of the grid {self.grid} cannot be numbered in 64 bits")
        number = number_of(self.index, self.grid)
        return np.where(self.nowhere, -1, number) if self.nowhere.any() else number

    def is_uniform(self) -> bool:
        """Whether all tiles of the grid have equally many holders, as Lemma 5.1 assumes."""
        if len(self.holders) % self.tiles:
            return False
        counts = np.bincount(self.number[self.holders], minlength=self.tiles)
        return bool((counts * self.tiles == len(self.holders)).all())

    def coarse(self, grid: tuple[int, ...]) -> Int64:
        """`[devices, rank]` tile indices on a coarser `grid`: each is the coarse tile around the tile of a device.

        All tiles are of one size, and `grid` divides the grid of the placement.
        """
        factor = [fine // count for fine, count in zip(self.grid, grid, strict=True)]
        return self.index // np.array(factor, dtype=np.int64)


def number_of(index: Int64, grid: tuple[int, ...]) -> Int64:
    """Row-major tile numbers on `grid`, from tile indices `[..., rank]`."""
    number: Int64 = index @ _strides(grid)
    return number


@cached(1 << 12)
def _strides(grid: tuple[int, ...]) -> Int64:
    """`[rank]` row-major strides of a grid."""
    return np.array([math.prod(grid[i + 1 :]) for i in range(len(grid))], dtype=np.int64)


@cached(8)
def placement_of(dist_type: DistType, mesh: Mesh, devices: int | None = None) -> Placement:
    """T[[type]] of Figure 7a: the placement that a type means on a mesh.

    The axes of a dimension are read minor to major: the tile index grows by one along the first axis. The partial axes
    number the summands in the same way.

    Args:
        dist_type: the type.
        mesh: the mesh; devices outside it hold no tile.
        devices: number of devices, at least `mesh.span`, which is the default.

    Raises:
        TypeFormError: the type is not well-formed over the mesh.
        PlacementError: a device is outside the mesh, and tiles are partial sums or have rank 0.

    >>> placement_of(DistType.of("[2{x}4]"), Mesh.of("x=2", (1, 2)), 4).index.tolist()
    [[-1], [0], [1], [-1]]
    """
    dist_type.check(mesh)
    column = {axis.name: k for k, axis in enumerate(mesh.axes)}
    weights = np.zeros((len(mesh.axes), dist_type.rank), dtype=np.int64)
    grid = []
    for i, dim in enumerate(dist_type.dims):
        tiles = 1
        for name in dim.axes:
            weights[column[name], i] = tiles
            tiles *= mesh.axes[column[name]].size
        grid.append(tiles)
    cuts = splits.cuts_of(dist_type, mesh)
    count = mesh.span if devices is None else devices
    index = mesh.coordinates @ weights
    if count > mesh.size:
        index = _with_nowhere(dist_type, mesh, index, count)
    if not dist_type.partial:
        return Placement.unchecked(dist_type.global_shape, tuple(grid), index, cuts)
    columns = [column[name] for name in dist_type.partial]
    sizes = [mesh.axes[k].size for k in columns]
    summand = from_digits(mesh.coordinates[:, columns], sizes)
    return Placement(dist_type.global_shape, tuple(grid), index, summand, math.prod(sizes), dist_type.reduction)


def placement_of_tiles(shape: tuple[int, ...], tiles: Sequence[Box]) -> Placement:
    """The placement of an array by the tile of each device; all are of the first one's size."""
    size = np.maximum(np.array(tiles[0].size, dtype=np.int64), 1)
    start = np.array([box.start for box in tiles], dtype=np.int64).reshape(len(tiles), len(shape))
    return Placement(shape, tuple(np.maximum(np.array(shape, dtype=np.int64) // size, 1).tolist()), start // size)


def _with_nowhere(dist_type: DistType, mesh: Mesh, index: Int64, devices: int) -> Int64:
    """`[devices, rank]` tile indices: those of the mesh's devices, and -1 for all others."""
    if dist_type.partial or not dist_type.rank:
        raise PlacementError(
            f"the type {dist_type} on {mesh.size} of {devices} devices leaves the others without data, as only types "
            "of rank 1 or more can, whose tiles are no partial sums"
        )
    rows = np.full((devices, dist_type.rank), -1, dtype=np.int64)
    rows[list(mesh.devices)] = index[list(mesh.devices)]
    return rows


def lower_bound(source: Placement, target: Placement) -> list[int]:
    """For each device, the elements of its target tile that are not in its source tile.

    No plan receives less, because these elements can only come from other devices. The result is exact, one integer per
    device, and 0 for a device that holds no tile of the target.
    """
    overlaps = target.boxes.meet(source.boxes).volumes()
    return [tile - overlap for tile, overlap in zip(target.boxes.volumes(), overlaps, strict=True)]
