"""MPI as the wire of the executor of ranks: contiguous memory, and a collective for every stage.

A call is over when it returns, so there is never anything to wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpi4py import MPI

from redistrib.backends.mpi.datatypes import Placed, TypeOwner, run_type
from redistrib.backends.mpi.groups import Groups
from redistrib.backends.mpi.reductions import is_native, operation_of
from redistrib.backends.mpi.transports import exchange
from redistrib.backends.ranks.protocols import Lengths, WireCall
from redistrib.backends.stages import Stage, reduction_of
from redistrib.plans.step import GroupStep
from redistrib.plans.steps import AllGather, AllReduce, AllToAll, ReduceScatter
from redistrib.plans.strided import Bytes

PACKED = "packed"  # the transport by contiguous memory, in reports

Buffers = Sequence[Bytes]


class MpiWire(TypeOwner):
    """The messages of an MPI rank; see `redistrib.backends.ranks.protocols.Wire`. Lengths are bytes."""

    def __init__(self, groups: Groups) -> None:
        super().__init__()
        self._groups = groups

    def exchange(self, stage: Stage, sends: Lengths, receives: Lengths) -> WireCall:
        graph, send, receive = self._groups.around(stage), self._blocks(sends), self._blocks(receives)

        def start(out: Buffers, into: Buffers) -> tuple[()]:
            exchange(graph, out[0], send, into[0], receive)
            return ()

        return WireCall(PACKED, start)

    def _blocks(self, lengths: Lengths) -> list[Placed]:
        sizes = [size for _, size in lengths]
        return [(sum(sizes[:k]), self._typed(run_type(size))) for k, size in enumerate(sizes)]

    def members(self, step: GroupStep) -> list[int]:
        return step.group_of(self._groups.comm.rank)

    def collective(self, stage: Stage, in_place: bool) -> WireCall | None:
        step, dtype = stage.step, stage.dtype
        if isinstance(step, AllGather | AllToAll):
            group = self._groups.of(step, stage.device)
            block = self._typed(run_type(step.message * stage.itemsize if stage.retained else 0))
            moves = group.Allgather if isinstance(step, AllGather) else group.Alltoall

            def start(out: Buffers, into: Buffers) -> tuple[()]:
                moves(MPI.IN_PLACE if in_place else [out[0], 1, block], [into[0], 1, block])
                return ()

            return WireCall(PACKED, start, in_place=in_place)
        operation = operation_of(reduction_of(stage), dtype)
        if not isinstance(step, AllReduce | ReduceScatter) or operation is None or not is_native(stage):
            return None
        group = self._groups.of(step, stage.device)
        adds = group.Allreduce if isinstance(step, AllReduce) else group.Reduce_scatter_block

        def start_adding(out: Buffers, into: Buffers) -> tuple[()]:
            if out[0].size:
                adds(out[0].view(dtype), into[0].view(dtype), operation)
            return ()

        return WireCall(PACKED, start_adding)

    def scatter_and_gather(self, stage: Stage, step: AllReduce) -> tuple[WireCall, WireCall]:
        group, unit, parts = self._groups.of(step, stage.device), self._typed(run_type(stage.itemsize)), step.parts
        part = parts[group.rank]
        uneven = parts, [sum(parts[:k]) for k in range(len(parts))]
        even = [part] * len(parts), [k * part for k in range(len(parts))]

        def scatter(out: Buffers, into: Buffers) -> tuple[()]:
            if out[0].size:
                group.Alltoallv([out[0], uneven, unit], [into[0], even, unit])
            return ()

        def gather(out: Buffers, into: Buffers) -> tuple[()]:
            if into[0].size:
                group.Allgatherv(MPI.IN_PLACE, [into[0], uneven, unit])
            return ()

        return WireCall(PACKED, scatter), WireCall(PACKED, gather, in_place=True)
