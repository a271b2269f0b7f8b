"""Transfers: which box of which array goes from whom to whom, in which round; one table for all who move or count data.

A step of a plan gives its transfers (`Step.transfers`); an exchange has them as its field `shares`. What moves without
a plan, or through a function, takes them from `lacking_by_box`; synthesis arranges `missing_parts` in rounds. For
steps over groups and pairs, `verify` and `reference` do not read the table: they work out from groups and tiles on
their own what travels, and tests compare the table with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from redistrib.arith import distinct_rows, repeated, unravel
from redistrib.errors import PlanFormError
from redistrib.plans.senders import Senders
from redistrib.theory.boxes import Box, Boxes, summed_volumes, volumes
from redistrib.theory.placement import Int64, Placement, number_of


def frozen(array: object, columns: int | None) -> Int64:
    """A read-only table; an empty one gets `columns` columns, unless None."""
    if isinstance(array, np.ndarray) and array.dtype == np.int64 and not array.flags.writeable:
        result = array
    else:
        result = np.array(array, dtype=np.int64)
    if columns is not None and result.size == 0 and result.shape[1:] != (columns,):
        result = result.reshape(0, columns)
    result.flags.writeable = False
    return result


class TransferRow(NamedTuple):
    """One row of the table."""

    sender: int
    receiver: int
    box: Box
    round: int


@dataclass(frozen=True, eq=False)
class Transfers:
    """Boxes that travel between devices, as read-only columns of one table; row k is one transfer.

    Attributes:
        sender, receiver: `[transfers]` device numbers. They are equal in a row whose box stays where it is, which only
            moves without a plan have.
        box: `[transfers]` the elements that travel, in global coordinates; never empty.
        round: `[transfers]` round number, from 0. In a round a device sends at most once and receives at most once.

    Raises:
        PlanFormError: if the columns differ in length.
    """

    sender: Int64
    receiver: Int64
    box: Boxes
    round: Int64

    def __post_init__(self) -> None:
        start = np.asarray(self.box.start)
        rank = start.shape[-1] if start.ndim == 2 else 0
        object.__setattr__(self, "box", Boxes(frozen(start, rank), frozen(self.box.size, rank)))
        for name in ("sender", "receiver", "round"):
            object.__setattr__(self, name, frozen(getattr(self, name), None))
        if any(len(column) != len(self) for column in self.columns):
            raise PlanFormError("the columns of a table of boxes must have equal length")

    @staticmethod
    def none(rank: int) -> Transfers:
        """No transfers, of arrays of a rank."""
        empty, table = np.zeros(0, dtype=np.int64), np.zeros((0, rank), dtype=np.int64)
        return Transfers(empty, empty, Boxes(table, table), empty)

    @property
    def columns(self) -> tuple[Int64, Int64, Int64, Int64, Int64]:
        """Sender, receiver, first element, extent and round, of every transfer."""
        return self.sender, self.receiver, self.box.start, self.box.size, self.round

    def __len__(self) -> int:
        return len(self.sender)

    def __getitem__(self, rows: Int64 | npt.NDArray[np.bool_]) -> Transfers:
        """The transfers of the given row numbers or mask."""
        return Transfers(self.sender[rows], self.receiver[rows], self.box[rows], self.round[rows])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transfers):
            return NotImplemented
        return all(map(np.array_equal, self.columns, other.columns))

    def __hash__(self) -> int:
        return hash(tuple(column.tobytes() for column in self.columns))

    def stacked(self, slab: Int64) -> Transfers:
        """The same transfers in a stack of partial sums: transfer k lies in slab `slab[k]`."""
        first = slab[:, None]
        start = np.concatenate([first, self.box.start], axis=1)
        size = np.concatenate([np.ones_like(first), self.box.size], axis=1)
        return replace(self, box=Boxes(start, size))

    def unstacked(self) -> Transfers:
        """Transfers of a stack of partial sums, without the dimension of the partial sums."""
        return replace(self, box=Boxes(self.box.start[:, 1:], self.box.size[:, 1:]))

    def renumbered(self, number: Int64) -> Transfers:
        """The same transfers where device d has the number `number[d]`."""
        return replace(self, sender=number[self.sender], receiver=number[self.receiver])

    def rows(self) -> list[TransferRow]:
        """The table row by row."""
        columns = self.sender.tolist(), self.receiver.tolist(), self.box.rows(), self.round.tolist()
        return [TransferRow(*row) for row in zip(*columns, strict=True)]

    @property
    def travelling(self) -> Transfers:
        """The rows whose box leaves its device."""
        return self.where(self.sender != self.receiver)

    def staying(self, device: int) -> list[Box]:
        """The boxes that stay on a device."""
        return self.box[(self.sender == device) & (self.receiver == device)].rows()

    @property
    def rounds(self) -> int:
        """Number of rounds; where they run as rounds, one collective permute each."""
        return int(self.round.max(initial=-1)) + 1

    @cached_property
    def _by_round(self) -> tuple[Int64, Int64]:
        """The first transfer of each round, and the position of each transfer's round among the rounds."""
        _, leader, number = np.unique(self.round, return_index=True, return_inverse=True)
        return leader, number

    @cached_property
    def mixed(self) -> bool:
        """Whether a round has boxes of different shapes."""
        leader, number = self._by_round
        return bool((self.box.size != self.box.size[leader[number]]).any())

    def largest(self) -> list[int]:
        """Elements of the largest box of each round."""
        leader, _ = self._by_round
        if not self.mixed:
            return volumes(self.box.size[leader])
        sizes = [0] * self.rounds
        for number, volume in zip(self.round.tolist(), self.box.volumes(), strict=True):
            sizes[number] = max(sizes[number], volume)
        return sizes

    def shapes(self) -> list[int]:
        """Number of different shapes in each round."""
        if not self.mixed:
            return [1] * self.rounds
        rows = distinct_rows(np.concatenate([self.round[:, None], self.box.size], axis=1)).rows
        counts: list[int] = np.bincount(rows[:, 0]).tolist()
        return counts

    def where(self, rows: npt.NDArray[np.bool_]) -> Transfers:
        """The transfers of a mask `[transfers]`."""
        return self if rows.all() else self[rows]

    def of(self, device: int) -> Transfers:
        """The transfers from and to a device."""
        return self.where((self.sender == device) | (self.receiver == device))

    def sends(self, device: int) -> list[tuple[int, Box]]:
        """(receiver, box) of every transfer from a device, in the order of the table."""
        rows = self.sender == device
        return list(zip(self.receiver[rows].tolist(), self.box[rows].rows(), strict=True))

    def receives(self, device: int) -> list[tuple[int, Box]]:
        """(sender, box) of every transfer to a device, in the order of the table."""
        rows = self.receiver == device
        return list(zip(self.sender[rows].tolist(), self.box[rows].rows(), strict=True))

    def received(self, devices: int) -> list[int]:
        """Elements that each of so many devices receives."""
        return summed_volumes(self.box.size, self.receiver, devices)

    def crossing(self, side: Int64) -> int:
        """Elements that travel between devices of different sides; `side` is `[devices]`."""
        return sum(self.box[side[self.sender] != side[self.receiver]].volumes())


