"""The reference interpreter of plans, on NumPy tiles: tests compare every backend with it.

It runs each step from its groups, pairs or shares: a device reads its buffer and the buffers of its senders, and lays
out the received parts by position, as a collective does. It adds partial sums in ascending order, starting from the
first and not from zero. It does not read the target.
This is the only interpreter; `verify` checks by arithmetic and not by copying. Neither reads `messages`, since tests
could not detect an error that both shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from redistrib.errors import PlanFormError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType, require_whole
from redistrib.plans.data import PlanData
from redistrib.plans.dtypes import default_accumulation
from redistrib.plans.reduction import Accumulator, window
from redistrib.plans.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)
from redistrib.theory.placement import Placement, placement_of

Tile: TypeAlias = npt.NDArray[Any]
_Ints: TypeAlias = tuple[int, ...]


def run(plan: PlanData, tiles: Sequence[Tile]) -> list[Tile]:
    """Carry out a plan.

    Args:
        plan: the plan; only reads outside a tile are detected, see `verify`.
        tiles: the source tile of every device, by device number; of shape `[0, 0, ...]` for a device without a tile.

    Returns:
        The tile of every device after the last step, by device number, in new buffers.

    Raises:
        TilesError: if the tiles are not those of the plan's source, or a step reads outside a tile.

    >>> from redistrib.plans.plan import Plan
    >>> from redistrib.plans.steps import AllGather
    >>> from redistrib.theory.placement import placement_of
    >>> mesh = Mesh.of("x=2")
    >>> source, target = DistType.of("[2{x}4]"), DistType.of("[4]")
    >>> gather = AllGather(placement_of(source, mesh), placement_of(target, mesh), [[0, 1]])
    >>> plan = Plan(source, mesh, target, mesh, "int64", 8, (gather,), "by hand", "exact", 2, "elements")
    >>> run(plan, scatter(np.arange(4), plan.before))
    [array([0, 1, 2, 3]), array([0, 1, 2, 3])]
    """
    _check_tiles(tiles, plan.before, "the plan's source")
    result = [np.array(tile) for tile in tiles]
    for step in plan.steps:
        result = run_step(step, result, plan.accumulate)
    return result


def run_step(step: Step, tiles: Sequence[Tile], accumulate: str | None = None) -> list[Tile]:
    """Carry out one step on the tiles of all devices, by device number.

    Args:
        accumulate: name of the element type to add summands in; None for that of the tiles.

    Raises:
        TilesError: if the tiles do not fit the step.
    """
    match step:
        case DynSlice():
            return _dynslice(step, tiles)
        case AllGather():
            return _allgather(step, tiles)
        case AllToAll():
            return _alltoall(step, tiles)
        case AllPermute():
            return _allpermute(step, tiles)
        case Exchange():
            return _exchange(step, tiles)
        case ReduceScatter() | AllReduce():
            return _reduced_in_groups(step, tiles, accumulate)
        case ReduceExchange():
            return _reduce_exchange(step, tiles, accumulate)
        case Unreduce():
            return _unreduce(step, tiles)
    raise PlanFormError(f"what a step {step.kind} does to tiles is not defined here; define it in run_step")


def _dynslice(step: DynSlice, tiles: Sequence[Tile]) -> list[Tile]:
    offset = (step.after.start - step.before.start).tolist()
    empty = _nowhere(step.after)
    return [
        _absent_tile(tile) if d in empty else _read(tile, offset[d], step.after.tile) for d, tile in enumerate(tiles)
    ]


def _allgather(step: AllGather, tiles: Sequence[Tile]) -> list[Tile]:
    merged = _ratio(step.before.grid, step.after.grid)
    result = list(tiles)
    for group in step.groups.tolist():
        for receiver in group:
            result[receiver] = _laid_out([tiles[sender] for sender in group], merged)
    return result


def _alltoall(step: AllToAll, tiles: Sequence[Tile]) -> list[Tile]:
    before, after, share = step.before, step.after, step.share
    merged, split = _ratio(before.grid, after.grid), _ratio(after.grid, before.grid)
    # offset of the receiver's part in a sender's tile: the receiver's position among the split parts
    offset = [tuple(i % s * n for i, s, n in zip(index, split, share, strict=True)) for index in after.index.tolist()]
    result = list(tiles)
    for group in step.groups.tolist():
        for receiver in group:
            result[receiver] = _laid_out([_read(tiles[sender], offset[receiver], share) for sender in group], merged)
    return result


def _allpermute(step: AllPermute, tiles: Sequence[Tile]) -> list[Tile]:
    result = list(tiles)
    for sender, receiver in step.pairs.tolist():
        result[receiver] = tiles[sender].copy()
    return result


def _overlap(old: Sequence[int], old_size: _Ints, new: Sequence[int], new_size: _Ints) -> tuple[_Ints, _Ints]:
    """Start and size of the intersection of two boxes; an empty one has a size of at most zero."""
    low = tuple(max(a, b) for a, b in zip(old, new, strict=True))
    high = (min(a + n, b + m) for a, n, b, m in zip(old, old_size, new, new_size, strict=True))
    return low, _minus(tuple(high), low)


def _exchange(step: Exchange, tiles: Sequence[Tile]) -> list[Tile]:
    before, after, shares = step.before, step.after, step.shares
    starts_before, starts_after = before.start.tolist(), after.start.tolist()
    sizes_before, sizes_after = _extents(before), _extents(after)
    result = [np.zeros(size, tile.dtype) for size, tile in zip(sizes_after, tiles, strict=True)]
    for d, (old, new) in enumerate(zip(starts_before, starts_after, strict=True)):
        low, size = _overlap(old, sizes_before[d], new, sizes_after[d])
        if all(n > 0 for n in size):
            retained = _read(tiles[d], _minus(low, old), size)
            _write(result[d], _minus(low, new), retained)
    for k in np.argsort(shares.round, kind="stable").tolist():
        sender, receiver = int(shares.sender[k]), int(shares.receiver[k])
        start, size = tuple(shares.box.start[k].tolist()), tuple(shares.box.size[k].tolist())
        sent = _read(tiles[sender], _minus(start, starts_before[sender]), size)
        _write(result[receiver], _minus(start, starts_after[receiver]), sent)
    return result


def _reduced_in_groups(step: ReduceScatter | AllReduce, tiles: Sequence[Tile], accumulate: str | None) -> list[Tile]:
    size, label = step.after.tile, step.before.label.tolist()
    parts = list(np.ndindex(_ratio(step.after.grid, step.before.grid)))
    result = list(tiles)
    for group in step.groups.tolist():
        ordered = sorted(group, key=lambda device: label[device])
        for k, receiver in enumerate(group):
            part = parts[k] if isinstance(step, ReduceScatter) else parts[0]
            offset = tuple(p * n for p, n in zip(part, size, strict=True))
            total = Accumulator(size, tiles[receiver].dtype, step.before.reduction or "sum", accumulate)
            for sender in ordered:
                total.add([0] * len(size), _read(tiles[sender], offset, size))
            result[receiver] = total.result()
    return result


def _reduce_exchange(step: ReduceExchange, tiles: Sequence[Tile], accumulate: str | None) -> list[Tile]:
    before, after, shares = step.before, step.after, step.shares
    old, new = before.start.tolist(), after.start.tolist()
    reduction = before.reduction or after.reduction or "sum"
    sent: list[list[tuple[int, _Ints, Tile]]] = [[] for _ in tiles]  # to each device: partial sum, offset, part
    for d in np.flatnonzero(step.adds_own()).tolist():
        low, size = _overlap(old[d], before.tile, new[d], after.tile)
        if all(n > 0 for n in size):
            sent[d].append((int(before.label[d]), _minus(low, new[d]), _read(tiles[d], _minus(low, old[d]), size)))
    for k, (sender, receiver) in enumerate(zip(shares.sender.tolist(), shares.receiver.tolist(), strict=True)):
        start, size = tuple(shares.box.start[k].tolist()), tuple(shares.box.size[k].tolist())
        part = _read(tiles[sender], _minus(start, old[sender]), size)
        sent[receiver].append((int(before.label[sender]), _minus(start, new[receiver]), part))
    result = []
    for tile, parts in zip(tiles, sent, strict=True):
        total = Accumulator(after.tile, tile.dtype, reduction, accumulate)
        for _, offset, part in sorted(parts, key=lambda entry: entry[0]):
            total.add(offset, part)
        result.append(total.result())
    return result


def _unreduce(step: Unreduce, tiles: Sequence[Tile]) -> list[Tile]:
    offset = (step.before.start - step.after.start).tolist()
    keeps = set(step.keeps.tolist())
    result = []
    for d, tile in enumerate(tiles):
        total = Accumulator(step.after.tile, tile.dtype, step.after.reduction or "sum", None)
        if d in keeps:
            total.add(offset[d], tile)
        result.append(total.result())
    return result


def _nowhere(placement: Placement) -> set[int]:
    """The devices without a tile."""
    rows = placement.index.tolist()
    return {d for d, index in enumerate(rows) if index and min(index) < 0}


def _extents(placement: Placement) -> list[_Ints]:
    """Shape of the tile of each device, `(0, 0, ...)` for an absent tile."""
    return [tuple(size) for size in placement.boxes.size.tolist()]


def _absent_tile(tile: Tile) -> Tile:
    """An absent tile: an array without elements."""
    return np.zeros((0,) * tile.ndim, dtype=tile.dtype)


def _ratio(fine: _Ints, coarse: _Ints) -> _Ints:
    """Tiles of the fine grid in a tile of the coarse grid, along each dimension; 1 where it is not coarser."""
    return tuple(max(1, f // c) for f, c in zip(fine, coarse, strict=True))


def _laid_out(parts: Sequence[Tile], factors: _Ints) -> Tile:
    """One tile from equal parts in row-major order: part k sits at the digits of k in the radices `factors`."""
    if len(parts) != math.prod(factors):
        raise TilesError(f"{len(parts)} parts do not make {' x '.join(map(str, factors))} of them")
    size = parts[0].shape
    whole = np.zeros(tuple(n * f for n, f in zip(size, factors, strict=True)), dtype=parts[0].dtype)
    for part, position in zip(parts, np.ndindex(factors), strict=True):
        _write(whole, tuple(p * n for p, n in zip(position, size, strict=True)), part)
    return whole


def _minus(a: Sequence[int], b: Sequence[int]) -> _Ints:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _read(tile: Tile, offset: Sequence[int], size: Sequence[int]) -> Tile:
    return np.array(tile[window(tile, offset, size)])  # a copy, and an array even of rank 0


def _write(tile: Tile, offset: Sequence[int], part: Tile) -> None:
    tile[window(tile, offset, part.shape)] = part


# ------------------------------------------------------------------------------- arrays and their tiles


def scatter(array: npt.ArrayLike, placement: Placement) -> list[Tile]:
    """Cut a global array into the tile of every device, by device number; `[0, 0, ...]` for a device without a tile.

    Args:
        array: the whole array; where tiles are partial sums, all of these, `[summands, *shape]`.

    Raises:
        TilesError: if the array is not of the placement's shape.
    """
    whole = np.asarray(array)
    if placement.summands > 1:
        stack = placement.stacked()
        return [tile[0] for tile in _cut(whole, stack)]
    return _cut(whole, placement)


def _cut(whole: Tile, placement: Placement) -> list[Tile]:
    if whole.shape != placement.shape:
        raise TilesError(f"an array of shape {whole.shape} cannot be placed as one of shape {placement.shape}")
    empty, sizes = _nowhere(placement), _extents(placement)
    return [
        _absent_tile(whole) if d in empty else _read(whole, start, sizes[d])
        for d, start in enumerate(placement.start.tolist())
    ]


def tile_of(array: npt.ArrayLike, dist_type: DistType | str, mesh: Any, device: int) -> Tile:
    """The tile of a global array that one device holds.

    Args:
        array: the whole array.
        dist_type: how it is cut, as a `DistType` or its notation.
        mesh: the mesh, in any form that `Mesh.of` reads.
        device: a device number.

    Raises:
        TilesError: if the array is not of the type's global shape, or the mesh has no such device.
        TypeFormError: if the type is not well-formed over the mesh, or its tiles are partial sums.

    >>> tile_of(np.arange(12), "[3{x}12]", "x=4,y=6", device=7)
    array([3, 4, 5])
    """
    form, over = DistType.of(dist_type), Mesh.of(mesh)
    require_whole("tile_of", form)
    placement = placement_of(form, over)
    if not 0 <= device < placement.devices or device in _nowhere(placement):
        devices = f"0 to {placement.devices - 1}" if over.is_whole else str(list(over.devices))
        raise TilesError(f"there is no device {device} in mesh {over}; its devices are {devices}")
    whole = np.asarray(array)
    if whole.shape != placement.shape:
        raise TilesError(f"an array of shape {whole.shape} is not of type {form}, whose shape is {placement.shape}")
    return _read(whole, placement.start[device].tolist(), placement.box(device).size)


def assemble(tiles: Sequence[Tile], placement: Placement) -> Tile:
    """Put the tiles of all devices together again; the inverse of `scatter`.

    Partial sums are reduced in ascending order; bfloat16 and float16 are added in float32 and rounded once.

    Raises:
        TilesError: if a tile is not of the placement's tile shape, two devices that hold one tile disagree in any
            bit, or no device holds some part of the array.
    """
    _check_tiles(tiles, placement, "the placement")
    if placement.summands > 1:
        stack = assemble([tile[None] for tile in tiles], placement.stacked())
        kind = placement.reduction or "sum"
        total = Accumulator(placement.shape, stack.dtype, kind, default_accumulation(kind, stack.dtype.name))
        for summand in stack:
            total.add([0] * placement.rank, summand)
        return total.result()
    dtype = tiles[0].dtype if tiles else np.dtype(np.float64)
    whole = np.zeros(placement.shape, dtype=dtype)
    holder: dict[_Ints, int] = {}
    empty = _nowhere(placement)
    for d, index in enumerate(map(tuple, placement.index.tolist())):
        if d in empty:
            continue
        first = holder.setdefault(index, d)
        if first == d:
            _write(whole, placement.start[d].tolist(), tiles[d])
        elif tiles[d].tobytes() != tiles[first].tobytes():
            raise TilesError(f"devices {first} and {d} hold the same tile {index} with different contents")
    if len(holder) < placement.tiles:
        missing = next(index for index in np.ndindex(placement.grid) if index not in holder)
        raise TilesError(f"no device holds tile {missing} of the grid {placement.grid}")
    return whole


def _check_tiles(tiles: Sequence[Tile], placement: Placement, whose: str) -> None:
    if len(tiles) != placement.devices:
        raise TilesError(f"{len(tiles)} tiles were given, {whose} has {placement.devices} devices")
    for d, (tile, expected) in enumerate(zip(tiles, _extents(placement), strict=True)):
        if tile.shape != expected:
            raise TilesError(f"device {d} holds a tile of shape {tile.shape}, {whose} gives it {expected}")
