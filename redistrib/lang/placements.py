"""Conversion of DTensor's placements and meshes to distributed types. PyTorch is not imported.

A DTensor has one placement for each mesh dimension. Mesh dimensions that shard one tensor dimension cut it in their
order, the first one as the most major, each as `torch.chunk` does. `_StridedShard(dim, split_factor=n)` shards after
later mesh dimensions, which have n devices together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from redistrib.arith import Int64
from redistrib.errors import DTensorError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.notation import REDUCTIONS, Reduction
from redistrib.lang.types import DimType, DistType

PlacementKind: TypeAlias = Literal["replicate", "shard", "strided", "partial"]
# By the name of their class: PyTorch is not imported.
_KINDS: dict[str, PlacementKind] = {
    "Replicate": "replicate", "Shard": "shard", "_StridedShard": "strided", "Partial": "partial",
}  # fmt: skip


def is_device_mesh(value: Any) -> bool:
    """Whether a value is a `torch.distributed.device_mesh.DeviceMesh`."""
    return hasattr(value, "mesh_dim_names") and (hasattr(type(value), "mesh") or hasattr(value, "mesh"))


def are_placements(value: Any) -> bool:
    """Whether a value is a list or tuple of DTensor's placements, or one alone."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(are_placements, value))
    return is_placement(value)


def is_placement(value: Any) -> bool:
    """Whether a value is one of the four kinds of placements that a type can say."""
    return type(value).__name__ in _KINDS and hasattr(type(value), "is_shard")


def kind_of(placement: Any) -> PlacementKind:
    """Which of the four placements a placement is.

    Raises:
        DTensorError: if it is none of them.
    """
    kind = _KINDS.get(type(placement).__name__)
    if kind is None:
        raise DTensorError("placement", value=placement)
    return kind


# PyTorch makes the tensor of a device mesh anew at each look, which takes as long as planning a small leaf of a tree.
_GRIDS: WeakKeyDictionary[Any, tuple[tuple[int, ...], tuple[int, ...]]] = WeakKeyDictionary()