def touched_tiles(source: Placement, needed: Boxes) -> tuple[Int64, Int64]:
    """`[boxes, rank]` first and one past the last tile that each box touches, by dimension."""
    low, high = needed.start, needed.start + needed.size
    if not source.cuts:
        tile = np.maximum(np.array(source.tile, dtype=np.int64), 1)
        return low // tile, -(-high // tile)
    along = np.eye(source.rank, dtype=np.int64)
    edges = [source.edges(np.arange(count + 1)[:, None] * along[i])[:, i] for i, count in enumerate(source.grid)]
    first = np.stack([np.searchsorted(edge, low[:, i], "right") - 1 for i, edge in enumerate(edges)], axis=1)
    stop = np.stack([np.searchsorted(edge, high[:, i], "left") for i, edge in enumerate(edges)], axis=1)
    return first, np.maximum(first, stop)


@dataclass(frozen=True, eq=False)
class NeededParts:
    """Parts of tiles that devices need, as columns of one table.

    Attributes:
        receiver: `[parts]` who needs each part.
        tile: `[parts]` the number of its tile.
        box: `[parts]` its elements; never empty.
    """

    receiver: Int64
    tile: Int64
    box: Boxes

    def __len__(self) -> int:
        return len(self.tile)

    def __getitem__(self, rows: Int64 | npt.NDArray[np.bool_]) -> NeededParts:
        """The parts of the given row numbers or mask."""
        return NeededParts(self.receiver[rows], self.tile[rows], self.box[rows])


