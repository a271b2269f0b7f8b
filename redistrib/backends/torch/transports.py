"""Transports of stages that move tiles: point to point, one all-to-all, or the platform's all-gather.

A runner is created once, by all ranks of the group with the same plan, and runs any number of times on flat tensors of
words. Boxes that stay on the device are copied while messages are under way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
import torch.distributed as dist

from redistrib.backends.stages import Stage, by_device
from redistrib.backends.torch.copies import Copy, Message
from redistrib.backends.torch.links import Links, can_go_native
from redistrib.plans.steps import AllGather, ReduceScatter, Step
from redistrib.theory.boxes import Box

# Tiles of at least so many bytes go by gloo's collectives. These use rings, with as many turns as ranks, which are slow
# for short messages; but they cross the links between hosts least often.
LONG = 1 << 16


GroupStep = AllGather | ReduceScatter


class TensorRunner(ABC):
    """One stage, ready to run.

    Attributes:
        name: of the transport, in reports.
        scratch: bytes of staging memory that it needs while it runs.
    """

    name: ClassVar[str]
    scratch: int = 0

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.word = min(8, stage.itemsize)

    @abstractmethod
    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        """Run the stage between flat tensors of words, which are one tensor for a stage in place."""

    def _local_copies(self) -> list[Copy]:
        return [Copy.of(source, target, self.word) for source, target in self.stage.local_copies()]


class PointToPoint(TensorRunner):
    """One message between each pair of devices that share data."""

    name = "point_to_point"

    def __init__(self, stage: Stage, links: Links) -> None:
        super().__init__(stage)
        self.links = links
        size, word = stage.itemsize, self.word
        self.out = [Message(d, boxes, stage.source, size, word) for d, boxes in by_device(stage.sends)]
        self.into = [Message(d, boxes, stage.target(), size, word) for d, boxes in by_device(stage.receives)]
        self.copies = self._local_copies()
        self.scratch = sum(message.staged for message in (*self.out, *self.into)) * word

    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        sends, receives, at = [], [], 0
        for message in self.into:
            receives.append((message.peer, message.place(target, staging, at)))
            at += message.staged
        for message in self.out:
            place = message.place(source, staging, at)
            message.pack(source, place)
            sends.append((message.peer, place))
            at += message.staged
        works = self.links.start(sends, receives)
        for copy in self.copies:
            copy.run(source, target)
        for work in works:
            work.wait()
        for message, (_, place) in zip(self.into, receives, strict=True):
            message.unpack(place, target)


class AllToAllOnce(TensorRunner):
    """One `all_to_all_single` of the whole group, with messages of any lengths."""

    name = "all_to_all"

    def __init__(self, stage: Stage, links: Links) -> None:
        super().__init__(stage)
        self.links = links
        size, word = stage.itemsize, self.word
        self.copies = self._local_copies()
        self.out = [Message(d, boxes, stage.source, size, word) for d, boxes in by_device(stage.sends)]
        self.into = [Message(d, boxes, stage.target(), size, word) for d, boxes in by_device(stage.receives)]
        self.sent, self.received = self._lengths(self.out), self._lengths(self.into)
        self.scratch = (sum(self.sent) + sum(self.received)) * word

    def _lengths(self, side: list[Message]) -> list[int]:
        lengths = [0] * self.links.size
        for message in side:
            lengths[message.peer] = message.count
        return lengths

    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        middle = sum(self.sent)
        out, into = staging[:middle], staging[middle : middle + sum(self.received)]
        at = 0
        for message in self.out:
            message.pack_into(source, out[at : at + message.count])
            at += message.count
        work = dist.all_to_all_single(into, out, self.received, self.sent, group=self.links.group, async_op=True)
        for copy in self.copies:
            copy.run(source, target)
        work.wait()
        at = 0
        for message in self.into:
            message.unpack_from(into[at : at + message.count], target)
            at += message.count


class NativeCollective(TensorRunner):
    """A collective of the platform over groups of devices, between packed boxes."""

    name = "native"

    def __init__(
        self, stage: Stage, step: GroupStep, sent: Sequence[Box], received: Sequence[Box], links: Links
    ) -> None:
        super().__init__(stage)
        self.links, self.group = links, links.subgroup(step.groups)
        self.out = Message(stage.device, sent, stage.source, stage.itemsize, self.word)
        self.into = Message(stage.device, received, stage.target(), stage.itemsize, self.word)
        self.scratch = (self.out.staged + self.into.staged) * self.word

    @abstractmethod
    def collective(self, into: torch.Tensor, out: torch.Tensor, spare: torch.Tensor) -> None:
        """Call the platform; `spare` is the rest of the staging memory."""

    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        out = self.out.place(source, staging, 0)
        self.out.pack(source, out)
        into = self.into.place(target, staging, self.out.staged)
        self.collective(into, out, staging[self.out.staged + self.into.staged :])
        self.into.unpack(into, target)


def boxes_by_member(stage: Stage, step: GroupStep, shared: Sequence[tuple[int, Box]], own_box: Box) -> list[Box]:
    """The box shared with each member of the device's group, ranks ascending; `own` for the device itself."""
    boxes = dict(shared)
    return [boxes.get(member, own_box) for member in sorted(step.group_of(stage.device))]


class NativeGather(NativeCollective):
    """`all_gather_into_tensor`."""

    def __init__(self, stage: Stage, step: AllGather, links: Links) -> None:
        own_box = stage.retained[0]
        super().__init__(stage, step, [own_box], boxes_by_member(stage, step, stage.receives, own_box), links)
        # In place, the collective would send from the memory that it receives into.
        self.in_place = stage.reads == stage.writes and self.into.start is not None
        if self.in_place:
            self.scratch += self.out.count * self.word

    def collective(self, into: torch.Tensor, out: torch.Tensor, spare: torch.Tensor) -> None:
        if self.in_place:
            out = spare[: self.out.count].copy_(out)
        self.links.all_gather_into(into, out, self.group)


def everyone_shares(step: Step) -> bool:
    """Whether every device sends to every other device in a step."""
    table = step.transfers()
    pairs = np.unique(table.sender * step.devices + table.receiver)
    return step.devices > 1 and len(pairs) == step.devices * (step.devices - 1)


def moving(stage: Stage, links: Links) -> TensorRunner:
    """The runner of a stage that moves tiles."""
    step = stage.step
    if isinstance(step, AllGather) and can_go_native(links, step.groups):
        whole = step.after.tile_size * stage.itemsize
        # Between two devices, messages take fewer copies and need no gate.
        if whole and (links.batched or (whole >= LONG and not (links.tagged and step.group_size == 2))):
            return NativeGather(stage, step, links)
    if links.whole and not links.tagged and everyone_shares(step):
        return AllToAllOnce(stage, links)
    return PointToPoint(stage, links)
