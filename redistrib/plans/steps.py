"""The steps of a plan: frozen values, each one collective over explicit device groups.

Every step has a placement before and after. The data that moves follows from these two and from the groups, pairs or
shares alone: `transfers` says it, `received` and `sent` count it, `verify` checks it, `reference` and the backends move
it. All that is known of a kind of step stands in its class. Apart from it, on purpose, are `verify` and `reference`,
the prices of cost models, what backends make of it, and the checker in Coq.

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
from redistrib.plans.fields import DeviceField, Field, SplitField, WordField
from redistrib.plans.step import KINDS as KINDS
from redistrib.plans.step import NONE, GroupStep, LocalStep, MessageStep, ShareStep, kind_of_step
from redistrib.plans.step import Step as Step
from redistrib.plans.transfers import Transfers, frozen
from redistrib.report import counted
from redistrib.theory.placement import Int64

ReductionWay: TypeAlias = Literal["native", "alltoall"]


@kind_of_step
@dataclass(frozen=True, eq=False)
class DynSlice(LocalStep):
    """Every device keeps a box of its tile (T-DynSlice, over any number of dimensions at once)."""

    kind: ClassVar[str] = "dynslice"


@kind_of_step
@dataclass(frozen=True, eq=False)
class AllGather(MessageStep):
    """Every member receives the tiles of all members (T-AllGather, over any number of dimensions at once)."""

    kind: ClassVar[str] = "allgather"

    @property
    def message(self) -> int:
        return self.before.tile_size

    def scratch(self, sequential: bool) -> int:
        grown = [i for i, (b, a) in enumerate(zip(self.before.grid, self.after.grid, strict=True)) if b != a]
        leading = len(grown) <= 1 and all(self.before.tile[i] == 1 for i in range(max(grown, default=0)))
        return 0 if leading else self.after.tile_size


@kind_of_step
@dataclass(frozen=True, eq=False)
class AllToAll(MessageStep):
    """Every member receives one share from every member, itself included.

    The share from a to b is the box before(a) & after(b). Shares may repeat: where two members end with the same
    tile, both are sent the same boxes, which fuses an exchange and a gather.
    """

    kind: ClassVar[str] = "alltoall"

    @property
    def share(self) -> tuple[int, ...]:
        """Shape of every share, in elements."""
        return tuple(min(b, a) for b, a in zip(self.before.tile, self.after.tile, strict=True))

    @property
    def message(self) -> int:
        return math.prod(self.share)

    def scratch(self, sequential: bool) -> int:
        return 2 * self.group_size * self.message


@kind_of_step
@dataclass(frozen=True, eq=False)
class AllPermute(Step):
    """Whole tiles change places (T-Permute).

    Attributes:
        pairs: `[pairs, 2]` device numbers (sender, receiver); a device sends at most once, receives at most once,
            and never to itself. A device that receives nothing keeps its tile.
    """

    pairs: Int64

    kind: ClassVar[str] = "allpermute"
    fields: ClassVar[tuple[Field, ...]] = (DeviceField("pairs", 2),)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", frozen(self.pairs, 2))
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2:
            raise PlanFormError(f"pairs form a table [pairs, 2], got shape {self.pairs.shape}")

    def _transfers(self, device: int | None) -> Transfers:
        pairs = self.pairs if device is None else self.pairs[(self.pairs == device).any(axis=1)]
        return self._between(pairs[:, 0], pairs[:, 1], np.zeros(len(pairs), dtype=np.int64))

    def _replaced(self) -> Int64:
        return self.pairs[:, 1]  # the whole tile arrives

    def received(self) -> list[int]:
        return self._tiles(self.pairs[:, 1])

    def received_total(self) -> int:
        return len(self.pairs) * self.before.tile_size

    def sent(self) -> list[int]:
        return self._tiles(self.pairs[:, 0])

    def _tiles(self, devices: Int64) -> list[int]:
        """A tile for every time that a device is named."""
        return [times * self.before.tile_size for times in np.bincount(devices, minlength=self.devices).tolist()]

    @property
    def collectives(self) -> int:
        return 1

    @property
    def participants(self) -> str:
        return counted(len(self.pairs), "pair", "pairs")

    def scratch(self, sequential: bool) -> int:
        return self.before.tile_size


@kind_of_step
@dataclass(frozen=True, eq=False)
class Exchange(ShareStep):
    """Shares travel from devices that hold them to devices that lack them, in rounds.

    Device d starts from before(d) & after(d), which stays where it is.
    """

    kind: ClassVar[str] = "exchange"

    def _replaced(self) -> Int64:
        if self.before.summands == 1:
            return NONE
        return np.flatnonzero(self.before.label != self.after.label)  # another partial sum of the tile may arrive


@kind_of_step
@dataclass(frozen=True, eq=False)
class ReduceScatter(MessageStep):
    """Member k of a group ends with part k of the sum of its members' tiles, row-major over the dimensions cut.

    Attributes:
        implementation: `"native"`, the platform's reduce-scatter, which adds in an order of its own; `"alltoall"`, an
            all-to-all and a local sum in ascending order of partial sums.
    """

    implementation: ReductionWay = "native"

    kind: ClassVar[str] = "reduce_scatter"
    fields: ClassVar[tuple[Field, ...]] = (
        WordField("implementation", ("native", "alltoall"), "a reduction"),
        *GroupStep.fields,
    )
    version: ClassVar[int] = 2
    reduces: ClassVar[bool] = True

    @property
    def message(self) -> int:
        return self.after.tile_size

    def scratch(self, sequential: bool) -> int:
        return self.before.tile_size * (1 if self.implementation == "native" else 2)


@kind_of_step
@dataclass(frozen=True, eq=False)
class AllReduce(GroupStep):
    """Every member of a group ends with the sum of its members' tiles.

    The received elements are those of a reduce-scatter over `parts` and a gather of the parts.
    """

    kind: ClassVar[str] = "all_reduce"
    version: ClassVar[int] = 2
    reduces: ClassVar[bool] = True

    @property
    def parts(self) -> list[int]:
        """Elements of the tile, in row-major order, that each member adds up; as equal as can be."""
        part, longer = divmod(self.before.tile_size, self.group_size)
        return [part + (k < longer) for k in range(self.group_size)]

    def _transfers(self, device: int | None) -> Transfers:
        raise PlanFormError(
            f"what travels in a step {self.kind} is left to the platform; "
            "a reduce_scatter and an allgather do the same and say what travels"
        )

    def received(self) -> list[int]:
        result = [0] * self.devices
        for part, column in zip(self.parts, self.groups.T.tolist(), strict=True):
            for device in column:
                result[device] = self.before.tile_size + (self.group_size - 2) * part
        return result

    def received_total(self) -> int:
        return 2 * (self.group_size - 1) * self.before.tile_size * len(self.groups)

    def scratch(self, sequential: bool) -> int:
        return self.before.tile_size


@kind_of_step
@dataclass(frozen=True, eq=False)
class ReduceExchange(ShareStep):
    """An exchange whose receivers add: shares of different partial sums of one box become their sum.

    Attributes:
        splits: partial sum j after the step is the sum of the partial sums `splits[j]` to `splits[j + 1] - 1` before
            it, of none if these are equal. By default runs of equal length, which needs `after.summands` to divide
            `before.summands`. A device adds its own partial sum iff it belongs to the run of its partial sum
            afterwards.
    """

    splits: tuple[int, ...] = ()

    kind: ClassVar[str] = "reduce_exchange"
    fields: ClassVar[tuple[Field, ...]] = (*ShareStep.fields, SplitField("splits"))
    version: ClassVar[int] = 2
    reduces: ClassVar[bool] = True
    compares_labels: ClassVar[bool] = True  # they decide whether a device adds its own partial sum

    def __post_init__(self) -> None:
        many, few = self.before.summands, self.after.summands
        splits = tuple(self.splits) or tuple(range(0, many + 1, max(1, many // few)))
        if len(splits) != few + 1 or splits[0] != 0 or splits[-1] != many or list(splits) != sorted(splits):
            raise PlanFormError(
                f"{many} partial sums are split at {shown(splits)} to make {few}; split points rise from 0 to {many}, "
                f"{few + 1} of them"
            )
        object.__setattr__(self, "splits", splits)

    def adds_own(self) -> npt.NDArray[np.bool_]:
        """`[devices]` whether the partial sum of each device belongs to its partial sum afterwards."""
        splits = np.array(self.splits, dtype=np.int64)
        before, after = self.before.label, self.after.label
        within: npt.NDArray[np.bool_] = (splits[after] <= before) & (before < splits[after + 1])
        return within

    def _replaced(self) -> Int64:
        return np.flatnonzero(~self.adds_own())


@kind_of_step
@dataclass(frozen=True, eq=False)
class Unreduce(LocalStep):
    """Tiles become partial sums of tiles as large or larger, by identity elements around them or in their place.

    It makes a partial array of a replicated one (all holders but one of a tile replace it by zeros) and of a cut one
    (each device puts zeros in the place of the others' tiles).

    Attributes:
        keeps: `[devices that keep their tile]`, ascending; the others hold identity elements only.
    """

    keeps: Int64

    kind: ClassVar[str] = "unreduce"
    fields: ClassVar[tuple[Field, ...]] = (DeviceField("keeps", 0),)
    version: ClassVar[int] = 2
    reduces: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "keeps", frozen(self.keeps, None))
        if self.keeps.ndim != 1:
            raise PlanFormError(f"devices that keep their tile form a list, got {self.keeps.ndim} dimensions")

    def _replaced(self) -> Int64:
        return np.setdiff1d(np.arange(self.devices), self.keeps)  # identity elements take the place of its tile
