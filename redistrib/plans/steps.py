"""The steps of a plan: frozen values, each one collective over explicit device groups.

Every step has a placement before and after. The data that moves follows from these two and from the groups, pairs or
shares alone: `received` and `sent` count it, `verify` checks it, `reference` and the backends move it.

==============  =======================================================================================
step            the tile of device d afterwards
==============  =======================================================================================
`DynSlice`      a box of its tile; no messages
`AllGather`     the union of the tiles of its group, laid out row-major over the gathered dimensions
`AllToAll`      from every member m of its group the box before(m) & after(d); all boxes of one shape
`AllPermute`    the whole tile of the one device that sends to it; devices in no pair keep theirs
`Exchange`      before(d) & after(d), and every share addressed to it; shares travel in rounds, padded to the
                largest of their round
==============  =======================================================================================

Tiles of unequal size move by exchanges only. Devices without a tile are in no group and send nothing. An exchange or a
permute may bring them a tile; a slice or an exchange may leave a device without a tile.

Where tiles are partial sums, these five move slabs of the stack of partial sums (`Placement.stacked`) like other tiles:
a partial sum does not change, and has one number before and after. Four more steps make sums, or partial sums:

================  =====================================================================================
step              the tile of device d afterwards
================  =====================================================================================
`ReduceScatter`   the sum of before(m) & after(d) over the members m of its group, with different partial sums
`AllReduce`       the sum of before(m) over the members m of its group, with different partial sums
`ReduceExchange`  the sum of before(d) & after(d), if its partial sum belongs to its result, and of every share
                  addressed to it
`Unreduce`        before(d) in its place, and the identity element in the rest of after(d); no messages
================  =====================================================================================

("Sum" stands for the reduction of the placement before.) Partial sum j after a step is the sum of a run of consecutive
partial sums before it. Each step may number partial sums anew, because placements are compared without their numbers.
So a reduction is a coarser cut of the stack's first dimension, and a `ReduceExchange` is an `Exchange` of slabs, except
that the receiver adds a share to its tile and does not write it beside others. It needs memory for its tile and one
share.

The library adds partial sums in ascending order: always in `reference`, in backends if the plan's `order` is "fixed".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from redistrib.errors import PlanFormError
from redistrib.errors.base import shown
from redistrib.plans.shares import Shares as Shares
from redistrib.plans.shares import frozen
from redistrib.theory.boxes import summed_volumes
from redistrib.theory.placement import Int64, Placement

Implementation: TypeAlias = Literal["rounds", "ragged"]
ReductionWay: TypeAlias = Literal["native", "alltoall"]


@dataclass(frozen=True, eq=False)
class _Step:
    before: Placement
    after: Placement

    kind: ClassVar[str]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
            for a, b in ((getattr(self, name), getattr(other, name)) for name in self.__match_args__)
        )

    def __hash__(self) -> int:
        values = [getattr(self, name) for name in self.__match_args__]  # a dataclass lists its fields there
        return hash((self.kind, *(v.tobytes() if isinstance(v, np.ndarray) else v for v in values)))

    def received(self) -> list[int]:
        """Elements each device takes in from other devices, exactly; one integer per device."""
        raise NotImplementedError

    def received_total(self) -> int:
        """Elements received, summed over the devices."""
        return sum(self.received())

    def sent(self) -> list[int]:
        """Elements each device sends to other devices, exactly; one integer per device."""
        return self.received()  # members of a group send as much as they receive

    @property
    def collectives(self) -> int:
        """Number of collective operations this step launches."""
        return 1

    @property
    def devices(self) -> int:
        return self.before.devices


@dataclass(frozen=True, eq=False)
class _LocalStep(_Step):
    """A step without messages."""

    def received(self) -> list[int]:
        return [0] * self.devices

    def received_total(self) -> int:
        return 0

    @property
    def collectives(self) -> int:
        return 0


@dataclass(frozen=True, eq=False)
class DynSlice(_LocalStep):
    """Every device keeps a box of its tile (T-DynSlice, over any number of dimensions at once)."""

    kind: ClassVar[str] = "dynslice"


@dataclass(frozen=True, eq=False)
class _GroupStep(_Step):
    """A collective over groups of equal size that partition the devices.

    Attributes:
        groups: `[groups, members]` device numbers. The order of members is the order of their tiles `before`:
            row-major over the factors `before.grid[i] // after.grid[i]` of the dimensions that grow together.
    """

    groups: Int64

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

    def _per_device(self, elements: int) -> list[int]:
        """So many elements for each device, as often as it is in a group."""
        if self.groups.size == self.devices:
            return [elements] * self.devices
        member = np.bincount(self.groups.ravel(), minlength=self.devices).tolist()
        return [elements * times for times in member]


@dataclass(frozen=True, eq=False)
class AllGather(_GroupStep):
    """Every member receives the tiles of all members (T-AllGather, over any number of dimensions at once)."""

    kind: ClassVar[str] = "allgather"

    def received(self) -> list[int]:
        return self._per_device((self.group_size - 1) * self.before.tile_size)

    def received_total(self) -> int:
        return (self.group_size - 1) * self.before.tile_size * self.groups.size


@dataclass(frozen=True, eq=False)
class AllToAll(_GroupStep):
    """Every member receives one share from every member, itself included.

    The share from a to b is the box before(a) & after(b). Shares may repeat: where two members end with the same
    tile, both are sent the same boxes, which fuses an exchange and a gather.
    """

    kind: ClassVar[str] = "alltoall"

    @property
    def share(self) -> tuple[int, ...]:
        """Shape of every share, in elements."""
        return tuple(min(b, a) for b, a in zip(self.before.tile, self.after.tile, strict=True))

    def received(self) -> list[int]:
        return self._per_device((self.group_size - 1) * math.prod(self.share))

    def received_total(self) -> int:
        return (self.group_size - 1) * math.prod(self.share) * self.groups.size


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
        object.__setattr__(self, "pairs", frozen(self.pairs, 2))
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2:
            raise PlanFormError(f"pairs form a table [pairs, 2], got shape {self.pairs.shape}")

    def received(self) -> list[int]:
        return self._tiles(self.pairs[:, 1])

    def sent(self) -> list[int]:
        return self._tiles(self.pairs[:, 0])

    def _tiles(self, devices: Int64) -> list[int]:
        """A tile for every time that a device is named."""
        return [times * self.before.tile_size for times in np.bincount(devices, minlength=self.devices).tolist()]

    def received_total(self) -> int:
        return len(self.pairs) * self.before.tile_size


@dataclass(frozen=True, eq=False)
class _ShareStep(_Step):
    """Shares travel from device to device.

    Attributes:
        shares: the boxes that travel.
        implementation: `"rounds"`, one collective permute a round, in which every share takes as many elements as the
            largest; `"ragged"`, one ragged all-to-all, in which every share takes its own.
    """

    shares: Shares
    implementation: Implementation = "rounds"

    def received(self) -> list[int]:
        return self._summed(self.shares.dst)

    def sent(self) -> list[int]:
        return self._summed(self.shares.src)

    def _summed(self, devices: Int64) -> list[int]:
        """Elements of all shares of each device, `devices[k]` being that of share k, as large as they travel."""
        if self.implementation == "ragged" or not self.shares.mixed:
            return summed_volumes(self.shares.size, devices, self.devices)
        sizes, result = self.round_sizes(), [0] * self.devices
        for device, number in zip(devices.tolist(), self.shares.round.tolist(), strict=True):
            result[device] += sizes[number]
        return result

    def round_sizes(self) -> list[int]:
        """Elements that every share of each round takes, in rounds."""
        return self.shares.largest()

    @property
    def collectives(self) -> int:
        return self.shares.rounds if self.implementation == "rounds" else 1


@dataclass(frozen=True, eq=False)
class Exchange(_ShareStep):
    """Shares travel from devices that hold them to devices that lack them, in rounds.

    Device d starts from before(d) & after(d), which stays where it is.
    """

    kind: ClassVar[str] = "exchange"


@dataclass(frozen=True, eq=False)
class ReduceExchange(_ShareStep):
    """An exchange whose receivers add: shares of different partial sums of one box become their sum.

    Attributes:
        splits: partial sum j after the step is the sum of the partial sums `splits[j]` to `splits[j + 1] - 1` before
            it, of none if these are equal. By default runs of equal length, which needs `after.summands` to divide
            `before.summands`. A device adds its own partial sum iff it belongs to the run of its partial sum
            afterwards.
    """

    splits: tuple[int, ...] = ()

    kind: ClassVar[str] = "reduce_exchange"

    def __post_init__(self) -> None:
        many, few = self.before.summands, self.after.summands
        splits = tuple(self.splits) or tuple(range(0, many + 1, max(1, many // few)))
        if len(splits) != few + 1 or splits[0] != 0 or splits[-1] != many or list(splits) != sorted(splits):
            raise PlanFormError(
                f"{many} partial sums are split at {shown(splits)} to make {few}; split points rise from 0 to {many}, "
                f"{few + 1} of them"
            )
        object.__setattr__(self, "splits", splits)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ReduceExchange)
            and super().__eq__(other)
            # the numbers decide whether a device adds its own partial sum
            and np.array_equal(self.before.label, other.before.label)
            and np.array_equal(self.after.label, other.after.label)
        )

    __hash__ = _Step.__hash__

    def adds_own(self) -> npt.NDArray[np.bool_]:
        """`[devices]` whether the partial sum of each device belongs to its partial sum afterwards."""
        splits = np.array(self.splits, dtype=np.int64)
        before, after = self.before.label, self.after.label
        within: npt.NDArray[np.bool_] = (splits[after] <= before) & (before < splits[after + 1])
        return within


@dataclass(frozen=True, eq=False)
class ReduceScatter(_GroupStep):
    """Member k of a group ends with part k of the sum of its members' tiles, row-major over the dimensions cut.

    Attributes:
        implementation: `"native"`, the platform's reduce-scatter, which adds in an order of its own; `"alltoall"`, an
            all-to-all and a local sum in ascending order of partial sums.
    """

    implementation: ReductionWay = "native"

    kind: ClassVar[str] = "reduce_scatter"

    def received(self) -> list[int]:
        return [(self.group_size - 1) * self.after.tile_size] * self.devices

    def received_total(self) -> int:
        return (self.group_size - 1) * self.after.tile_size * self.devices


@dataclass(frozen=True, eq=False)
class AllReduce(_GroupStep):
    """Every member of a group ends with the sum of its members' tiles.

    The received elements are those of a reduce-scatter over `parts` and a gather of the parts.
    """

    kind: ClassVar[str] = "all_reduce"

    @property
    def parts(self) -> list[int]:
        """Elements of the tile, in row-major order, that each member adds up; as equal as can be."""
        part, longer = divmod(self.before.tile_size, self.group_size)
        return [part + (k < longer) for k in range(self.group_size)]

    def received(self) -> list[int]:
        result = [0] * self.devices
        for part, column in zip(self.parts, self.groups.T.tolist(), strict=True):
            for device in column:
                result[device] = self.before.tile_size + (self.group_size - 2) * part
        return result

    def sent(self) -> list[int]:
        return self.received()

    def received_total(self) -> int:
        return 2 * (self.group_size - 1) * self.before.tile_size * len(self.groups)


@dataclass(frozen=True, eq=False)
class Unreduce(_LocalStep):
    """Tiles become partial sums of tiles as large or larger, by identity elements around them or in their place.

    It makes a partial array of a replicated one (all holders but one of a tile replace it by zeros) and of a cut one
    (each device puts zeros in the place of the others' tiles).

    Attributes:
        keeps: `[devices that keep their tile]`, ascending; the others hold identity elements only.
    """

    keeps: Int64

    kind: ClassVar[str] = "unreduce"

    def __post_init__(self) -> None:
        object.__setattr__(self, "keeps", frozen(self.keeps, None))
        if self.keeps.ndim != 1:
            raise PlanFormError(f"devices that keep their tile form a list, got {self.keeps.ndim} dimensions")


Step: TypeAlias = (
    DynSlice | AllGather | AllToAll | AllPermute | Exchange | ReduceScatter | AllReduce | ReduceExchange | Unreduce
)
