"""Tiles of devices and groups of devices: the choices that a weak path leaves open.

The functions work on placements and not on axes, so groups need not follow a mesh axis. They sort tables of devices,
so they are fast for many devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from redistrib.arith import distinct_rows, unravel
from redistrib.synthesis.half_duplex import without_swaps
from redistrib.synthesis.torus_neighbours import nearest_groups, nearest_senders
from redistrib.theory.placement import Int64, Placement, number_of
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, common


@dataclass(frozen=True, eq=False)
class CoarseCells:
    """A cell of a coarse grid for every device.

    Attributes:
        grid: cells per dimension.
        index: `[devices, rank]` cell indices.
    """

    grid: Grid
    index: Int64

    @classmethod
    def of(cls, placement: Placement, grid: Grid) -> CoarseCells:
        """The cells of a coarser grid in which the tiles of a placement lie."""
        return cls(grid, placement.index if grid == placement.grid else placement.coarse(grid))

    @cached_property
    def number(self) -> Int64:
        """`[devices]` row-major cell numbers."""
        return number_of(self.index, self.grid)


def assign_tiles(
    shape: tuple[int, ...],
    inside: CoarseCells,
    fine: Grid,
    prefer: CoarseCells | None = None,
    spread: Int64 | None = None,
    topology: Topology | None = None,
) -> Placement:
    """Give every device a tile of `fine` inside its cell, each tile to equally many devices.

    As many devices as possible get a tile inside their preferred cell. Tiles of a cell are assigned in turn, so that
    devices of one class of `spread` (and of one host) get different tiles.

    Args:
        shape: global shape, in elements.
        inside: the cell of each device, every cell with equally many devices; its grid divides `fine`.
        fine: the grid to place on.
        prefer: the preferred cell of each device; its grid divides `fine`.
        spread: `[devices]` classes; the devices of a class in one cell get different tiles.
        topology: where the sizes of hosts allow it, the devices of one host and cell hold all tiles of the cell.
    """
    devices = len(inside.index)
    factors = tuple(f // c for f, c in zip(fine, inside.grid, strict=True))
    scale = np.array(factors, dtype=np.int64)
    first = inside.index * scale
    goal = np.zeros(devices, dtype=np.int64)
    low: Int64 | int = 0
    high: Int64 = np.broadcast_to(scale, first.shape)
    unwilling: npt.NDArray[np.bool_] | None = None  # devices whose cell does not meet their preferred cell
    if prefer is not None:
        step = np.array([f // p for f, p in zip(fine, prefer.grid, strict=True)], dtype=np.int64)
        corner = prefer.index * step - first
        inner_low, inner_high = np.maximum(0, corner), np.minimum(high, corner + step)
        empty: npt.NDArray[np.bool_] = np.any(inner_low >= inner_high, axis=1)
        goal = prefer.number
        if empty.any():
            unwilling = empty
            low = np.where(unwilling[:, None], 0, inner_low)
            high = np.where(unwilling[:, None], high, inner_high)
            goal = np.where(unwilling, -1, goal)
        else:
            low, high = inner_low, inner_high
    hosts = None if topology is None else topology.hosts
    kind, places = _classes(inside, math.prod(factors), hosts)
    # The sort is stable: devices with equal keys stay in the order of their numbers.
    order = np.lexsort((goal, kind) if spread is None else (spread, goal, kind))
    turn = np.empty(devices, dtype=np.int64)
    turn[order] = position_in_run(kind[order], goal[order])
    extent = high - low
    volume = extent.prod(axis=1)
    assigned = turn < places[kind] * volume
    if unwilling is not None:
        assigned &= ~unwilling
    local = low + unravel(turn % np.maximum(volume, 1), extent)
    if not assigned.all():
        _assign_the_rest(local, assigned, kind, places, factors, order)
    return Placement.unchecked(shape, fine, first + local)


def _classes(inside: CoarseCells, choices: int, hosts: Int64 | None) -> tuple[Int64, Int64]:
    """`[devices]` classes whose devices hold all tiles of their cell, and the devices per tile of each class.

    A class has the devices of one cell, or where their numbers allow it, of one cell and host.
    """
    kind = inside.number
    if hosts is not None:
        _, fine_kind = np.unique(kind * (int(hosts.max()) + 1) + hosts, return_inverse=True)
        sizes = np.bincount(fine_kind)
        if not (sizes % choices).any():
            return fine_kind, sizes // choices
    return kind, np.bincount(kind) // choices


def _assign_the_rest(
    local: Int64, assigned: npt.NDArray[np.bool_], kind: Int64, places: Int64, scale: tuple[int, ...], order: Int64
) -> None:
    """Assign the remaining tiles of each class to the devices without a preferred tile, in place."""
    choices = math.prod(scale)
    taken = np.bincount(kind[assigned] * choices + number_of(local[assigned], scale), minlength=len(places) * choices)
    free = np.repeat(np.arange(len(places) * choices), np.repeat(places, choices) - taken)
    waiting = order[~assigned[order]]
    local[waiting] = unravel(
        free % choices, np.broadcast_to(np.array(scale, dtype=np.int64), (len(waiting), len(scale)))
    )


def position_in_run(*sorted_keys: Int64) -> Int64:
    """Position of each row in its run of equal keys, the rows being sorted by those keys."""
    count = len(sorted_keys[0])
    place = np.arange(count)
    if count < 2:
        return place
    same = sorted_keys[0][1:] == sorted_keys[0][:-1]
    for key in sorted_keys[1:]:
        same &= key[1:] == key[:-1]
    starts = place.copy()
    starts[1:][same] = 0
    return place - np.maximum.accumulate(starts)


def chunk_groups(
    before: Placement,
    cells: Grid,
    keys: tuple[Int64, ...] = (),
    topology: Topology | None = None,
    outer: tuple[Int64, ...] = (),
) -> Int64:
    """Partition the devices of every cell into groups that hold each chunk of the cell once.

    A chunk is a tile of `before`; the members of a group are in row-major order of their chunks. Devices with
    the same chunk join groups in the order of `outer`, then of their hosts, the groups that one host can form first,
    then of `keys` (each most significant first), then of their numbers.

    Returns:
        `[groups, members]` device numbers.
    """
    members = before.tiles // math.prod(cells)
    cell, chunk = number_of(before.coarse(cells), cells), number_within(before, cells)
    hosts = None if topology is None else topology.hosts
    if hosts is not None:
        keys = (*_incomplete_last(members, (cell, *outer, hosts), chunk, keys), hosts, *keys)
    order = np.lexsort((*reversed((*outer, *keys)), chunk, cell))
    table = order.reshape(math.prod(cells), members, -1)
    if topology is not None and topology.torus is not None and members > 1:
        belongs = distinct_rows(np.stack(outer, axis=1)).inverse if outer else np.zeros_like(cell)
        table = nearest_groups(topology.torus, table, belongs)
    return np.ascontiguousarray(table.transpose(0, 2, 1)).reshape(-1, members)


def _incomplete_last(
    members: int, classes: tuple[Int64, ...], chunk: Int64, keys: tuple[Int64, ...]
) -> tuple[Int64, ...]:
    """A key that sorts last the devices whose class lacks a chunk for their group; no key where no class does."""
    order = np.lexsort((*reversed(keys), chunk, *reversed(classes)))
    turn = np.empty_like(order)
    turn[order] = position_in_run(*(key[order] for key in (*classes, chunk)))
    _, _, group, size = distinct_rows(np.stack([*classes, turn], axis=1))
    incomplete = size[group] < members
    return (incomplete.astype(np.int64),) if incomplete.any() and not incomplete.all() else ()


def all_to_all_groups(before: Placement, after: Placement, topology: Topology | None = None) -> Int64:
    """Groups for an all-to-all between placements that agree on their common grid.

    Prefers groups whose members receive their shares in one order, since these need no table of orders.
    """
    cells = common(before.grid, after.grid)
    chunk_after, chunk_before = number_within(after, cells), number_within(before, cells)
    plain = chunk_groups(before, cells, topology=topology)
    if _one_order(chunk_after[plain]):
        return plain
    aligned = chunk_groups(before, cells, ((chunk_after - chunk_before) % (after.tiles // math.prod(cells)),), topology)
    return aligned if _one_order(chunk_after[aligned]) else plain


def number_within(placement: Placement, cells: Grid) -> Int64:
    """`[devices]` row-major number of every device's tile among those of its cell of a coarser grid."""
    scale = tuple(count // c for count, c in zip(placement.grid, cells, strict=True))
    return number_of(placement.index % np.array(scale, dtype=np.int64), scale)


def _one_order(orders: Int64) -> bool:
    return bool((orders == orders[:1]).all())


def permutation_pairs(before: Placement, after: Placement, topology: Topology | None = None) -> Int64:
    """Senders and receivers of whole tiles, of the devices whose tile changes.

    Args:
        before, after: uniform placements on one grid.
        topology: a sender is on its receiver's host where a device there gives up the tile.

    Returns:
        `[pairs, 2]` senders and receivers, by receiver.
    """
    return sending_pairs(before.number, after.number, after.number, topology)


def sending_pairs(tiles: Int64, targets: Int64, finals: Int64, topology: Topology | None = None) -> Int64:
    """Pair every device that lacks its tile with a holder of the tile, one that gives it up where possible.

    Args:
        tiles, targets: `[devices]` number of the tile of each device before and after; equally many devices hold a tile
            before and after.
        finals: `[devices]` number of the final tile of each device, a part of its tile after.
        topology: a pair stays on one host where it can. Where links between hosts are half duplex, no two devices of
            different hosts send to one another where other holders of the tiles exist.

    Returns:
        `[pairs, 2]` senders and receivers, by receiver.
    """
    moving = np.flatnonzero(tiles != targets)
    gives, takes = tiles[moving], targets[moving]
    hosts = None if topology is None else topology.hosts
    if hosts is None:
        senders = moving[np.lexsort((moving, gives))]
        receivers = moving[np.lexsort((moving, takes))]
        if topology is not None and topology.torus is not None and len(moving):
            senders = nearest_senders(topology.torus, senders, receivers, np.sort(gives))
    else:
        senders, receivers = _pair_within_hosts(moving, gives, takes, hosts[moving])
    pairs = np.stack([senders, receivers], axis=1)
    pairs = pairs[np.argsort(pairs[:, 1], kind="stable")]
    if topology is None or hosts is None or not topology.half_duplex:
        return pairs
    return without_swaps(pairs, tiles, finals, hosts)


def _pair_within_hosts(moving: Int64, gives: Int64, takes: Int64, hosts: Int64) -> tuple[Int64, Int64]:
    """Pair devices of one host first, then the other devices."""
    tiles = int(max(gives.max(initial=0), takes.max(initial=0))) + 1
    giving, taking = hosts * tiles + gives, hosts * tiles + takes
    give_order, take_order = np.lexsort((moving, giving)), np.lexsort((moving, taking))
    give_rank, take_rank = np.empty_like(moving), np.empty_like(moving)
    give_rank[give_order] = position_in_run(giving[give_order])
    take_rank[take_order] = position_in_run(taking[take_order])
    local_send = np.isin(_pair_key(giving, give_rank, len(moving)), _pair_key(taking, take_rank, len(moving)))
    local_take = np.isin(_pair_key(taking, take_rank, len(moving)), _pair_key(giving, give_rank, len(moving)))
    senders, receivers = [], []
    for send, take, gkey, tkey in (
        (local_send, local_take, _pair_key(giving, give_rank, len(moving)), _pair_key(taking, take_rank, len(moving))),
        (~local_send, ~local_take, gives, takes),
    ):
        senders.append(moving[send][np.lexsort((moving[send], gkey[send]))])
        receivers.append(moving[take][np.lexsort((moving[take], tkey[take]))])
    return np.concatenate(senders), np.concatenate(receivers)


def _pair_key(key: Int64, rank: Int64, count: int) -> Int64:
    return key * (count + 1) + rank


def agree(a: Placement, b: Placement) -> bool:
    """Whether two placements put every device in the same cell of their finest common grid.

    Exactly then an all-to-all between groups of devices leads from one to the other.
    """
    grid = common(a.grid, b.grid)
    return np.array_equal(a.coarse(grid), b.coarse(grid))