def _grid(device_mesh: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes of a device mesh, and its ranks, row-major."""
    grid = _GRIDS.get(device_mesh)
    if grid is None:
        ranks = device_mesh.mesh
        grid = tuple(map(int, ranks.shape)), tuple(map(int, ranks.flatten().tolist()))
        _GRIDS[device_mesh] = grid
    return grid


def sizes_of(device_mesh: Any) -> tuple[int, ...]:
    """The sizes of the dimensions of a device mesh, in devices."""
    return _grid(device_mesh)[0]


def ranks_of(device_mesh: Any) -> tuple[int, ...]:
    """The ranks of a device mesh, row-major."""
    return _grid(device_mesh)[1]


def from_device_mesh(device_mesh: Any, number: Mapping[int, int] | None = None) -> Mesh:
    """A mesh with the axes of a device mesh; dimensions without names are called dim0, dim1 and so on.

    Args:
        device_mesh: a `torch.distributed.device_mesh.DeviceMesh`.
        number: the device number of each rank; by default the rank itself.
    """
    sizes, ranks = _grid(device_mesh)
    names = device_mesh.mesh_dim_names or tuple(f"dim{k}" for k in range(len(sizes)))
    devices = ranks if number is None else tuple(number[rank] for rank in ranks)
    return Mesh(tuple(Axis(name, size) for name, size in zip(names, sizes, strict=True)), devices)


def from_placements(placements: Sequence[Any], shape: Sequence[int], mesh: Mesh) -> DistType:
    """The type of a tensor of global `shape` with a placement for each axis of a mesh.

    An average is a sum that is divided afterwards: its type says "sum".

    Args:
        placements: of `torch.distributed.tensor`: `Shard`, `Replicate`, `Partial` or `_StridedShard`.
        shape: global shape, in elements.
        mesh: the mesh.

    Raises:
        DTensorError: the placements have no meaning as a type.
        UnevenTypeError: tiles are of unequal size and partial sums too.
    """
    if len(placements) != len(mesh.axes):
        raise DTensorError("placements", count=len(placements), mesh=str(mesh), axes=len(mesh.axes))
    orders = shard_orders(placements, len(shape), mesh)
    dims = []
    for i, size in enumerate(shape):
        numbers = orders.get(i, ())
        sizes = [mesh.axes[k].size for k in numbers]
        uneven = size % math.prod(sizes) != 0
        if uneven and any(kind_of(placements[k]) == "strided" for k in numbers):
            _require_boxes(placements, i, numbers, size, mesh)
        names = tuple(mesh.axes[k].name for k in reversed(numbers))
        dims.append(DimType(-(-size // math.prod(sizes)), names, size, "chunk" if uneven else "even"))
    partial = tuple(mesh.axes[k].name for k, placement in enumerate(placements) if kind_of(placement) == "partial")
    return DistType(tuple(dims), partial, reduction_of(placements) if partial else None)


def reduction_of(placements: Sequence[Any]) -> Reduction:
    """The reduction of the partial placements among some; "sum" for averages.

    Raises:
        DTensorError: for another reduction than sum, avg, max and min, or for several.
    """
    names = {placement.reduce_op for placement in placements if kind_of(placement) == "partial"}
    kinds = {"sum" if name == "avg" else name for name in names}
    if len(names) > 1 or not kinds <= set(REDUCTIONS):
        raise DTensorError("partial placement", names=tuple(sorted(names)))
    return next((kind for kind in REDUCTIONS if kind in kinds), "sum")


def shard_orders(placements: Sequence[Any], rank: int, mesh: Mesh) -> dict[int, tuple[int, ...]]:
    """For each tensor dimension that is sharded the numbers of the mesh dimensions, in the order in which they cut it.

    Raises:
        DTensorError: a tensor dimension does not exist, or a split factor is not that of any order.
    """
    orders: dict[int, list[int]] = {}
    for k in reversed(range(len(placements))):
        placement, kind = placements[k], kind_of(placements[k])
        if kind not in ("shard", "strided"):
            continue
        dim = placement.dim + rank if placement.dim < 0 else placement.dim
        if not 0 <= dim < rank:
            raise DTensorError("placement dimension", value=placement, rank=rank)
        order = orders.setdefault(dim, [])
        factor, before = int(placement.split_factor) if kind == "strided" else 1, 1
        for place in range(len(order) + 1):
            if before == factor:
                order.insert(place, k)
                break
            if place < len(order):
                before *= mesh.axes[order[place]].size
        else:
            raise DTensorError("split factor", value=placement, factor=factor, mesh=str(mesh))
    return {dim: tuple(order) for dim, order in orders.items()}


def split_factors(order: Sequence[int], mesh: Mesh) -> dict[int, int]:
    """The split factor of each mesh dimension where they cut a tensor dimension in some order; 1 for `Shard`.

    >>> split_factors((1, 0), Mesh.of("x=2,y=4"))
    {1: 1, 0: 4}
    """
    return {
        k: math.prod(mesh.axes[other].size for other in order[:place] if other > k) for place, k in enumerate(order)
    }


def _require_boxes(placements: Sequence[Any], dim: int, order: Sequence[int], size: int, mesh: Mesh) -> None:
    """Refuse strided shards of unequal size that are not the tiles of their order: DTensor cuts a joined shard anew."""
    held: dict[tuple[int, ...], Int64] = {(): np.arange(size)}
    by_order: dict[tuple[int, ...], Int64] = {(): np.arange(size)}
    for k in sorted(order):
        placement, count = placements[k], mesh.axes[k].size
        factor = int(placement.split_factor) if kind_of(placement) == "strided" else 1
        held = {
            (*at, j): np.concatenate([_chunk(piece, count, j) for piece in _chunks(elements, factor)])
            for at, elements in held.items()
            for j in range(count)
        }
    for k in order:
        by_order = {
            (*at, j): _chunk(elements, mesh.axes[k].size, j)
            for at, elements in by_order.items()
            for j in range(mesh.axes[k].size)
        }
    ascending = [sorted(order).index(k) for k in order]
    for at, elements in held.items():
        if not np.array_equal(elements, by_order[tuple(at[place] for place in ascending)]):
            raise DTensorError("uneven strided", dim=dim, size=size, placements=shown(tuple(placements)))


def _chunks(elements: Int64, count: int) -> list[Int64]:
    return [_chunk(elements, count, k) for k in range(count)]


def _chunk(elements: Int64, count: int, number: int) -> Int64:
    """Part `number` of as many as `torch.chunk` makes, and empty ones behind."""
    length = max(1, -(-len(elements) // count))
    return elements[number * length : (number + 1) * length]
