"""The steps of a plan: five frozen values, each one collective over explicit device groups.

Every step says where it starts (`before`) and where it ends (`after`). What data moves follows from these two
and from the groups, pairs or shares, and from nothing else; `received` counts it, `verify` checks it,
`reference` and the backends carry it out.

==============  =======================================================================================
step            what device d holds afterwards
==============  =======================================================================================
`DynSlice`      a box of what it held; nothing travels
`AllGather`     the union of the tiles of its group, laid out row-major over the gathered dimensions
`AllToAll`      from every member m of its group the box before(m) & after(d); all boxes of one shape
`AllPermute`    the whole tile of the one device that sends to it; devices in no pair keep theirs
`Exchange`      before(d) & after(d), and every share addressed to it; shares travel in rounds, padded to the
                largest of their round
==============  =======================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from redistrib.errors import StepFormError
from redistrib.theory.boxes import summed_volumes, volumes
from redistrib.theory.semantics import Int64, Placement

Realisation: TypeAlias = Literal["rounds", "ragged"]


def _frozen(array: object, columns: int | None) -> Int64:
    result = np.array(array, dtype=np.int64)
    if columns is not None and result.size == 0:
        result = result.reshape(0, columns)
    result.flags.writeable = False
    return result


@dataclass(frozen=True, eq=False)
class Shares:
    """Boxes that travel between devices, as columns of one table; row k is one share.

    Attributes:
        src, dst: `[shares]` device numbers, never equal in a row.
        start: `[shares, rank]` first element of the box, in global coordinates.
        size: `[shares, rank]` extent of the box, in elements.
        round: `[shares]` the round it travels in, from 0. In a round every device sends at most one share and
            receives at most one.
    """

    src: Int64
    dst: Int64
    start: Int64
    size: Int64
    round: Int64

    def __post_init__(self) -> None:
        rank = np.asarray(self.start).shape[-1] if np.asarray(self.start).ndim == 2 else 0
        for name, columns in (("src", None), ("dst", None), ("start", rank), ("size", rank), ("round", None)):
            object.__setattr__(self, name, _frozen(getattr(self, name), columns))
        rows = len(self.src)
        if any(len(getattr(self, name)) != rows for name in ("dst", "start", "size", "round")):
            raise StepFormError("the columns of a table of shares must have equal length")

    def __len__(self) -> int:
        return len(self.src)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shares):
            return NotImplemented
        columns = ("src", "dst", "start", "size", "round")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)

    def __hash__(self) -> int:
        return hash((self.src.tobytes(), self.dst.tobytes(), self.start.tobytes(), self.round.tobytes()))

    @property
    def rounds(self) -> int:
        """Number of rounds, one collective permute each."""
        return int(self.round.max()) + 1 if len(self) else 0

    @cached_property
    def _by_round(self) -> tuple[Int64, Int64]:
        """The first share of each round, and which round in order each share is in."""
        _, leader, number = np.unique(self.round, return_index=True, return_inverse=True)
        return leader, number

    @cached_property
    def mixed(self) -> bool:
        """Whether some round has shares of different shapes."""
        leader, number = self._by_round
        return bool((self.size != self.size[leader[number]]).any())

    def largest(self) -> list[int]:
        """Elements of the largest share of each round."""
        leader, _ = self._by_round
        if not self.mixed:
            return volumes(self.size[leader])
        sizes = [0] * self.rounds
        for number, volume in zip(self.round.tolist(), self.volumes(), strict=True):
            sizes[number] = max(sizes[number], volume)
        return sizes

    def shapes(self) -> list[int]:
        """Number of shapes that the shares of each round have."""
        if not self.mixed:
            return [1] * self.rounds
        rows = np.unique(np.concatenate([self.round[:, None], self.size], axis=1), axis=0)
        counts: list[int] = np.bincount(rows[:, 0]).tolist()
        return counts

    def volumes(self) -> list[int]:
        """Elements of each share."""
        return volumes(self.size)


@dataclass(frozen=True, eq=False)
class _Step:
    before: Placement
    after: Placement

    kind: ClassVar[str]

    def received(self) -> list[int]:
        """Elements each device takes in from other devices, exactly; one integer per device."""
        raise NotImplementedError

    def received_total(self) -> int:
        """Elements received, summed over the devices."""
        return sum(self.received())

    @property
    def collectives(self) -> int:
        """Number of collective operations this step launches."""
        return 1

    @property
    def devices(self) -> int:
        return self.before.devices


@dataclass(frozen=True, eq=False)
class DynSlice(_Step):
    """Every device keeps a box of its tile (T-DynSlice, over any number of dimensions at once)."""

    kind: ClassVar[str] = "dynslice"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DynSlice) and (self.before, self.after) == (other.before, other.after)

    def __hash__(self) -> int:
        return hash((self.kind, self.before, self.after))

    def received(self) -> list[int]:
        return [0] * self.devices

    def received_total(self) -> int:
        return 0

    @property
    def collectives(self) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class _GroupStep(_Step):
    """A collective over groups of equal size that partition the devices.

    Attributes:
        groups: `[groups, members]` device numbers. The order of members is the order of their tiles `before`:
            row-major over the factors `before.grid[i] // after.grid[i]` of the dimensions that grow together.
    """

    groups: Int64

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", _frozen(self.groups, None))
        if self.groups.ndim != 2:
            raise StepFormError(f"groups form a table [groups, members], got {self.groups.ndim} dimensions")

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, _GroupStep)
            and (self.before, self.after) == (other.before, other.after)
            and np.array_equal(self.groups, other.groups)
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.before, self.after, self.groups.tobytes()))

    @property
    def group_size(self) -> int:
        """Devices in a group."""
        return int(self.groups.shape[1])

    def group_of(self, device: int) -> list[int]:
        """The group of a device, in the order of its members."""
        row: list[int] = self.groups[(self.groups == device).any(axis=1)][0].tolist()
        return row


@dataclass(frozen=True, eq=False)
class AllGather(_GroupStep):
    """Every member receives the tiles of all members (T-AllGather, over any number of dimensions at once)."""

    kind: ClassVar[str] = "allgather"
    __eq__ = _GroupStep.__eq__
    __hash__ = _GroupStep.__hash__

    def received(self) -> list[int]:
        return [(self.group_size - 1) * self.before.tile_size] * self.devices

    def received_total(self) -> int:
        return (self.group_size - 1) * self.before.tile_size * self.devices


@dataclass(frozen=True, eq=False)
class AllToAll(_GroupStep):
    """Every member receives one share from every member, itself included.

    The share from a to b is the box before(a) & after(b). Shares may repeat: where two members end with the same
    tile, both are sent the same boxes, which fuses an exchange and a gather.
    """

    kind: ClassVar[str] = "alltoall"
    __eq__ = _GroupStep.__eq__
    __hash__ = _GroupStep.__hash__

    @property
    def share(self) -> tuple[int, ...]:
        """Shape of every share, in elements."""
        return tuple(min(b, a) for b, a in zip(self.before.tile, self.after.tile, strict=True))

    def received(self) -> list[int]:
        return [(self.group_size - 1) * math.prod(self.share)] * self.devices

    def received_total(self) -> int:
        return (self.group_size - 1) * math.prod(self.share) * self.devices


@dataclass(frozen=True, eq=False)
class AllPermute(_Step):
    """Whole tiles change places (T-Permute).

    Attributes:
        pairs: `[pairs, 2]` device numbers (sender, receiver); a device sends at most once, receives at most once,
            and never to itself. A device that receives nothing keeps its tile.
    """

    pairs: Int64

    kind: ClassVar[str] = "allpermute"

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", _frozen(self.pairs, 2))
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2:
            raise StepFormError(f"pairs form a table [pairs, 2], got shape {self.pairs.shape}")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AllPermute)
            and (self.before, self.after) == (other.before, other.after)
            and np.array_equal(self.pairs, other.pairs)
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.before, self.after, self.pairs.tobytes()))

    def received(self) -> list[int]:
        tile = self.before.tile_size
        return [times * tile for times in np.bincount(self.pairs[:, 1], minlength=self.devices).tolist()]

    def received_total(self) -> int:
        return len(self.pairs) * self.before.tile_size


@dataclass(frozen=True, eq=False)
class Exchange(_Step):
    """Shares travel straight from devices that hold them to devices that lack them, in rounds.

    Attributes:
        shares: what travels; device d starts from before(d) & after(d), which stays where it is.
        realisation: `"rounds"`, one collective permute a round, in which every share takes as many elements as the
            largest; `"ragged"`, one ragged all-to-all, in which every share takes its own.
    """

    shares: Shares
    realisation: Realisation = "rounds"

    kind: ClassVar[str] = "exchange"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Exchange)
            and (self.before, self.after, self.realisation) == (other.before, other.after, other.realisation)
            and self.shares == other.shares
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.before, self.after, self.shares, self.realisation))

    def received(self) -> list[int]:
        if self.realisation == "ragged" or not self.shares.mixed:
            return summed_volumes(self.shares.size, self.shares.dst, self.devices)
        sizes, result = self.round_sizes(), [0] * self.devices
        for device, number in zip(self.shares.dst.tolist(), self.shares.round.tolist(), strict=True):
            result[device] += sizes[number]
        return result

    def round_sizes(self) -> list[int]:
        """Elements that every share of each round takes, in rounds."""
        return self.shares.largest()

    @property
    def collectives(self) -> int:
        return self.shares.rounds if self.realisation == "rounds" else 1


Step: TypeAlias = DynSlice | AllGather | AllToAll | AllPermute | Exchange
