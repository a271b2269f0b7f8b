"""Transfers: which box of which array goes from whom to whom, in which round; one table for all who move or count data.

A step of a plan gives its transfers (`Step.transfers`). `verify` and `reference` do not read them: tests compare the
table with them, so they work out from groups and tiles on their own what travels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from redistrib.theory.boxes import Box, Boxes, summed_volumes
from redistrib.theory.placement import Int64


@dataclass(frozen=True, eq=False)
class Transfers:
    """Boxes that travel between devices, as columns of one table; row k is one transfer.

    Attributes:
        sender, receiver: `[transfers]` device numbers, never equal in a row.
        box: `[transfers]` the elements that travel, in global coordinates; never empty.
        round: `[transfers]` round number, from 0. In a round a device sends at most once and receives at most once.
    """

    sender: Int64
    receiver: Int64
    box: Boxes
    round: Int64

    def __len__(self) -> int:
        return len(self.sender)

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
