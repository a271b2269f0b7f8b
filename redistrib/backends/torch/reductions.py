"""Runners of stages that reduce, and of the stage that makes partial sums.

Received boxes are staged, and then reduced in ascending order of partial sums. The platform reduces long tiles alone,
if the plan leaves it the order and the element type of the sum is that of the array; see `is_native`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from redistrib.backends.stages import Stage, additions_in_order, reduction_of
from redistrib.backends.torch.copies import Copy, Message
from redistrib.backends.torch.dtypes import as_numpy, torch_dtype, words
from redistrib.backends.torch.links import Links, can_go_native
from redistrib.backends.torch.sums import TensorAccumulator
from redistrib.backends.torch.transports import LONG, NativeCollective, PointToPoint, TensorRunner, boxes_by_member
from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import Accumulator, identity
from redistrib.plans.steps import AllReduce, ReduceExchange, ReduceScatter, Unreduce
from redistrib.plans.strided import Ints, runs_in, runs_in_both

_OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
# Element types that the platforms reduce as NumPy does; a maximum of floats may lose a NaN.
_SUMS = ("int8", "uint8", "int32", "int64", "float32", "float64")
_EXTREMES = ("int8", "uint8", "int32", "int64")


def is_native(stage: Stage, links: Links) -> bool:
    """Whether the platform may reduce in a stage."""
    step = stage.step
    if not isinstance(step, AllReduce | ReduceScatter) or not can_go_native(links, step.groups):
        return False
    free = isinstance(step, AllReduce) or step.implementation == "native"
    names = _SUMS if reduction_of(stage) == "sum" else _EXTREMES
    long = links.batched or step.before.tile_size * stage.itemsize >= LONG
    return free and long and stage.accumulate is None and stage.dtype.name in names


def _reduce(stage: Stage, parts: Sequence[tuple[Ints, Ints, torch.Tensor]], shape: Ints, into: torch.Tensor) -> None:
    """Reduce boxes, (offset, size, flat words) each, in order, into the flat words of a tile."""
    kind, name = reduction_of(stage), stage.dtype.name
    if into.device.type == "cpu":
        total = Accumulator(shape, stage.dtype, kind, stage.accumulate, as_numpy(into, name).reshape(shape))
        for offset, size, part in parts:
            total.add(offset, as_numpy(part, name).reshape(size))
        total.result()
        return
    dtype = torch_dtype(name)
    wide = None if stage.accumulate is None else torch_dtype(stage.accumulate)
    sums = TensorAccumulator(shape, dtype, kind, wide, into.view(dtype).view(shape))
    for offset, size, part in parts:
        sums.add(offset, part.view(dtype).view(size))
    sums.result()


@dataclass(frozen=True)
class _Addend:
    """A box that is reduced.

    Attributes:
        offset, size: of the box in the sum.
        first, count: first word in staging memory, and number of words.
        copy: the copy that stages the box of the device itself; None for a received box.
    """

    offset: Ints
    size: Ints
    first: int
    count: int
    copy: Copy | None


class Sum(PointToPoint):
    """One message between each pair of devices that share data, into staging memory, and a reduction there.

    Staging memory holds the received boxes, the box of the device itself, packed messages, and the sum if it is not
    contiguous in the target.
    """

    def __init__(self, stage: Stage, links: Links) -> None:
        super().__init__(stage, links)
        word, factor = self.word, stage.itemsize // self.word
        box = stage.step.after.box(stage.device)
        self.shape = box.size
        places = self._places(factor)
        at = sum(message.count for message in self.into)
        self.addends = []
        for k in additions_in_order(stage):
            part = stage.retained[0] if k is None else stage.receives[k][1]
            offset = tuple(b - s for b, s in zip(part.start, box.start, strict=True))
            copy = Copy.of(*runs_in_both(part, stage.source, part, stage.itemsize), word) if k is None else None
            first = at if k is None else places[k]
            self.addends.append(_Addend(offset, part.size, first, part.volume * factor, copy))
        self.staged = at + sum(addend.count for addend in self.addends if addend.copy)
        self.result = Message(stage.device, [box], stage.target(), stage.itemsize, word)
        self.scratch = (self.staged + sum(message.staged for message in self.out) + self.result.staged) * word

    def _places(self, factor: int) -> list[int]:
        """The first word of every received box: messages follow each other by sender, boxes as in their message."""
        first, at = {}, 0
        for message in self.into:
            first[message.peer] = at
            at += message.count
        places = []
        for device, box in self.stage.receives:
            places.append(first[device])
            first[device] += box.volume * factor
        return places

    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        sends, receives, at = [], [], 0
        for message in self.into:
            receives.append((message.peer, staging[at : at + message.count]))
            at += message.count
        at = self.staged
        for message in self.out:
            place = message.place(source, staging, at)
            message.pack(source, place)
            sends.append((message.peer, place))
            at += message.staged
        works = self.links.start(sends, receives)
        places = [staging[addend.first : addend.first + addend.count] for addend in self.addends]
        for addend, place in zip(self.addends, places, strict=True):
            if addend.copy is not None:
                addend.copy.run(source, place)
        for work in works:
            work.wait()
        into = self.result.place(target, staging, at)
        parts = [(addend.offset, addend.size, place) for addend, place in zip(self.addends, places, strict=True)]
        _reduce(self.stage, parts, self.shape, into)
        self.result.unpack(into, target)


class NativeReduceScatter(NativeCollective):
    """`reduce_scatter_tensor`."""

    def __init__(self, stage: Stage, step: ReduceScatter, links: Links) -> None:
        box = stage.step.after.box(stage.device)
        super().__init__(stage, step, boxes_by_member(stage, step, stage.sends, box), [box], links)
        self.dtype = torch_dtype(stage.dtype.name)
        self.operation = _OPERATIONS[reduction_of(stage)]

    def collective(self, into: torch.Tensor, out: torch.Tensor, spare: torch.Tensor) -> None:
        self.links.reduce_scatter(into.view(self.dtype), out.view(self.dtype), self.operation, self.group)


class NativeAllReduce(TensorRunner):
    """`all_reduce` of a tile."""

    name = "native"

    def __init__(self, stage: Stage, step: AllReduce, links: Links) -> None:
        super().__init__(stage)
        self.links, self.group = links, links.subgroup(step.groups)
        box = step.before.box(stage.device)
        self.tile = Copy.of(*runs_in_both(box, stage.source, stage.target(), stage.itemsize), self.word)
        self.into = Message(stage.device, [box], stage.target(), stage.itemsize, self.word)
        self.operation = _OPERATIONS[reduction_of(stage)]
        self.scratch = self.into.staged * self.word

    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        self.tile.run(source, target)
        into = self.into.place(target, staging, 0)
        self.into.pack(target, into)
        self.links.all_reduce(into.view(torch_dtype(self.stage.dtype.name)), self.operation, self.group)
        self.into.unpack(into, target)


class AllReduceInParts(TensorRunner):
    """An all-reduce by messages: every member reduces a part of the tile and sends it to the other members."""

    name = "point_to_point"

    def __init__(self, stage: Stage, step: AllReduce, links: Links) -> None:
        super().__init__(stage)
        self.links = links
        box = step.before.box(stage.device)
        size, word = stage.itemsize, self.word
        self.factor = size // word
        self.members = step.group_of(stage.device)
        self.order = sorted(range(len(self.members)), key=lambda k: int(step.before.label[self.members[k]]))
        self.place = self.members.index(stage.device)
        self.parts = step.parts
        self.starts = [sum(self.parts[:k]) for k in range(len(self.parts))]
        self.out = Message(stage.device, [box], stage.source, size, word)
        self.into = Message(stage.device, [box], stage.target(), size, word)
        self.rows = self.parts[self.place] * len(self.members) * self.factor
        self.scratch = (self.out.staged + self.into.staged + self.rows) * word

    def _slice(self, tile: torch.Tensor, k: int) -> torch.Tensor:
        first = self.starts[k] * self.factor
        return tile[first : first + self.parts[k] * self.factor]

    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        out = self.out.place(source, staging, 0)
        self.out.pack(source, out)
        into = self.into.place(target, staging, self.out.staged)
        first = self.out.staged + self.into.staged
        part = self.parts[self.place] * self.factor
        rows = [staging[first + k * part : first + (k + 1) * part] for k in range(len(self.members))]
        others = [k for k in range(len(self.members)) if k != self.place]
        # No message is empty: gloo would send it, and NCCL would not.
        sends = [(self.members[k], self._slice(out, k)) for k in others if self.parts[k]]
        works = self.links.start(sends, [(self.members[k], rows[k]) for k in others if part])
        rows[self.place].copy_(self._slice(out, self.place))
        for work in works:
            work.wait()
        reduced = self._slice(into, self.place)
        if part:
            size = (self.parts[self.place],)
            _reduce(self.stage, [((0,), size, rows[k]) for k in self.order], size, reduced)
        works = self.links.start(
            [(self.members[k], reduced) for k in others if part],
            [(self.members[k], self._slice(into, k)) for k in others if self.parts[k]],
        )
        for work in works:
            work.wait()
        self.into.unpack(into, target)


class TensorIdentityFill(TensorRunner):
    """Identity elements in the target, and a copy of the retained box; no messages."""

    name = "local"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.copies = self._local_copies()
        box = stage.step.after.box(stage.device)
        tile = runs_in(box, stage.target(), stage.itemsize)
        self.window = Copy.of(tile, tile, self.word).target
        value = identity(reduction_of(stage), stage.dtype)
        self.value = words(
            torch.from_numpy(np.array([value], dtype=stage.dtype).view(np.uint8)).view(torch_dtype(stage.dtype.name))
        )

    def run(self, source: torch.Tensor, target: torch.Tensor, staging: torch.Tensor) -> None:
        view = self.window.view(target)
        count = self.value.numel()  # words of an element: one, or two of complex128
        view.unflatten(-1, (view.shape[-1] // count, count)).copy_(self.value)
        for copy in self.copies:
            copy.run(source, target)


def reducing(stage: Stage, links: Links) -> TensorRunner | None:
    """The runner of a stage that reduces or makes partial sums; None for any other stage."""
    step = stage.step
    if isinstance(step, Unreduce):
        return TensorIdentityFill(stage)
    if isinstance(step, AllReduce):
        return NativeAllReduce(stage, step, links) if is_native(stage, links) else AllReduceInParts(stage, step, links)
    if isinstance(step, ReduceScatter) and is_native(stage, links):
        return NativeReduceScatter(stage, step, links)
    if isinstance(step, ReduceScatter | ReduceExchange):
        return Sum(stage, links)
    return None


def reduce_over(groups: Sequence[Any], tile: torch.Tensor, kind: Reduction) -> torch.Tensor:
    """Reduce a tile over process groups, one group after the other; collective.

    Numbers of 2 bytes are added in 4 bytes and rounded once. A maximum or minimum with a NaN is a NaN.
    """
    dtype = tile.dtype
    wide = {torch.bool: torch.uint8, torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
    if dtype.is_floating_point and dtype.itemsize < 4:
        wide[dtype] = torch.float32
    total = tile.to(wide.get(dtype, dtype), memory_format=torch.contiguous_format, copy=True)
    nans = torch.isnan(total).to(torch.uint8) if kind != "sum" and total.is_floating_point() else None
    for group in groups:
        dist.all_reduce(total, _OPERATIONS[kind], group=group)
        if nans is not None:
            dist.all_reduce(nans, dist.ReduceOp.MAX, group=group)
    if nans is not None:
        total[nans.bool()] = float("nan")
    return total.to(dtype)
