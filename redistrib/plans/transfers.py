"""Transfers: which box of which array goes from whom to whom, in which round; one table for all who move or count data.

A step of a plan gives its transfers (`Step.transfers`); an exchange has them as its field `shares`. What moves without
a plan, or through a function, takes them from `lacking_by_box`. For steps over groups and pairs, `verify` and
`reference` do not read the table: they work out from groups and tiles on their own what travels, and tests compare the
table with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heapreplace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from redistrib.arith import distinct_rows, unravel
from redistrib.errors import PlanFormError
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


def needed_parts(
    source: Placement, holders: Sequence[int], boxes: Boxes, receivers: Sequence[int]
) -> tuple[Int64, Int64, Boxes, npt.NDArray[np.bool_]]:
    """The parts of boxes in the tiles that they touch, none of them empty, and what devices lack of them.

    Args:
        source: the tiles, of any size.
        holders: for each row of the placement the device that holds it.
        boxes: boxes, each inside the array.
        receivers: for each box the device that needs it.

    Returns:
        For each part, box by box and then tile by tile, row-major: the number of its box; the number of its tile; the
        part itself; and whether the device lacks it, since its own tile is another.
    """
    first, stop = touched_tiles(source, boxes)
    extent = stop - first
    count = np.where(boxes.empty, 0, extent.prod(axis=1))
    number = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(number)) - np.repeat(count.cumsum() - count, count)
    index = first[number] + unravel(place, extent[number])
    start = source.edges(index)
    part = Boxes(start, source.edges(index + 1) - start).meet(boxes[number])
    some = ~part.empty  # a tile without elements lies between others
    number, tile, part = number[some], number_of(index[some], source.grid), part[some]
    own = np.full(max([*holders, *receivers], default=0) + 1, -1, dtype=np.int64)
    own[list(holders)] = source.number
    return number, tile, part, own[np.array(receivers, dtype=np.int64)[number]] != tile


class Senders:
    """Who sends: of the holders on the receiver's side, or else of all, the one that has sent least, then the first.

    One object may serve several tables, one after the other.

    Args:
        side: of each device, such as its process; by default all are on one side.
    """

    def __init__(self, side: Mapping[int, int] | None = None) -> None:
        self._side = side or {}
        self._sent: dict[int, int] = defaultdict(int)

    def of(
        self, source: Placement, holders: Sequence[int], receiver: Int64, tile: Int64, amounts: Sequence[int]
    ) -> list[int]:
        """For each part the device that sends it, from who needs it, the number of its tile, and how much it is."""
        sent, queues = self._sent, defaultdict[tuple[int, int | None], list[tuple[int, int, int]]](list)
        for place, (device, number) in enumerate(zip(holders, source.number.tolist(), strict=True)):
            queues[number, None].append((sent[device], place, device))
            if self._side:
                queues[number, self._side[device]].append((sent[device], place, device))
        for queue in queues.values():
            heapify(queue)
        chosen = []
        for to, number, amount in zip(receiver.tolist(), tile.tolist(), amounts, strict=True):
            queue = queues.get((number, self._side.get(to))) or queues[number, None]
            while sent[queue[0][2]] != queue[0][0]:  # the entry is from before the device sent more
                heapreplace(queue, (sent[queue[0][2]], *queue[0][1:]))
            chosen.append(queue[0][2])
            sent[chosen[-1]] += amount
        return chosen


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
    number, tile, part, lacks = needed_parts(source, holders, boxes, receivers)
    receiver, row = np.array(receivers, dtype=np.int64)[number], np.arange(len(number))
    if len(set(receivers)) < len(receivers):
        _, first, same, _ = distinct_rows(np.concatenate([receiver[:, None], part.start, part.size], axis=1))
        once = np.sort(first)
        receiver, tile, part, lacks = receiver[once], tile[once], part[once], lacks[once]
        row = np.searchsorted(once, first)[same]
    sender = receiver.copy()
    amounts = [volume * itemsize for volume in part[lacks].volumes()]
    sender[lacks] = (senders or Senders()).of(source, holders, receiver[lacks], tile[lacks], amounts)
    return Transfers(sender, receiver, part, np.arange(len(sender))), number, row
