"""What a type means: base offset maps as placements, and what no plan can do without.

The meaning of a type is which tile each device holds (Section 4.1, Figure 7a). A `Placement` records it
as an integer array of tile indices on a grid. This module knows nothing of the typing rules in `rules`: soundness
is a statement between the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from redistrib.arith import Int64 as Int64
from redistrib.errors import PlacementError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.theory.boxes import Box, Boxes


@dataclass(frozen=True, eq=False)
class Placement:
    """Which tile of a global array each device holds.

    Attributes:
        shape: global shape, in elements.
        grid: number of tiles along each dimension; divides `shape`.
        index: `[devices, rank]` tile indices, `0 <= index[d, i] < grid[i]`; read-only. Row `d` belongs to
            device number `d`, whatever mesh the devices form.
    """

    shape: tuple[int, ...]
    grid: tuple[int, ...]
    index: Int64

    def __post_init__(self) -> None:
        index = np.asarray(self.index, dtype=np.int64)
        if index.ndim != 2 or index.shape[1] != len(self.shape) or len(self.grid) != len(self.shape):
            raise PlacementError(
                f"a placement of rank {len(self.shape)} needs one grid entry and one index column per dimension, "
                f"got grid {self.grid} and index of shape {index.shape}"
            )
        for size, count in zip(self.shape, self.grid, strict=True):
            if count < 1 or size % count:
                raise PlacementError(f"{count} tiles do not divide a dimension of {size} elements")
        if index.size and (index.min() < 0 or (index.max(axis=0) >= self.grid).any()):
            raise PlacementError(f"a tile index lies outside the grid {self.grid}")
        if index.flags.writeable:
            index = index.copy()
            index.flags.writeable = False
        object.__setattr__(self, "index", index)

    @classmethod
    def unchecked(cls, shape: tuple[int, ...], grid: tuple[int, ...], index: Int64) -> Placement:
        """A placement that is right by construction, from an array that nobody else has."""
        placement = object.__new__(cls)
        index.flags.writeable = False
        for name, value in (("shape", shape), ("grid", grid), ("index", index)):
            object.__setattr__(placement, name, value)
        return placement

    def __eq__(self, other: object) -> bool:
        """Two placements are equal iff every device holds the same box of the same array."""
        if self is other:
            return True
        if not isinstance(other, Placement):
            return NotImplemented
        return self.shape == other.shape and self.grid == other.grid and np.array_equal(self.index, other.index)

    def __hash__(self) -> int:
        return hash((self.shape, self.grid, self.index.tobytes()))

    @property
    def devices(self) -> int:
        """Number of devices."""
        return int(self.index.shape[0])

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def tile(self) -> tuple[int, ...]:
        """Shape of one tile, in elements."""
        return tuple(size // count for size, count in zip(self.shape, self.grid, strict=True))

    @cached_property
    def tile_size(self) -> int:
        """Elements in one tile (localsize of Figure 6); a Python integer, since it may exceed 64 bits."""
        return math.prod(self.tile)

    @cached_property
    def tiles(self) -> int:
        """Number of distinct tiles of the grid."""
        return math.prod(self.grid)

    @cached_property
    def start(self) -> Int64:
        """`[devices, rank]` base offsets in elements: the base offset map itself; read-only."""
        start = self.index * np.array(self.tile, dtype=np.int64)
        start.flags.writeable = False
        return start

    @cached_property
    def boxes(self) -> Boxes:
        """The box of the array that each device holds, by device number."""
        return Boxes(self.start, np.broadcast_to(np.array(self.tile, dtype=np.int64), self.start.shape))

    def box(self, device: int) -> Box:
        """The box of the array that one device holds."""
        return self.boxes.row(device)

    @cached_property
    def number(self) -> Int64:
        """`[devices]` row-major tile numbers.

        Raises:
            PlacementError: if the grid has too many tiles to number in 64 bits.
        """
        if self.tiles >= 2**63:
            raise PlacementError(f"the {self.tiles} tiles of the grid {self.grid} cannot be numbered in 64 bits")
        return number_of(self.index, self.grid)

    def is_uniform(self) -> bool:
        """Whether every tile of the grid is held by equally many devices (needed by Lemma 5.1)."""
        if self.devices % self.tiles:
            return False
        counts = np.bincount(self.number, minlength=self.tiles)
        return bool((counts == self.devices // self.tiles).all())

    def coarse(self, grid: tuple[int, ...]) -> Int64:
        """`[devices, rank]` index of the cell of the coarser `grid` that holds each device's tile."""
        factor = [fine // count for fine, count in zip(self.grid, grid, strict=True)]
        return self.index // np.array(factor, dtype=np.int64)


def number_of(index: Int64, grid: tuple[int, ...]) -> Int64:
    """Row-major numbers of index rows `[..., rank]` on `grid`."""
    number: Int64 = index @ _strides(grid)
    return number


@lru_cache(maxsize=1 << 12)
def _strides(grid: tuple[int, ...]) -> Int64:
    """What one step along each dimension adds to a row-major number."""
    return np.array([math.prod(grid[i + 1 :]) for i in range(len(grid))], dtype=np.int64)


@lru_cache(maxsize=8)
def placement_of(dist_type: DistType, mesh: Mesh) -> Placement:
    """T[[type]] of Figure 7a: the placement a type means on a mesh.

    The axes of a dimension are read minor to major, so the first one advances the tile index by one.

    Raises:
        TypeFormError: if the type is not well-formed over the mesh.
    """
    dist_type.check(mesh)
    column = {axis.name: k for k, axis in enumerate(mesh.axes)}
    weights = np.zeros((len(mesh.axes), dist_type.rank), dtype=np.int64)
    grid = []
    for i, dim in enumerate(dist_type.dims):
        weight = 1
        for name in dim.axes:
            weights[column[name], i] = weight
            weight *= mesh.axes[column[name]].size
        grid.append(weight)
    index = mesh.coordinates @ weights
    return Placement.unchecked(dist_type.global_shape, tuple(grid), index)


def type_of(placement: Placement, mesh: Mesh) -> DistType | None:
    """A type that means a placement on a mesh, the inverse of `placement_of`; None where no type does.

    >>> mesh = Mesh.of("x=4,y=6")
    >>> print(type_of(placement_of(DistType.of("[3{x}12, 2{y}12]"), mesh), mesh))
    [3{x}12, 2{y}12]
    """
    if placement.devices != mesh.size:
        return None
    cuts: list[list[tuple[int, str, int]]] = [[] for _ in placement.shape]  # per dimension: weight, axis name, size
    stride = mesh.size
    for axis in mesh.axes:
        stride //= axis.size
        if axis.size > 1:
            step = placement.index[mesh.devices[stride]]  # the device with coordinate 1 on this axis, 0 on all others
            for i in np.flatnonzero(step).tolist():
                cuts[i].append((int(step[i]), axis.name, axis.size))
    dims = []
    for size, count, cut in zip(placement.shape, placement.grid, cuts, strict=True):
        if math.prod(extent for _, _, extent in cut) != count:
            return None
        dims.append(DimType(size // count, tuple(name for _, name, _ in sorted(cut)), size))
    candidate = DistType(tuple(dims))
    if len(set(candidate.axes)) < len(candidate.axes):
        return None
    return candidate if placement_of(candidate, mesh) == placement else None


def lower_bound(source: Placement, target: Placement) -> list[int]:
    """Elements each device must receive: those of its target tile that its source tile does not hold.

    No plan receives less (Section 1 of the design: information-theoretic bound), one integer per device.
    """
    kept = target.boxes.meet(source.boxes).volumes()
    return [needed - held for needed, held in zip(target.boxes.volumes(), kept, strict=True)]
