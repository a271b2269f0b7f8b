"""Transfers: which box of which array goes from whom to whom, in which round; one table for all who move or count data.

A step of a plan gives its transfers (`Step.transfers`); what moves without a plan takes them from `lacking`. `verify`
and `reference` do not read them: tests compare the table with them, so they work out from groups and tiles on their own
what travels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from redistrib.theory.boxes import Box, Boxes, summed_volumes
from redistrib.theory.placement import Int64, Placement


class TransferRow(NamedTuple):
    """One row of the table."""

    sender: int
    receiver: int
    box: Box
    round: int


@dataclass(frozen=True, eq=False)
class Transfers:
    """Boxes that travel between devices, as columns of one table; row k is one transfer.

    Attributes:
        sender, receiver: `[transfers]` device numbers. They are equal in a row whose box stays where it is, which only
            moves without a plan have.
        box: `[transfers]` the elements that travel, in global coordinates; never empty.
        round: `[transfers]` round number, from 0. In a round a device sends at most once and receives at most once.
    """

    sender: Int64
    receiver: Int64
    box: Boxes
    round: Int64

    def __len__(self) -> int:
        return len(self.sender)

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[int, int, Box]], rank: int) -> Transfers:
        """A table of (sender, receiver, box), each in a round of its own; empty boxes are left out."""
        rows = [row for row in rows if row[2].volume]
        sender, receiver = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
        start, size = (
            np.array([getattr(row[2], name) for row in rows], dtype=np.int64).reshape(len(rows), rank)
            for name in ("start", "size")
        )
        return cls(sender, receiver, Boxes(start, size), np.arange(len(rows)))

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
        """Number of rounds."""
        return int(self.round.max(initial=-1)) + 1

    def where(self, rows: npt.NDArray[np.bool_]) -> Transfers:
        """The transfers of a mask `[transfers]`."""
        if rows.all():
            return self
        return Transfers(self.sender[rows], self.receiver[rows], self.box[rows], self.round[rows])

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

    def sent(self, devices: int) -> list[int]:
        """Elements that each of so many devices sends."""
        return summed_volumes(self.box.size, self.sender, devices)

    def received(self, devices: int) -> list[int]:
        """Elements that each of so many devices receives."""
        return summed_volumes(self.box.size, self.receiver, devices)

    def crossing(self, side: Int64) -> int:
        """Elements that travel between devices of different sides; `side` is `[devices]`."""
        return sum(self.box[side[self.sender] != side[self.receiver]].volumes())

    def renumbered(self, number: Int64) -> Transfers:
        """The same transfers where device d has the number `number[d]`."""
        return replace(self, sender=number[self.sender], receiver=number[self.receiver])


def lacking(source: Placement, holders: Sequence[int], boxes: Sequence[Box], receivers: Sequence[int]) -> Transfers:
    """The boxes that devices need, each from a device that holds it: of their own tile what they hold, the rest from
    others.

    Receivers of one tile are spread over its holders. The boxes may overlap; the tiles do not.

    Args:
        source: tiles of equal size.
        holders: for each row of the placement the device that holds it.
        boxes: boxes, each inside the array.
        receivers: for each box the device that needs it.
    """
    holders_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for device, index in zip(holders, source.index.tolist(), strict=True):
        holders_of[tuple(index)].append(device)
    sends_of: dict[tuple[int, ...], int] = defaultdict(int)
    rows = []
    for receiver, box in zip(receivers, boxes, strict=True):
        touched = (range(s // n, -(-(s + t) // n)) for s, t, n in zip(box.start, box.size, source.tile, strict=True))
        for index in product(*touched):
            part = box.meet(Box(tuple(i * n for i, n in zip(index, source.tile, strict=True)), source.tile))
            sender = receiver
            if receiver not in holders_of[index]:
                sender = holders_of[index][sends_of[index] % len(holders_of[index])]
                sends_of[index] += 1
            rows.append((sender, receiver, part))
    return Transfers.of_rows(rows, source.rank)
