"""`torch.distributed` as the wire of the executor of ranks; it chooses the transport of each stage.

The platform adds only where the plan leaves it the order and the element type of the sum is that of the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from redistrib.backends.ranks.protocols import Lengths, WireCall
from redistrib.backends.stages import Stage, adds_natively, reduction_of
from redistrib.backends.torch.dtypes import torch_dtype, word_bytes
from redistrib.backends.torch.links import OPERATIONS, Links, can_go_native
from redistrib.plans.step import GroupStep
from redistrib.plans.steps import AllGather, AllReduce, ReduceScatter, Step

# Tiles of at least so many bytes go by gloo's collectives. These use rings, with as many turns as ranks, which are slow
# for short messages; but they cross the links between hosts least often.
LONG = 1 << 16

# Element types that the platforms reduce as NumPy does; a maximum of floats may lose a NaN.
_SUMS = ("int8", "uint8", "int32", "int64", "float32", "float64")
_EXTREMES = ("int8", "uint8", "int32", "int64")

Buffers = Sequence[torch.Tensor]


class TensorWire:
    """The messages of a process; see `redistrib.backends.ranks.protocols.Wire`."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def exchange(self, stage: Stage, sends: Lengths, receives: Lengths) -> WireCall:
        links = self._links
        if links.whole and not links.tagged and not stage.step.reduces and _everyone_shares(stage.step):
            sent, received = ([dict(side).get(device, 0) for device in range(links.size)] for side in (sends, receives))

            def start_all(out: Buffers, into: Buffers) -> list[Any]:
                return [dist.all_to_all_single(into[0], out[0], received, sent, group=links.group, async_op=True)]

            return WireCall("all_to_all", start_all)
        receivers, senders = ([device for device, _ in side] for side in (sends, receives))

        def start(out: Buffers, into: Buffers) -> list[Any]:
            return links.start(list(zip(receivers, out, strict=True)), list(zip(senders, into, strict=True)))

        return WireCall("point_to_point", start, joined=False)

    def members(self, step: GroupStep) -> list[int]:
        return sorted(step.group_of(self._links.rank))

    def collective(self, stage: Stage, in_place: bool) -> WireCall | None:
        """The platform's all-gather, which never sends from the memory it receives into, or its reduction."""
        step, links, dtype = stage.step, self._links, torch_dtype(stage.dtype.name)
        if not isinstance(step, AllGather | AllReduce | ReduceScatter) or not can_go_native(links, step.groups):
            return None
        if not (self._gathers(stage, step) if isinstance(step, AllGather) else self._adds(stage)):
            return None
        group = links.subgroup(step.groups)

        def start(out: Buffers, into: Buffers) -> tuple[()]:
            if isinstance(step, AllGather):
                links.all_gather_into(into[0], out[0], group)
            elif isinstance(step, AllReduce):
                links.all_reduce(into[0].view(dtype), operation, group)
            else:
                links.reduce_scatter(into[0].view(dtype), out[0].view(dtype), operation, group)
            return ()

        operation = None if isinstance(step, AllGather) else OPERATIONS[reduction_of(stage)]
        return WireCall("native", start, in_place=isinstance(step, AllReduce))

    def _gathers(self, stage: Stage, step: AllGather) -> bool:
        """Whether the platform gathers; between two tagged devices, messages take fewer copies and need no gate."""
        whole, links = step.after.tile_size * stage.itemsize, self._links
        return whole > 0 and (links.batched or (whole >= LONG and not (links.tagged and step.group_size == 2)))

    def _adds(self, stage: Stage) -> bool:
        """Whether the platform reduces."""
        step = stage.step
        names = _SUMS if reduction_of(stage) == "sum" else _EXTREMES
        long = self._links.batched or step.before.tile_size * stage.itemsize >= LONG
        return adds_natively(step) and long and stage.accumulate is None and stage.dtype.name in names

    def scatter_and_gather(self, stage: Stage, step: AllReduce) -> tuple[WireCall, WireCall]:
        """No message is empty: gloo would send it, and NCCL would not."""
        links, members = self._links, step.group_of(stage.device)
        place = members.index(stage.device)
        counts = [part * stage.itemsize // word_bytes(stage.itemsize) for part in step.parts]  # in words
        parts = [slice(sum(counts[:k]), sum(counts[: k + 1])) for k in range(len(counts))]
        others = [k for k in range(len(members)) if k != place]
        count = counts[place]
        with_a_part = [(members[k], parts[k]) for k in others if counts[k]]
        receivers = [(k, members[k]) for k in others if count]  # of the part of this device

        def scatter(out: Buffers, into: Buffers) -> list[Any]:
            tile, rows = out[0], into[0].split(count) if count else ()
            works = links.start(
                [(member, tile[part]) for member, part in with_a_part],
                [(member, rows[k]) for k, member in receivers],
            )
            if count:
                rows[place].copy_(tile[parts[place]])
            return works

        def gather(out: Buffers, into: Buffers) -> list[Any]:
            return links.start(
                [(member, out[0]) for _, member in receivers],
                [(member, into[0][part]) for member, part in with_a_part],
            )

        return WireCall("point_to_point", scatter), WireCall("point_to_point", gather, in_place=True)


def _everyone_shares(step: Step) -> bool:
    """Whether every device sends to every other device in a step."""
    table = step.transfers()
    pairs = np.unique(table.sender * step.devices + table.receiver)
    return step.devices > 1 and len(pairs) == step.devices * (step.devices - 1)
