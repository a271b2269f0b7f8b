"""A plan cut into stages: the steps that move data, and the memory each reads and writes.

A slice moves nothing: the next stage reads its box where it lies. Where only gathers follow, a stage writes straight
into the final tile, and the gathers fill in the rest around it. So slice, exchange, gather needs no memory beside
source and target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from redistrib.plans.dtypes import dtype_of
from redistrib.plans.messages import Messages, messages
from redistrib.plans.plan import Plan
from redistrib.plans.shares import Shares
from redistrib.plans.steps import AllGather, AllReduce, DynSlice, Exchange, ReduceExchange, Step
from redistrib.plans.strided import Strided, pair
from redistrib.programs.direct import pulls_between
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Placement

Memory: TypeAlias = Literal["source", "middle 0", "middle 1", "target"]


@dataclass(frozen=True)
class Stage:
    """One step that moves data, for one device.

    Attributes:
        step: the step.
        reads, writes: which memory it reads and writes; the same one where a gather fills a tile in place.
        held, made: the placements of the whole tiles in those memories, of which the step may touch a part.
        device: this device's number.
        dtype: element type.
        accumulate: name of the element type that summands are added in; None for their own.
    """

    step: Step
    reads: Memory
    writes: Memory
    held: Placement
    made: Placement
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
        return self.held.box(self.device)

    def target(self, device: int | None = None) -> Box:
        """The box in the memory that a device writes; this device's by default."""
        return self.made.box(self.device if device is None else device)

    @cached_property
    def messages(self) -> Messages:
        """The messages from and to this device."""
        return messages(self.step, self.device)

    @cached_property
    def sends(self) -> list[tuple[int, Box]]:
        """(receiver, box), one for each that this device sends."""
        return self.messages.sends(self.device)

    @cached_property
    def receives(self) -> list[tuple[int, Box]]:
        """(sender, box), one for each that this device receives."""
        return self.messages.receives(self.device)

    @property
    def kept(self) -> list[Box]:
        """What stays on this device: one box or none; none where all of the tile is reduced."""
        if isinstance(self.step, AllReduce):
            return []
        box = self.messages.retained.row(self.device)
        return [box] if box.volume else []

    def keeps(self) -> list[tuple[Strided, Strided]]:
        """Copies (from, to) of what stays on the device; none where it already lies in place."""
        if self.reads == self.writes:
            return []
        target = self.target()
        return [pair(box, self.source, target, self.itemsize) for box in self.kept]

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
            return self._all_reduced_bytes(self.step)
        return sum(box.volume for _, box in self.sends) * self.itemsize

    @property
    def received_bytes(self) -> int:
        """Bytes this device receives from others."""
        if isinstance(self.step, AllReduce):
            return self._all_reduced_bytes(self.step)
        return sum(box.volume for _, box in self.receives) * self.itemsize

    def _all_reduced_bytes(self, step: AllReduce) -> int:
        """In or out: all of the tile but the own part, or that part from all others; then the one or the other sum."""
        part = step.parts[step.group_of(self.device).index(self.device)]
        return (step.before.tile_size + (step.group_size - 2) * part) * self.itemsize


@dataclass(frozen=True)
class StagedPlan:
    """All stages of a plan for one device.

    Attributes:
        stages: in order.
        last: the memory that holds the result, and the placement of the tile it holds; where that is not the target
            itself, a last local copy makes it so.
        after: the target's placement.
        middle: bytes of the two memories between source and target.
    """

    stages: tuple[Stage, ...]
    last: Memory
    held: Placement
    after: Placement
    middle: tuple[int, int]


def staged(plan: Plan, device: int) -> StagedPlan:
    """A plan with memory assigned to every step."""
    if plan.before.rank:
        steps, held, after = plan.steps, plan.before, plan.after
    else:
        steps, held, after = tuple(map(_lined, plan.steps)), _line(plan.before), _line(plan.after)
    dtype = dtype_of(plan.dtype)
    moving = [k for k, step in enumerate(steps) if not isinstance(step, DynSlice)]
    reads: Memory = "source"
    stages: list[Stage] = []
    middle = [0, 0]
    flip = 0
    for k in moving:
        step = steps[k]
        writes: Memory
        if all(isinstance(later, AllGather) for later in steps[k + 1 :]):
            writes, made = "target", after
        else:
            writes, made = ("middle 1", step.after) if flip else ("middle 0", step.after)
            middle[flip] = max(middle[flip], made.tile_size * plan.itemsize)
            flip = 1 - flip
        stages.append(Stage(step, reads, writes, held, made, device, dtype, plan.accumulate))
        reads, held = writes, made
    return StagedPlan(tuple(stages), reads, held, after, (middle[0], middle[1]))


def staged_directly(plan: Plan, device: int) -> StagedPlan:
    """A plan as one exchange from source to target, with no memory between: each device takes what it lacks."""
    before, after = plan.before, plan.after
    everyone = range(before.devices)
    moved = [p for p in pulls_between(before, everyone, after.boxes.rows(), everyone) if p.sender != p.receiver]
    shares = Shares(
        np.array([p.sender for p in moved]),
        np.array([p.receiver for p in moved]),
        np.array([p.start for p in moved]).reshape(-1, before.rank),
        np.array([p.size for p in moved]).reshape(-1, before.rank),
        np.arange(len(moved)),
    )
    step = Exchange(before, after, shares, "ragged")
    stage = Stage(step, "source", "target", before, after, device, dtype_of(plan.dtype))
    return StagedPlan((stage,), "target", after, after, (0, 0))


def _line(placement: Placement) -> Placement:
    """A scalar's placement as that of a line of one element: a box of a line can be empty, that of a scalar cannot."""
    return Placement((1,), (1,), np.zeros((placement.devices, 1), dtype=np.int64), *placement.partial)


def _lined(step: Step) -> Step:
    """A step on scalars as one on lines of one element."""
    ends: dict[str, Any] = {"before": _line(step.before), "after": _line(step.after)}
    if isinstance(step, Exchange | ReduceExchange):
        shares, column = step.shares, np.ones((len(step.shares), 1), dtype=np.int64)
        return replace(step, **ends, shares=replace(shares, start=0 * column, size=column))
    return replace(step, **ends)
