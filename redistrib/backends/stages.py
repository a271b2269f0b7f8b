"""A plan as stages: its steps that move data, and the memory that each of them reads and writes.

A slice moves no data: the next stage reads the box inside the larger tile. Before gathers, a stage writes into the
target's memory, and the gathers fill in the rest of it. So a plan of a slice, an exchange and a gather needs no memory
besides source and target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from redistrib.lang.notation import Reduction
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllReduce, DynSlice, Exchange, ReduceScatter, Step
from redistrib.plans.strided import Strided, runs_in_both
from redistrib.plans.transfers import Transfers, lacking
from redistrib.theory.boxes import Box, Boxes
from redistrib.theory.placement import Placement

Memory: TypeAlias = Literal["source", "middle 0", "middle 1", "target"]


@dataclass(frozen=True)
class Stage:
    """One step that moves data, for one device.

    Attributes:
        step: the step.
        reads, writes: the memory it reads and the memory it writes; one memory where a gather fills a tile in place.
        source_placement, target_placement: placements of the tiles that these memories hold. The step may touch a part
            of such a tile.
        device: number of this device.
        dtype: element type.
        accumulate: name of the element type that partial sums are added in; None for their own.
    """

    step: Step
    reads: Memory
    writes: Memory
    source_placement: Placement
    target_placement: Placement
    device: int
    dtype: np.dtype[Any]
    accumulate: str | None = None

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(self.dtype.itemsize)

    @property
    def source(self) -> Box:
        """The box in the memory that is read."""
        return self.source_placement.box(self.device)

    def target(self, device: int | None = None) -> Box:
        """The box in the memory that a device writes; this device's by default."""
        return self.target_placement.box(self.device if device is None else device)

    @cached_property
    def transfers(self) -> Transfers:
        """The transfers from and to this device."""
        return self.step.transfers(self.device)

    @cached_property
    def sends(self) -> list[tuple[int, Box]]:
        """(receiver, box), one for each that this device sends."""
        return self.transfers.sends(self.device)

    @cached_property
    def receives(self) -> list[tuple[int, Box]]:
        """(sender, box), one for each that this device receives."""
        return self.transfers.receives(self.device)

    @property
    def retained(self) -> list[Box]:
        """The box that stays on this device, or none; none in an all-reduce."""
        if isinstance(self.step, AllReduce):
            return []
        box = self.step.retained().row(self.device)
        return [box] if box.volume else []

    def local_copies(self) -> list[tuple[Strided, Strided]]:
        """Copies (from, to) of the box that stays on this device; none where it lies in place already."""
        if self.reads == self.writes:
            return []
        target = self.target()
        return [runs_in_both(box, self.source, target, self.itemsize) for box in self.retained]

    @property
    def partners(self) -> set[int]:
        """Devices that this one sends to or receives from."""
        if isinstance(self.step, AllReduce):
            return {*self.step.group_of(self.device)} - {self.device}
        return {device for device, _ in self.sends + self.receives}

    @property
    def sent_bytes(self) -> int:
        """Bytes this device sends to others."""
        if isinstance(self.step, AllReduce):
            return self.step.sent()[self.device] * self.itemsize
        return sum(box.volume for _, box in self.sends) * self.itemsize

    @property
    def received_bytes(self) -> int:
        """Bytes this device receives from others."""
        if isinstance(self.step, AllReduce):
            return self.step.received()[self.device] * self.itemsize
        return sum(box.volume for _, box in self.receives) * self.itemsize


@dataclass(frozen=True)
class StagedPlan:
    """All stages of a plan for one device.

    Attributes:
        stages: in order.
        last: the memory that holds the result after the last stage. If it is not the target's, the result is copied
            there.
        last_placement: the placement of the tiles in that memory.
        after: placement of the target.
        middle: bytes of the two memories between source and target.
    """

    stages: tuple[Stage, ...]
    last: Memory
    last_placement: Placement
    after: Placement
    middle: tuple[int, int]


def staged(plan: Plan, device: int) -> StagedPlan:
    """The stages of a plan, each with the memory that it reads and writes."""
    if plan.before.rank:
        steps, source, after = plan.steps, plan.before, plan.after
    else:
        steps, source, after = tuple(map(_step_on_lines, plan.steps)), _line(plan.before), _line(plan.after)
    dtype = dtype_of(plan.dtype)
    reads: Memory = "source"
    stages: list[Stage] = []
    middle = [0, 0]
    turn = 0
    for k, step in enumerate(steps):
        if isinstance(step, DynSlice):
            continue
        writes: Memory = "target"
        target = after
        if not all(isinstance(later, AllGather) for later in steps[k + 1 :]):
            writes, target = ("middle 1" if turn else "middle 0"), step.after
            middle[turn] = max(middle[turn], target.tile_size * plan.itemsize)
            turn = 1 - turn
        stages.append(Stage(step, reads, writes, source, target, device, dtype, plan.accumulate))
        reads, source = writes, target
    return StagedPlan(tuple(stages), reads, source, after, (middle[0], middle[1]))


def staged_directly(plan: Plan, device: int) -> StagedPlan:
    """A plan as one exchange from source to target, without memory between: every device receives its missing boxes."""
    before, after = plan.before, plan.after
    devices = range(before.devices)
    sends = lacking(before, devices, after.boxes, devices).travelling
    step = Exchange(before, after, replace(sends, round=np.arange(len(sends))), "ragged")
    stage = Stage(step, "source", "target", before, after, device, dtype_of(plan.dtype))
    return StagedPlan((stage,), "target", after, after, (0, 0))


def _line(placement: Placement) -> Placement:
    """The placement of a scalar as a line of one element: a box of rank 0 cannot be empty, a box of a line can."""
    return Placement((1,), (1,), np.zeros((placement.devices, 1), dtype=np.int64), *placement.partial)


def _step_on_lines(step: Step) -> Step:
    """A step on scalars as a step on lines of one element."""

    def on_lines(shares: Transfers) -> Transfers:
        column = np.ones((len(shares), 1), dtype=np.int64)
        return replace(shares, box=Boxes(0 * column, column))

    return step.placed(_line(step.before), _line(step.after), boxes=on_lines)


def by_device(moves: Sequence[tuple[int, Box]]) -> list[tuple[int, list[Box]]]:
    """Boxes by their sender or receiver, ascending."""
    boxes: dict[int, list[Box]] = {}
    for device, box in moves:
        boxes.setdefault(device, []).append(box)
    return sorted(boxes.items())


def adds_natively(step: Step) -> bool:
    """Whether a step is left to the platform's own reduction, which adds in any order."""
    return isinstance(step, AllReduce) or (isinstance(step, ReduceScatter) and step.implementation == "native")


def reduction_of(stage: Stage) -> Reduction:
    """The reduction of a stage that reduces or makes partial sums."""
    return cast(Reduction, stage.step.before.reduction or stage.step.after.reduction)


def additions_in_order(stage: Stage) -> list[int | None]:
    """The boxes that a device adds, in ascending order of partial sums: numbers in `stage.receives`, None: its own."""
    label = stage.step.before.label
    order = sorted(range(len(stage.receives)), key=lambda k: int(label[stage.receives[k][0]]))
    before = sum(label[stage.receives[k][0]] < label[stage.device] for k in order)
    slots: list[int | None] = [None] if stage.retained else []
    return [*order[:before], *slots, *order[before:]]
