"""Exchanges as a list of writes into the output tile, one program for all devices.

Every device runs the same writes with the same shapes; only offsets differ, in tables. What a device keeps differs
in size between devices, and in a round some devices receive nothing. A device with nothing to write in some turn
therefore writes where it does no harm:

* into a box that one of its later writes fills (what it writes is overwritten), or
* data it holds, where it belongs (what it writes is right): it sends to itself.

Where neither exists, the device's write is masked: it puts back what it finds, which costs one more pass over the box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Exchange, Shares
from redistrib.theory.semantics import Int64, Placement

Box = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Parcel:
    """One permute for boxes of several shapes, each flat and padded to the largest.

    Attributes:
        length: elements that every pair moves.
        pairs: `[pairs, 2]` (sender, receiver) device numbers.
    """

    length: int
    pairs: Int64


@dataclass(frozen=True, eq=False)
class Write:
    """One box per device, read from its own tile, sent or kept, and written into its output tile.

    Attributes:
        size: shape of the box, one for all devices.
        source: `[devices, rank]` offset of the box that the device reads, in its tile before.
        target: `[devices, rank]` offset of the box that the device writes, in its tile after.
        pairs: `[pairs, 2]` (sender, receiver) device numbers; None where every device writes what it read itself.
            A pair of a device with itself moves nothing.
        writes: `[devices]` whether the device writes at all; None where all do.
        parcel: what the boxes travel in together with those of other writes; None where they go on their own.
    """

    size: Box
    source: Int64
    target: Int64
    pairs: Int64 | None
    writes: npt.NDArray[np.bool_] | None
    parcel: Parcel | None = None

    @property
    def volume(self) -> int:
        return math.prod(self.size)

    @property
    def masked(self) -> bool:
        return self.writes is not None


def shares_of(step: AllToAll | AllGather | AllPermute | Exchange) -> Shares:
    """The boxes that travel in any step that communicates, in rounds; member k of a group sends to k+r in round r."""
    if isinstance(step, Exchange):
        return step.shares
    before, after = step.before, step.after
    if isinstance(step, AllPermute):
        src, dst = step.pairs[:, 0], step.pairs[:, 1]
        rounds = np.zeros(len(src), dtype=np.int64)
    else:
        n = step.group_size
        members = np.arange(n)
        src = np.concatenate([step.groups.ravel() for _ in range(1, n)] or [np.zeros(0, np.int64)])
        dst = np.concatenate(
            [step.groups[:, (members + r) % n].ravel() for r in range(1, n)] or [np.zeros(0, np.int64)]
        )
        rounds = np.repeat(np.arange(n - 1), step.groups.size)
    if isinstance(step, AllToAll):
        start = np.maximum(before.start[src], after.start[dst])
        size = np.broadcast_to(np.array(step.share, dtype=np.int64), start.shape)
    else:
        start = before.start[src]
        size = np.broadcast_to(np.array(before.tile, dtype=np.int64), start.shape)
    return Shares(src, dst, start, size, rounds)


def of_all(pairs: Int64, devices: int) -> Int64 | None:
    """Pairs of a permute with one more for every device that keeps its tile, which it sends to itself.

    None if a device keeps what it sends to another: nothing is sent twice in a permute.
    """
    others = np.setdiff1d(np.arange(devices), pairs[:, 1])
    if np.isin(others, pairs[:, 0]).any():
        return None
    return np.concatenate([pairs, np.stack([others, others], axis=1)])


def schedule(before: Placement, after: Placement, shares: Shares) -> list[Write]:
    """The writes of an exchange, in order, with the least masked volume of the orders tried.

    The box that a device keeps is written first or last; with several sizes of kept boxes, larger ones come first, so
    that a device may write a part of a large one when it is the turn of a small one.
    """
    low = np.maximum(before.start, after.start)
    kept = np.maximum(np.minimum(before.start + before.tile, after.start + after.tile) - low, 0)
    kept[(kept == 0).any(axis=1)] = 0
    own = _Kept(kept, low - before.start, low - after.start)
    rounds = [write for r in range(shares.rounds) for write in _round(before, after, shares, r)]
    keeps = own.writes()
    orders = [keeps + rounds]
    if keeps:
        orders.append([*keeps[:-1], *rounds, keeps[-1]])
    settled = [_without_dead(_settle(order, own), after) for order in orders]
    return min(settled, key=_masked_volume)


def _masked_volume(writes: Sequence[Write]) -> int:
    return sum(write.volume for write in writes if write.masked)


@dataclass(frozen=True, eq=False)
class _Kept:
    """What devices keep: `[devices, rank]` sizes (zero where nothing) and offsets in the tiles before and after."""

    size: Int64
    source: Int64
    target: Int64

    def writes(self) -> list[Write]:
        sizes = {tuple(row) for row in self.size.tolist() if math.prod(row)}
        result = []
        for size in sorted(sizes, key=lambda s: (-math.prod(s), s)):
            mine = (self.size == np.array(size)).all(axis=1)
            result.append(Write(size, self.source * mine[:, None], self.target * mine[:, None], None, mine))
        return result


def _round(before: Placement, after: Placement, shares: Shares, number: int) -> list[Write]:
    """One write for each shape of the shares in a round, in one parcel if there are several."""
    rows = np.flatnonzero(shares.round == number)
    shapes, shape = np.unique(shares.size[rows], axis=0, return_inverse=True)
    parcel = None
    if len(shapes) > 1:
        pairs = np.stack([shares.src[rows], shares.dst[rows]], axis=1)
        parcel = Parcel(max(math.prod(size) for size in shapes.tolist()), pairs)
    writes = []
    for k, size in enumerate(shapes.tolist()):
        mine = rows[shape.reshape(-1) == k]
        src, dst = shares.src[mine], shares.dst[mine]
        source, target = np.zeros_like(before.index), np.zeros_like(after.index)
        source[src] = shares.start[mine] - before.start[src]
        target[dst] = shares.start[mine] - after.start[dst]
        receives = np.zeros(before.devices, dtype=bool)
        receives[dst] = True
        writes.append(Write(tuple(size), source, target, np.stack([src, dst], axis=1), receives, parcel))
    return writes


def _settle(order: Sequence[Write], own: _Kept) -> list[Write]:
    """Give every device that is idle in a write something harmless to write, where there is something."""
    result: list[Write] = []
    later: list[tuple[Write, npt.NDArray[np.bool_]]] = []
    for write in reversed(order):
        assert write.writes is not None
        size = np.array(write.size, dtype=np.int64)
        source, target = write.source.copy(), write.target.copy()
        idle = ~write.writes
        for follower, real in later:
            if (np.array(follower.size) >= size).all():
                free = idle & real
                target[free] = follower.target[free]
                idle &= ~free
        holds = idle & (own.size >= size).all(axis=1) & (own.size > 0).all(axis=1)
        pairs = write.pairs
        if write.parcel is not None:  # who is idle here may send a box of another shape
            holds[:] = False
        elif pairs is not None:
            holds[pairs[:, 0]] = False
            selves = np.flatnonzero(holds)
            pairs = np.concatenate([pairs, np.stack([selves, selves], axis=1)])
        source[holds], target[holds] = own.source[holds], own.target[holds]
        idle &= ~holds
        result.insert(
            0, replace(write, source=source, target=target, pairs=pairs, writes=~idle if idle.any() else None)
        )
        later.insert(0, (write, write.writes))
    return result


def _without_dead(writes: list[Write], after: Placement) -> list[Write]:
    """Drop all that a write of the whole tile overwrites on every device."""
    for k in range(len(writes) - 1, 0, -1):
        if writes[k].size == after.tile and not writes[k].masked:
            return writes[k:]
    return writes


def in_parts(write: Write, largest: int) -> list[Write]:
    """Cut a write into parts of at most `max(1, largest)` elements, which together write the same.

    The cut is along the first dimension whose rows are small enough, so that parts are as contiguous as can be; where
    none is, the first dimension that can be cut is cut into rows, and each row again.
    """
    if write.volume <= max(1, largest):
        return [write]
    dim = next((i for i, n in enumerate(write.size) if write.volume // n <= largest), None)
    if dim is None:
        dim = next(i for i, n in enumerate(write.size) if n > 1)
    extent = max(1, largest // (write.volume // write.size[dim]))
    extent = -(-write.size[dim] // -(-write.size[dim] // extent))  # as many parts, but even
    parts = []
    for start in range(0, write.size[dim], extent):
        shift = np.zeros(len(write.size), dtype=np.int64)
        shift[dim] = start
        size = (*write.size[:dim], min(extent, write.size[dim] - start), *write.size[dim + 1 :])
        part = replace(write, size=size, source=write.source + shift, target=write.target + shift)
        parts += in_parts(part, largest)
    return parts
