"""Messages as a list of writes into the output tile, one program for all devices.

All devices run the same writes with the same shapes; their offsets are in tables. But retained boxes differ in size,
and in a round some devices receive no box. So an idle device writes a box without effect:

* a box that one of its later writes overwrites, or
* data that it holds, at its position: the device sends to itself.

If it has neither, its write is masked: it reads the box and writes it back, one more pass over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from redistrib.arith import distinct_rows
from redistrib.errors import PartialTypeError
from redistrib.plans.steps import ReduceExchange, ReduceScatter, Step
from redistrib.plans.transfers import Transfers
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Int64, Placement


@dataclass(frozen=True, eq=False)
class PaddedTransfer:
    """One permute for boxes of several shapes, each flat and padded to the largest.

    Attributes:
        length: elements that every pair moves.
        pairs: `[pairs, 2]` (sender, receiver) device numbers.
    """

    length: int
    pairs: Int64


@dataclass(frozen=True, eq=False)
class Write:
    """One box per device: read from its tile, sent or retained, and written into its output tile.

    Attributes:
        size: shape of the box, one for all devices.
        source: `[devices, rank]` offset of the box that the device reads, in its tile before.
        target: `[devices, rank]` offset of the box that the device writes, in its tile after.
        pairs: `[pairs, 2]` (sender, receiver) device numbers; None where every device writes the box that it read.
            A pair of a device with itself moves no data.
        mask: `[devices]` whether the device writes; None where all do.
        padded: the transfer in which the boxes travel with those of other writes; None where they travel alone.
    """

    size: tuple[int, ...]
    source: Int64
    target: Int64
    pairs: Int64 | None
    mask: npt.NDArray[np.bool_] | None
    padded: PaddedTransfer | None = None

    @property
    def volume(self) -> int:
        return math.prod(self.size)

    def between(self, pairs: Int64) -> Write:
        """The write for some of its pairs alone."""
        assert self.mask is not None
        return replace(self, pairs=pairs, mask=np.isin(np.arange(len(self.mask)), pairs[:, 1]))

    @property
    def masked(self) -> bool:
        return self.mask is not None


def with_keepers(pairs: Int64, devices: int) -> Int64 | None:
    """Pairs of a permute, and a pair with itself for every device that keeps its tile.

    None if a device both keeps its tile and sends it, since a permute sends every tile once.
    """
    others = np.setdiff1d(np.arange(devices), pairs[:, 1])
    if np.isin(others, pairs[:, 0]).any():
        return None
    return np.concatenate([pairs, np.stack([others, others], axis=1)])


def schedule(source: Placement, step: Step, split: Callable[[Write], list[Write]] | None = None) -> list[Write]:
    """The writes of a step, in the order of least masked volume, and of fewest copies where permutes are split.

    Retained boxes are written first or last. Of several sizes the largest comes first, so that a device may write a
    part of its large box when other devices write a small one.

    Args:
        source: the placement that devices read from: before the step, or before a slice that precedes it. Its larger
            tiles may hold more of the final tiles.
        step: any step with messages.
        split: replaces a permute by several; None for no split.

    Raises:
        PartialTypeError: if its tiles are partial sums, which are added and not written.
    """
    if step.before.summands > 1 or step.after.summands > 1:
        raise PartialTypeError("a list of writes", f"the step {step.kind}")
    after, table = step.after, step.transfers()
    boxes = source.boxes.meet(after.boxes)
    retained = _Retained(boxes, boxes.start - source.start, boxes.start - after.start)
    rounds = [write for r in range(table.rounds) for write in _round(source, after, table, r)]
    if split is not None:
        rounds = [part for write in rounds for part in split(write)]
    local = retained.writes()
    orders = [local + rounds]
    if local:
        orders.append([*local[:-1], *rounds, local[-1]])
    settled = [_without_dead(_settle(order, retained, after), after) for order in orders]
    return min(settled, key=lambda order: (_masked_volume(order), 0 if split is None else _sent_to_self(order)))


def additions(step: ReduceScatter | ReduceExchange) -> list[Write]:
    """The boxes that each device adds to its tile of identity elements: its retained box, then those of each round.

    A device without a box in a round must add none.
    """
    before, after, table, boxes = step.before, step.after, step.transfers(), step.retained()
    retained = _Retained(boxes, boxes.start - before.start, boxes.start - after.start)
    return retained.writes() + [write for r in range(table.rounds) for write in _round(before, after, table, r)]


def _masked_volume(writes: Sequence[Write]) -> int:
    return sum(write.volume for write in writes if write.masked)


def _sent_to_self(writes: Sequence[Write]) -> int:
    """Elements that devices copy, once more, by sending them to themselves."""
    return sum(write.volume * int((write.pairs[:, 0] == write.pairs[:, 1]).sum())
               for write in writes if write.pairs is not None)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Retained:
    """The retained boxes, `[devices]`, and their offsets in the tiles before and after."""

    boxes: Boxes
    source: Int64
    target: Int64

    def writes(self) -> list[Write]:
        sizes = {tuple(row) for row in self.boxes.size[~self.boxes.empty].tolist()}
        result = []
        for size in sorted(sizes, key=lambda s: (-math.prod(s), s)):
            selected = (self.boxes.size == np.array(size)).all(axis=1)
            result.append(Write(size, self.source * selected[:, None], self.target * selected[:, None], None, selected))
        return result


def _round(before: Placement, after: Placement, table: Transfers, number: int) -> list[Write]:
    """One write for each shape of the boxes in a round, in one padded transfer for several."""
    rows = np.flatnonzero(table.round == number)
    shapes, _, shape, _ = distinct_rows(table.box.size[rows])
    padded = None
    if len(shapes) > 1:
        pairs = np.stack([table.sender[rows], table.receiver[rows]], axis=1)
        padded = PaddedTransfer(max(math.prod(size) for size in shapes.tolist()), pairs)
    writes = []
    for k, size in enumerate(shapes.tolist()):
        selected = rows[shape == k]
        sender, receiver, start = table.sender[selected], table.receiver[selected], table.box.start[selected]
        source, target = np.zeros_like(before.index), np.zeros_like(after.index)
        source[sender] = start - before.start[sender]
        target[receiver] = start - after.start[receiver]
        receives = np.zeros(before.devices, dtype=bool)
        receives[receiver] = True
        writes.append(Write(tuple(size), source, target, np.stack([sender, receiver], axis=1), receives, padded))
    return writes


def _settle(order: Sequence[Write], retained: _Retained, after: Placement) -> list[Write]:
    """Give every idle device of a write a box to write without effect, where one exists.

    Writes of devices that end without a tile have no effect.
    """
    result: list[Write] = []
    later: list[tuple[Write, npt.NDArray[np.bool_]]] = []
    for write in reversed(order):
        assert write.mask is not None
        size = np.array(write.size, dtype=np.int64)
        source, target = write.source.copy(), write.target.copy()
        idle = ~write.mask & ~after.nowhere
        for follower, real in later:
            if (np.array(follower.size) >= size).all():
                free = idle & real
                target[free] = follower.target[free]
                idle &= ~free
        holds = idle & (retained.boxes.size >= size).all(axis=1)
        pairs = write.pairs
        if write.padded is not None:  # an idle device may send a box of another shape
            holds[:] = False
        elif pairs is not None:
            holds[pairs[:, 0]] = False
            selves = np.flatnonzero(holds)
            pairs = np.concatenate([pairs, np.stack([selves, selves], axis=1)])
        source[holds], target[holds] = retained.source[holds], retained.target[holds]
        idle &= ~holds
        result.insert(0, replace(write, source=source, target=target, pairs=pairs, mask=~idle if idle.any() else None))
        later.insert(0, (write, write.mask))
    return result


def _without_dead(writes: list[Write], after: Placement) -> list[Write]:
    """Drop the writes that a later write of the whole tile overwrites on every device."""
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
