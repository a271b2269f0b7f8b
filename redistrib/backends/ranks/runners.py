"""Stages of a plan, made ready to run: packing, one call of the wire, local copies, unpacking, reductions.

A run of a stage is an iterator over what it waits for. A process waits for each in turn (`move.finish`); a test plays
the runs of all ranks in one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import numpy as np

from redistrib.backends.ranks.protocols import Buffer, Pending, RankMemory, View, Wire, WireCall
from redistrib.backends.ranks.sides import Message, MessageSide
from redistrib.backends.stages import Stage, additions_in_order, by_device, reduction_of
from redistrib.plans.steps import AllGather, AllReduce, AllToAll, ReduceExchange, ReduceScatter, Unreduce
from redistrib.theory.boxes import Box


class Runner(ABC):
    """One stage, ready to run; made by all ranks together.

    Attributes:
        name: of the transport, in reports.
        scratch: words of staging memory that it needs while it runs.
        beside: bytes of memory that it allocates itself.
    """

    name: str
    scratch: int = 0
    beside: int = 0

    def __init__(self, stage: Stage, memory: RankMemory) -> None:
        self.stage, self.memory = stage, memory
        self.local_copies = [memory.copy(*runs) for runs in stage.local_copies()]

    @classmethod
    def most_bytes(cls, stage: Stage) -> int:
        """The most bytes that a runner of the stage allocates, by `scratch` and `beside`; asked before it is made."""
        return 0

    @abstractmethod
    def run(self, source: Buffer, target: Buffer, staging: Buffer) -> Iterable[Pending]:
        """Run the stage from one buffer into another, or in one for a stage in place; yields what to wait for."""

    def copy_locally(self, source: Buffer, target: Buffer) -> None:
        """Copy the box that stays on the device."""
        for copy in self.local_copies:
            copy(source, target)

    def free(self) -> None:  # noqa: B027 - most hold nothing
        """Release what the runner holds beside private memory; collective."""


class Packed(Runner):
    """A call between packed boxes. Boxes that stay on the device are copied while it is under way."""

    def __init__(
        self,
        stage: Stage,
        memory: RankMemory,
        call: WireCall,
        out: list[Message],
        into: list[Message],
        *,
        has_own: bool = False,
        overlays: bool = False,
    ) -> None:
        """Make the sides ready.

        Args:
            stage, memory, call: the stage, its memory, and the call.
            out, into: the messages that are sent and received.
            has_own: whether the call delivers the box that stays, too.
            overlays: whether the call sends from the memory that it receives into.
        """
        super().__init__(stage, memory)
        self.name, self.call, self.overlays = call.name, call, overlays
        self.into = MessageSide(into)
        self.out = MessageSide(out, self.into.in_staging)
        self.scratch = self.into.in_staging + (0 if overlays else self.out.in_staging)
        if has_own:
            self.local_copies = []

    @classmethod
    def most_bytes(cls, stage: Stage) -> int:
        step = stage.step
        if step.reduces:  # the wire adds: the tile goes out, the result comes in
            return (step.before.tile_size + step.after.tile_size) * stage.itemsize
        retained = sum(box.volume for box in stage.retained) * stage.itemsize
        return stage.sent_bytes + stage.received_bytes + 2 * retained

    def run(self, source: Buffer, target: Buffer, staging: Buffer) -> Iterator[Pending]:
        into = self.into.places(target, staging)
        out = into if self.overlays else self.out.places(source, staging)
        self.out.pack(source, out)
        pending = self.call.start(out, into)
        self.copy_locally(source, target)
        yield from pending
        self.into.unpack(into, target)


class Addition:
    """The reduction of a device: the box that stays, if there is one, and the boxes that it receives."""

    def __init__(self, stage: Stage, memory: RankMemory, firsts: Sequence[int]) -> None:
        """`firsts` are the first words of the received boxes in the buffer that they lie in."""
        self.stage, self.memory = stage, memory
        box = stage.step.after.box(stage.device)
        self.into = memory.view(stage.target(), box)
        self.parts: list[tuple[int | None, tuple[int, ...], View]] = []
        for k in additions_in_order(stage):
            part = stage.retained[0] if k is None else stage.receives[k][1]
            view = memory.view(stage.source, part) if k is None else memory.view(part, part, firsts[k])
            self.parts.append((k, part.offset_in(box), view))

    def run(
        self, source: Buffer, target: Buffer, received: Buffer, arrive: Callable[[int], object] | None = None
    ) -> None:
        """Reduce in ascending order of partial sums; `arrive` is called with the number of a box before it is read."""
        total = self.memory.total(reduction_of(self.stage), self.stage.accumulate, self.into(target))
        for k, offset, view in self.parts:
            if k is not None and arrive is not None:
                arrive(k)
            total.add(offset, view(source if k is None else received))
        total.result()


def end_to_end(stage: Stage, memory: RankMemory, order: Iterable[int]) -> list[int]:
    """The first words of the received boxes of a stage, which lie end to end in an order of their numbers."""
    firsts, at = [0] * len(stage.receives), 0
    for k in order:
        firsts[k] = at
        at += stage.receives[k][1].volume * stage.itemsize // memory.word
    return firsts


def accumulator_bytes(stage: Stage) -> int:
    """Bytes of an accumulator: a wider sum and a wider partial sum, and a mask of the elements that have a value."""
    step = stage.step
    elements = max(step.parts) if isinstance(step, AllReduce) else step.after.tile_size
    wide = 0 if stage.accumulate is None else 2 * np.dtype(stage.accumulate).itemsize
    return (wide + isinstance(step, ReduceExchange)) * elements


class Sum(Runner):
    """One message from each device that shares data, into staging memory, and a reduction there."""

    def __init__(
        self, stage: Stage, memory: RankMemory, call: WireCall, out: list[Message], words: Sequence[int]
    ) -> None:
        """`words` are the lengths of the messages received, senders ascending."""
        super().__init__(stage, memory)
        self.name, self.call, self.words = call.name, call, words
        order = sorted(range(len(stage.receives)), key=lambda k: stage.receives[k][0])  # as in the messages
        self.addition = Addition(stage, memory, end_to_end(stage, memory, order))
        self.received = sum(words)
        self.out = MessageSide(out, self.received)
        self.scratch, self.beside = self.received + self.out.in_staging, accumulator_bytes(stage)

    @classmethod
    def most_bytes(cls, stage: Stage) -> int:
        return stage.received_bytes + stage.sent_bytes + accumulator_bytes(stage)

    def run(self, source: Buffer, target: Buffer, staging: Buffer) -> Iterator[Pending]:
        into = [staging[: self.received]] if self.call.joined else _blocks(staging, self.words)
        out = self.out.places(source, staging)
        self.out.pack(source, out)
        yield from self.call.start(out, into)
        self.addition.run(source, target, staging)


class AllReduceInParts(Runner):
    """Every member reduces a part of the tile, in ascending order of partial sums, and sends it to the others."""

    def __init__(self, stage: Stage, memory: RankMemory, wire: Wire) -> None:
        super().__init__(stage, memory)
        step = cast(AllReduce, stage.step)
        self.scatter, self.gather = wire.scatter_and_gather(stage, step)
        self.name = self.scatter.name
        order, factor = step.group_of(stage.device), stage.itemsize // memory.word
        place = order.index(stage.device)
        part = step.parts[place]
        self.first, self.count = sum(step.parts[:place]) * factor, part * factor
        ascending = sorted(range(len(order)), key=lambda k: int(step.before.label[order[k]]))
        line = Box((0,), (part,))
        self.into_part = memory.view(line, line)
        self.addends = [memory.view(line, line, k * self.count) for k in ascending]
        box, size = step.before.box(stage.device), stage.itemsize
        self.rows = self.count * len(order)
        self.out = MessageSide([Message([box], stage.source, size, memory, receives=False)], self.rows)
        into = Message([box], stage.target(), size, memory, receives=True)
        self.into = MessageSide([into], self.rows + self.out.in_staging)
        self.scratch, self.beside = self.rows + self.out.in_staging + into.in_staging, accumulator_bytes(stage)

    @classmethod
    def most_bytes(cls, stage: Stage) -> int:
        step = cast(AllReduce, stage.step)
        rows = max(step.parts) * step.group_size
        return (rows + step.before.tile_size + step.after.tile_size) * stage.itemsize + accumulator_bytes(stage)

    def run(self, source: Buffer, target: Buffer, staging: Buffer) -> Iterator[Pending]:
        rows = staging[: self.rows]
        out, places = self.out.places(source, staging), self.into.places(target, staging)
        self.out.pack(source, out)
        yield from self.scatter.start(out, [rows])
        reduced = places[0][self.first : self.first + self.count]
        if self.count:
            total = self.memory.total(reduction_of(self.stage), self.stage.accumulate, self.into_part(reduced))
            for addend in self.addends:
                total.add((0,), addend(rows))
            total.result()
        yield from self.gather.start([reduced], places)
        self.into.unpack(places, target)


class IdentityFill(Runner):
    """Identity elements in the target, and a copy of the box that stays; no messages."""

    name = "local"

    def __init__(self, stage: Stage, memory: RankMemory) -> None:
        super().__init__(stage, memory)
        self.view = memory.view(stage.target(), stage.step.after.box(stage.device))

    def run(self, source: Buffer, target: Buffer, staging: Buffer) -> Iterable[Pending]:
        self.memory.total(reduction_of(self.stage), None, self.view(target)).result()
        self.copy_locally(source, target)
        return ()


def kind_of_runner(stage: Stage) -> type[Runner]:
    """The class of the runner of a stage; but `Packed` of one that adds by a collective of the platform."""
    match stage.step:
        case Unreduce():
            return IdentityFill
        case AllReduce():
            return AllReduceInParts
        case ReduceScatter() | ReduceExchange():
            return Sum
    return Packed


def runner_of(stage: Stage, wire: Wire, memory: RankMemory) -> Runner:
    """The runner of a stage; collective."""
    kind = kind_of_runner(stage)
    if kind is IdentityFill:
        return IdentityFill(stage, memory)
    collective = _collective(stage, wire, memory)
    if collective is not None:
        return collective
    if kind is AllReduceInParts:
        return AllReduceInParts(stage, memory, wire)
    sides = by_device(stage.sends), by_device(stage.receives)
    sends, receives = (
        [(peer, sum(box.volume for box in boxes) * stage.itemsize // memory.word) for peer, boxes in side]
        for side in sides
    )
    call = wire.exchange(stage, sends, receives)

    def messages(side: list[tuple[int, list[Box]]], tile: Box, are_received: bool) -> list[Message]:
        groups = [boxes for _, boxes in side]
        if call.joined:
            groups = [[box for boxes in groups for box in boxes]]
        return [Message(boxes, tile, stage.itemsize, memory, are_received) for boxes in groups]

    out = messages(sides[0], stage.source, False)
    if kind is Sum:
        return Sum(stage, memory, call, out, [words for _, words in receives])
    return Packed(stage, memory, call, out, messages(sides[1], stage.target(), True))


def _collective(stage: Stage, wire: Wire, memory: RankMemory) -> Runner | None:
    """The runner of a stage over groups by a collective of the platform; None if none is used."""
    step, size = stage.step, stage.itemsize
    if not isinstance(step, AllGather | AllToAll | ReduceScatter | AllReduce):
        return None
    if isinstance(step, AllReduce):
        out, into = [step.before.box(stage.device)], [step.after.box(stage.device)]
    else:
        own = [step.after.box(stage.device)] if isinstance(step, ReduceScatter) else stage.retained
        order = wire.members(step) if own else []
        sends, receives = dict(stage.sends), dict(stage.receives)
        out = own if isinstance(step, AllGather) else [sends.get(member, own[0]) for member in order]
        into = own if isinstance(step, ReduceScatter) else [receives.get(member, own[0]) for member in order]
    received = Message(into, stage.target(), size, memory, receives=True)
    gathers = isinstance(step, AllGather) and stage.reads == stage.writes and received.start is not None
    call = wire.collective(stage, gathers)
    if call is None:
        return None
    overlays = call.in_place and isinstance(step, AllReduce)
    sent = Message(out, stage.source, size, memory, receives=False, aside=overlays or (gathers and not call.in_place))
    return Packed(stage, memory, call, [sent], [received], has_own=True, overlays=overlays)


def _blocks(buffer: Buffer, words: Sequence[int]) -> list[Buffer]:
    """Blocks of a buffer, one after the other."""
    blocks, at = [], 0
    for count in words:
        blocks.append(buffer[at : at + count])
        at += count
    return blocks