def needed_parts(
    source: Placement, holders: Sequence[int], boxes: Boxes, receivers: Sequence[int]
) -> tuple[Int64, NeededParts, npt.NDArray[np.bool_]]:
    """The parts of boxes in the tiles that they touch, and what devices lack of them.

    Args:
        source: the tiles, of any size.
        holders: for each row of the placement the device that holds it.
        boxes: boxes, each inside the array.
        receivers: for each box the device that needs it.

    Returns:
        For each part, box by box and then tile by tile, row-major: the number of its box; the part itself; and whether
        the device lacks it, since its own tile is another.
    """
    first, stop = touched_tiles(source, boxes)
    extent = stop - first
    number, place = repeated(np.where(boxes.empty, 0, extent.prod(axis=1)))
    index = first[number] + unravel(place, extent[number])
    start = source.edges(index)
    part = Boxes(start, source.edges(index + 1) - start).meet(boxes[number])
    receiver = np.array(receivers, dtype=np.int64)[number]
    parts, some = NeededParts(receiver, number_of(index, source.grid), part), ~part.empty
    number, parts = number[some], parts[some]  # a tile without elements lies between others
    own = np.full(max([*holders, *receivers], default=0) + 1, -1, dtype=np.int64)
    own[list(holders)] = source.number
    return number, parts, own[parts.receiver] != parts.tile


def missing_parts(before: Placement, needed: Boxes) -> NeededParts:
    """The parts of its needed box that each device does not hold.

    Args:
        before: the source, of any grid.
        needed: `[devices]` the boxes that the devices hold afterwards.
    """
    devices = range(before.devices)
    _, parts, lacks = needed_parts(before, devices, needed, devices)
    return parts[lacks]


def lacking(source: Placement, holders: Sequence[int], boxes: Boxes, receivers: Sequence[int]) -> Transfers:
    """The table of `lacking_by_box` alone."""
    return lacking_by_box(source, holders, boxes, receivers)[0]


def lacking_by_box(
    source: Placement,
    holders: Sequence[int],
    boxes: Boxes,
    receivers: Sequence[int],
    senders: Senders | None = None,
    itemsize: int = 1,
) -> tuple[Transfers, Int64, Int64]:
    """The boxes that devices need, each from a device that holds it: of their own tile what they hold, the rest from
    others.

    Each row is in a round of its own. The boxes may overlap, the tiles do not; a part that a device needs for several
    boxes is one row.

    Args:
        source, holders, boxes, receivers: as of `needed_parts`.
        senders: who sends; by default these are spread over the holders of each tile.
        itemsize: bytes of an element.

    Returns:
        The table; and for each part of a box, box by box, the number of the box and its row.
    """
    number, parts, lacks = needed_parts(source, holders, boxes, receivers)
    row = np.arange(len(number))
    if len(set(receivers)) < len(receivers):
        table = np.concatenate([parts.receiver[:, None], parts.box.start, parts.box.size], axis=1)
        _, first, same, _ = distinct_rows(table)
        once = np.sort(first)
        parts, lacks = parts[once], lacks[once]
        row = np.searchsorted(once, first)[same]
    sender, missing = parts.receiver.copy(), parts[lacks]
    amounts = [volume * itemsize for volume in missing.box.volumes()]
    sender[lacks] = (senders or Senders()).of(source, holders, missing.receiver, missing.tile, amounts)
    return Transfers(sender, parts.receiver, parts.box, np.arange(len(sender))), number, row
