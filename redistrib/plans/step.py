"""What every kind of step has, and what kinds over groups, of shares and without messages have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np

from redistrib.errors import PlanFormError
from redistrib.plans.fields import DeviceField, Field, TransferField, WordField
from redistrib.plans.transfers import Transfers, frozen
from redistrib.report import counted
from redistrib.theory.boxes import Boxes, summed_volumes
from redistrib.theory.placement import Int64, Placement

Implementation: TypeAlias = Literal["rounds", "ragged"]

# Scratch of rounds in sequence, as a fraction of the larger tile: one part of a share sent and one received.
SEQUENTIAL_SCRATCH = 0.48

_Kind = TypeVar("_Kind", bound="Step")

NONE: Int64 = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Step(ABC):
    """One collective, between the placements before and after it.

    Attributes:
        before, after: placements of all devices.
        kind: name of the kind of step, in tables and in JSON.
        fields: what a step of this kind has beside its placements. JSON, digests, equality and renumbering follow.
        version: the first version of the JSON form that has this kind.
        reduces: whether it makes or adds partial sums; other kinds move tiles, or slabs of their stack, as they are.
        compares_labels: whether steps differ whose partial sums are numbered otherwise.
    """

    before: Placement
    after: Placement

    kind: ClassVar[str]
    fields: ClassVar[tuple[Field, ...]] = ()
    version: ClassVar[int] = 1
    reduces: ClassVar[bool] = False
    compares_labels: ClassVar[bool] = False

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        names = "before", "after", *(field.name for field in self.fields)
        pairs = [(getattr(self, name), getattr(other, name)) for name in names]
        if self.compares_labels:
            pairs += [(mine.label, its.label) for mine, its in pairs[:2]]
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    def __hash__(self) -> int:
        return hash((self.kind, self.before, self.after, self.field_bytes()))

    def field_bytes(self) -> bytes:
        """Bytes that differ between steps of one kind and one pair of placements whose fields differ."""
        return b"|".join(field.bytes(getattr(self, field.name)) for field in self.fields)

    def placed(
        self,
        before: Placement,
        after: Placement,
        number: Int64 | None = None,
        boxes: Callable[[Transfers], Transfers] = lambda shares: shares,
    ) -> Self:
        """The same step between other placements.

        Args:
            before, after: the placements.
            number: device d has the number `number[d]` in them; None for its own.
            boxes: what becomes of boxes that travel.
        """
        values = {field.name: field.moved(getattr(self, field.name), boxes) for field in self.fields}
        if number is not None:
            values = {field.name: field.renumbered(values[field.name], number) for field in self.fields}
        return replace(self, before=before, after=after, **values)

    def stacked(self) -> Self:
        """A step that moves partial sums, as a step on the slabs of their stack (`Placement.stacked`)."""
        label = self.before.label
        return self.placed(
            self.before.stacked(), self.after.stacked(), boxes=lambda shares: shares.stacked(label[shares.sender])
        )

    @property
    def devices(self) -> int:
        return self.before.devices

    @property
    def on_sums(self) -> bool:
        """Whether tiles are partial sums before the step or after it."""
        return self.before.summands > 1 or self.after.summands > 1

    # ------------------------------------------------------------------------------------------ what it moves

    def transfers(self, device: int | None = None) -> Transfers:
        """The boxes that travel in the step.

        A group of n takes n - 1 rounds: in round r, member k sends to member k + r + 1, modulo n.

        Args:
            device: keep only the transfers from and to this device; by default keep all.

        Raises:
            PlanFormError: for an all-reduce, whose messages the platform chooses.
        """
        table = self._transfers(device)
        return table.where(~table.box.empty)

    @abstractmethod
    def _transfers(self, device: int | None) -> Transfers:
        """The transfers, empty boxes among them; with `device`, at least those from and to it."""

    def _between(self, sender: Int64, receiver: Int64, number: Int64) -> Transfers:
        """Of every pair what the one holds and the other wants."""
        return Transfers(sender, receiver, self.before.boxes[sender].meet(self.after.boxes[receiver]), number)

    def retained(self) -> Boxes:
        """`[devices]` the part of its tile after the step that a device does not receive, or an empty box.

        The retained box and the received boxes hold every element of the tile once. Where the step adds, they hold
        every partial sum of the tile once (of a maximum or minimum, at least once); a transfer holds the partial sum of
        its sender.

        Raises:
            PlanFormError: where a device gives up the one element of an array of rank 0.
        """
        boxes, rows = self.before.boxes.meet(self.after.boxes), self._replaced()
        if len(rows) and not boxes.size.shape[1]:
            raise PlanFormError("a box of rank 0 is never empty, so none says that a device gives up its scalar")
        boxes.size[rows] = 0
        return boxes

    def _replaced(self) -> Int64:
        """Devices that keep nothing of their tile."""
        return NONE

    @abstractmethod
    def received(self) -> list[int]:
        """Elements each device takes in from other devices, exactly; one integer per device."""

    @abstractmethod
    def received_total(self) -> int:
        """Elements received, summed over the devices."""

    @abstractmethod
    def sent(self) -> list[int]:
        """Elements each device sends to other devices, exactly; one integer per device."""

    def crossing(self, side: Int64) -> int:
        """Elements that the step moves between devices of different sides, with the padding of rounds.

        Args:
            side: `[devices]` the side of each device.

        Raises:
            PlanFormError: for a step that adds or makes partial sums.
        """
        if self.reduces:
            raise PlanFormError(f"a step {self.kind} moves sums, of which it is not known what crosses")
        return self._crossing(side)

    def _crossing(self, side: Int64) -> int:
        """Elements that move between sides, of a step on whole tiles; kinds override it that pad, or for speed."""
        return self.transfers().crossing(side)

    # ------------------------------------------------------------------------------------------ what it takes

    @property
    @abstractmethod
    def collectives(self) -> int:
        """Number of collective operations this step launches."""

    @property
    @abstractmethod
    def participants(self) -> str:
        """Who takes part, in tables: `6 groups of 4`, `12 pairs`, `24 boxes in 3 rounds`; empty without messages."""

    @abstractmethod
    def scratch(self, sequential: bool) -> int:
        """Elements of the buffers of the collective, besides the tiles before and after.

        Args:
            sequential: whether rounds run one after the other, in parts; otherwise rounds of one tile overlap.
        """


KINDS: dict[str, type[Step]] = {}  # filled by the definitions of kinds, in the order of the page on the JSON form


def kind_of_step(kind: type[_Kind]) -> type[_Kind]:
    """Enter a class as the kind of step of its name; JSON, tables and digests then know it."""
    KINDS[kind.kind] = kind
    return kind


@dataclass(frozen=True, eq=False)
class LocalStep(Step):
    """A step without messages."""

    def _transfers(self, device: int | None) -> Transfers:
        return self._between(NONE, NONE, NONE)

    def received(self) -> list[int]:
        return [0] * self.devices

    def received_total(self) -> int:
        return 0

    def sent(self) -> list[int]:
        return self.received()

    @property
    def collectives(self) -> int:
        return 0

    @property
    def participants(self) -> str:
        return ""

    def scratch(self, sequential: bool) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class GroupStep(Step):
    """A collective over groups of equal size that partition the devices.

    Attributes:
        groups: `[groups, members]` device numbers. The order of members is the order of their tiles `before`:
            row-major over the factors `before.grid[i] // after.grid[i]` of the dimensions that grow together.
    """

    groups: Int64

    fields: ClassVar[tuple[Field, ...]] = (DeviceField("groups", None),)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", frozen(self.groups, None))
        if self.groups.ndim != 2:
            raise PlanFormError(f"groups form a table [groups, members], got {self.groups.ndim} dimensions")

    @property
    def group_size(self) -> int:
        """Devices in a group."""
        return int(self.groups.shape[1])

    def group_of(self, device: int) -> list[int]:
        """The group of a device, in the order of its members; the device alone if it is in none."""
        rows: list[list[int]] = self.groups[(self.groups == device).any(axis=1)].tolist()
        return rows[0] if rows else [device]

    def sent(self) -> list[int]:
        return self.received()  # members of a group send as much as they receive

    @property
    def collectives(self) -> int:
        return 1

    @property
    def participants(self) -> str:
        return f"{counted(len(self.groups), 'group', 'groups')} of {self.group_size}"


@dataclass(frozen=True, eq=False)
class MessageStep(GroupStep):
    """A collective in which every member of a group sends every other member a message of one size."""

    @property
    @abstractmethod
    def message(self) -> int:
        """Elements of every message."""

    def received(self) -> list[int]:
        elements = (self.group_size - 1) * self.message
        if self.groups.size == self.devices:
            return [elements] * self.devices
        member = np.bincount(self.groups.ravel(), minlength=self.devices).tolist()
        return [elements * times for times in member]

    def received_total(self) -> int:
        return (self.group_size - 1) * self.message * self.groups.size

    def _crossing(self, side: Int64) -> int:
        sides = side[self.groups]
        pairs = int((sides[:, :, None] != sides[:, None, :]).sum()) if sides.size else 0
        return pairs * self.message

    def _transfers(self, device: int | None) -> Transfers:
        groups = self.groups if device is None else np.array([self.group_of(device)])
        n = groups.shape[1]
        ahead = np.arange(1, n)[:, None]
        member = np.tile(np.arange(n), (n - 1, 1))
        if device is not None:  # it sends to those ahead, and receives from those behind
            at = groups[0].tolist().index(device)
            member = np.concatenate([np.full_like(ahead, at), (at - ahead) % n], axis=1)
        sender, receiver = (groups[:, m].swapaxes(0, 1).reshape(-1) for m in (member, (member + ahead) % n))
        return self._between(sender, receiver, np.repeat(np.arange(n - 1), len(groups) * member.shape[1]))


@dataclass(frozen=True, eq=False)
class ShareStep(Step):
    """Shares travel from device to device.

    Attributes:
        shares: the boxes that travel.
        implementation: `"rounds"`, one collective permute a round, in which every share takes as many elements as the
            largest; `"ragged"`, one ragged all-to-all, in which every share takes its own.
    """

    shares: Transfers
    implementation: Implementation = "rounds"

    fields: ClassVar[tuple[Field, ...]] = (
        WordField("implementation", ("rounds", "ragged"), "an exchange"),
        TransferField("shares"),
    )

    def _transfers(self, device: int | None) -> Transfers:
        return self.shares if device is None else self.shares.of(device)

    def received(self) -> list[int]:
        return self._summed(self.shares.receiver)

    def received_total(self) -> int:
        return sum(self.received())

    def sent(self) -> list[int]:
        return self._summed(self.shares.sender)

    def _summed(self, devices: Int64) -> list[int]:
        """Elements of all shares of each device, `devices[k]` being that of share k, as large as they travel."""
        if self.implementation == "ragged" or not self.shares.mixed:
            return summed_volumes(self.shares.box.size, devices, self.devices)
        result = [0] * self.devices
        for device, size in zip(devices.tolist(), self._travelling(), strict=True):
            result[device] += size
        return result

    def _travelling(self) -> list[int]:
        """Elements that each share takes: its own, or in rounds those of the largest of its round."""
        if self.implementation == "ragged":
            return self.shares.box.volumes()
        sizes = self.round_sizes()
        return [sizes[number] for number in self.shares.round.tolist()]

    def round_sizes(self) -> list[int]:
        """Elements that every share of each round takes, in rounds."""
        return self.shares.largest()

    def _crossing(self, side: Int64) -> int:
        away = (side[self.shares.sender] != side[self.shares.receiver]).tolist()
        return sum(size for size, crosses in zip(self._travelling(), away, strict=True) if crosses)

    @property
    def collectives(self) -> int:
        return self.shares.rounds if self.implementation == "rounds" else 1

    @property
    def participants(self) -> str:
        boxes = counted(len(self.shares), "box", "boxes")
        if self.implementation == "ragged":
            return f"{boxes}, ragged"
        padded = ", padded" if self.received_total() > sum(self.shares.box.volumes()) else ""
        return f"{boxes} in {counted(self.shares.rounds, 'round', 'rounds')}{padded}"

    def scratch(self, sequential: bool) -> int:
        sizes = self.round_sizes()
        largest = max(self.before.tile_size, self.after.tile_size)
        if sequential:
            return min(2 * max(sizes, default=0), math.ceil(SEQUENTIAL_SCRATCH * largest))
        # A share sent and one received, for every round in flight; a ragged exchange has all rounds in flight.
        return 2 * (sum(sizes) if self.implementation == "ragged" else min(sum(sizes), largest))
