"""A plan cut into stages: the steps that move data, and the memory each reads and writes.

A slice moves nothing: the next stage reads its box where it lies. Where only gathers follow, a stage writes straight
into the final tile, and the gathers fill in the rest around it. So slice, exchange, gather needs no memory beside
source and target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, DynSlice, Step
from redistrib.plans.strided import Strided, pair
from redistrib.plans.transfers import Transfers, transfers
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
        itemsize: bytes per element.
    """

    step: Step
    reads: Memory
    writes: Memory
    held: Placement
    made: Placement
    device: int
    itemsize: int

    @property
    def source(self) -> Box:
        """The box in the memory that is read."""
        return self.held.box(self.device)

    def target(self, device: int | None = None) -> Box:
        """The box in the memory that a device writes; this device's by default."""
        return self.made.box(self.device if device is None else device)

    @cached_property
    def transfers(self) -> Transfers:
        """What this device sends and receives."""
        return transfers(self.step, self.device)

    @cached_property
    def sends(self) -> list[tuple[int, Box]]:
        """(receiver, box), one for each that this device sends."""
        return self.transfers.sends(self.device)

    @cached_property
    def receives(self) -> list[tuple[int, Box]]:
        """(sender, box), one for each that this device receives."""
        return self.transfers.receives(self.device)

    @property
    def kept(self) -> list[Box]:
        """What stays on this device: one box or none."""
        box = self.transfers.stays.row(self.device)
        return [box] if box.volume else []

    def keeps(self) -> list[tuple[Strided, Strided]]:
        """Copies (from, to) of what stays on the device; none where it already lies in place."""
        if self.reads == self.writes:
            return []
        target = self.target()
        return [pair(box, self.source, target, self.itemsize) for box in self.kept]

    @property
    def sent_bytes(self) -> int:
        """Bytes this device sends to others."""
        return sum(box.volume for _, box in self.sends) * self.itemsize

    @property
    def received_bytes(self) -> int:
        """Bytes this device receives from others."""
        return sum(box.volume for _, box in self.receives) * self.itemsize


@dataclass(frozen=True)
class StagedPlan:
    """All stages of a plan for one device.

    Attributes:
        stages: in order.
        last: the memory that holds the result, and the placement of the tile it holds; where that is not the target
            itself, a last local copy makes it so.
        middle: bytes of the two memories between source and target.
    """

    stages: tuple[Stage, ...]
    last: Memory
    held: Placement
    middle: tuple[int, int]


def staged(plan: Plan, device: int) -> StagedPlan:
    """A plan with memory assigned to every step."""
    moving = [k for k, step in enumerate(plan.steps) if not isinstance(step, DynSlice)]
    reads: Memory = "source"
    held = plan.before
    stages: list[Stage] = []
    middle = [0, 0]
    flip = 0
    for k in moving:
        step = plan.steps[k]
        writes: Memory
        if all(isinstance(later, AllGather) for later in plan.steps[k + 1 :]):
            writes, made = "target", plan.after
        else:
            writes, made = ("middle 1", step.after) if flip else ("middle 0", step.after)
            middle[flip] = max(middle[flip], made.tile_size * plan.itemsize)
            flip = 1 - flip
        stages.append(Stage(step, reads, writes, held, made, device, plan.itemsize))
        reads, held = writes, made
    return StagedPlan(tuple(stages), reads, held, (middle[0], middle[1]))
