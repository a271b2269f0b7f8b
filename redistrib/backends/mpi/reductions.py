"""Runners of stages that reduce, and of the stage that makes partial sums.

Received boxes are staged and then reduced in ascending order of their partial sums. MPI reduces only where the plan
leaves the order to it and MPI has the operation: sums of NumPy's numbers of up to 8 bytes for each real part, maxima
and minima of integers. MPI's maximum of floats drops NaNs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.datatypes import run_type
from redistrib.backends.mpi.shared import SharedTile
from redistrib.backends.mpi.transports import TAG, Packed, PackedNeighbours, Runner
from redistrib.backends.stages import Stage, additions_in_order, reduction_of
from redistrib.lang.notation import Reduction
from redistrib.plans.reduction import Accumulator, identity, view
from redistrib.plans.steps import AllReduce, ReduceExchange, ReduceScatter, Unreduce
from redistrib.plans.strided import Bytes, Strided, runs_in_both
from redistrib.theory.boxes import Box

Tile: TypeAlias = npt.NDArray[Any]

_OPERATIONS: dict[Reduction, MPI.Op] = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_NUMBERS = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8), "c": (8, 16)}  # kind -> bytes


def adds(stage: Stage) -> bool:
    """Whether the device of a stage reduces the boxes that it receives."""
    return isinstance(stage.step, ReduceScatter | ReduceExchange)


def is_native(stage: Stage) -> bool:
    """Whether MPI reduces in this stage."""
    step = stage.step
    free = isinstance(step, AllReduce) or (isinstance(step, ReduceScatter) and step.implementation == "native")
    return free and stage.accumulate is None and operation_of(reduction_of(stage), stage.dtype) is not None


def operation_of(kind: Reduction, dtype: np.dtype[Any]) -> MPI.Op | None:
    """MPI's operation, in any order, with the results of NumPy's; None if MPI has none."""
    kinds = "iufc" if kind == "sum" else "iu"
    supported = dtype.isbuiltin == 1 and dtype.kind in kinds and dtype.itemsize in _NUMBERS[dtype.kind]
    return _OPERATIONS[kind] if supported else None


def scratch_of(stage: Stage, transport: str) -> int:
    """Bytes of scratch that the runner of a stage takes on its device."""
    step, size = stage.step, stage.itemsize
    if isinstance(step, Unreduce):
        return 0
    if isinstance(step, AllReduce):
        staged = 0 if is_native(stage) else max(step.parts) * step.group_size
        return (2 * step.after.tile_size + staged) * size + accumulator_bytes(stage)
    if transport == "packed" and is_native(stage):
        return (step.before.tile_size + step.after.tile_size) * size
    largest = max((box.volume for _, box in stage.receives), default=0) * size
    sent = stage.sent_bytes if transport == "packed" else 0
    return sent + (largest if transport == "datatypes" else stage.received_bytes) + accumulator_bytes(stage)


def accumulator_bytes(stage: Stage) -> int:
    """Bytes of an accumulator: a wider sum and a wider partial sum, and a mask of the elements that have a value."""
    step = stage.step
    elements = max(step.parts) if isinstance(step, AllReduce) else step.after.tile_size
    if is_native(stage):
        return 0
    wide = 0 if stage.accumulate is None else 2 * np.dtype(stage.accumulate).itemsize
    return (wide + isinstance(step, ReduceExchange)) * elements


class _Sum:
    """The reduction of one device: its retained box, if there is one, and the boxes that it receives."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.order = additions_in_order(stage)
        self.starts: list[int] = []  # bytes into the staging memory, by box
        self.nbytes = 0
        for _, box in stage.receives:
            self.starts.append(self.nbytes)
            self.nbytes += box.volume * stage.itemsize

    def run(self, source: Bytes, target: Bytes, receive: Callable[[int, Box], Tile]) -> None:
        """Reduce; `receive` returns a received box by number, in ascending order of partial sums."""
        stage = self.stage
        start = stage.step.after.box(stage.device).start
        part = tile_in(target, stage.target(), stage.step.after.box(stage.device), stage.dtype)
        total = Accumulator(part.shape, stage.dtype, reduction_of(stage), stage.accumulate, part)
        for k in self.order:
            box = stage.retained[0] if k is None else stage.receives[k][1]
            addend = tile_in(source, stage.source, box, stage.dtype) if k is None else receive(k, box)
            total.add(_minus(box.start, start), addend)
        total.result()

    def staged(self, memory: Bytes) -> Callable[[int, Box], Tile]:
        """Received boxes that lie end to end in staging memory."""
        dtype = self.stage.dtype
        return lambda k, box: memory[self.starts[k] :][: box.volume * dtype.itemsize].view(dtype).reshape(box.size)


class PackedSum(PackedNeighbours):
    """One neighbourhood collective into staging memory, then the reduction."""

    def __init__(self, stage: Stage, graph: MPI.Distgraphcomm) -> None:
        super().__init__(stage, graph)
        self.sum = _Sum(stage)
        order = sorted(range(len(stage.receives)), key=lambda k: stage.receives[k][0])  # as the neighbours are
        at = 0
        for k in order:
            self.sum.starts[k] = at
            at += stage.receives[k][1].volume * stage.itemsize
        self.scratch, self.beside = self.out.scratch + self.sum.nbytes, accumulator_bytes(stage)

    def bind(self, scratch: Bytes) -> None:
        self.out.memory = scratch[: self.out.scratch]
        self.staging = scratch[self.out.scratch : self.out.scratch + self.sum.nbytes]

    def run(self, source: Bytes, target: Bytes) -> None:
        self.out.pack(source)
        self._send(self.out.window(source), self.staging)
        self.sum.run(source, target, self.sum.staged(self.staging))


class TypedSum(Runner):
    """Point-to-point messages, each reduced when it arrives, in ascending order; one box is staged at a time."""

    name = "datatypes"

    def __init__(self, stage: Stage, comm: MPI.Intracomm) -> None:
        super().__init__(stage)
        self.comm = comm
        self.sum = _Sum(stage)
        self.shares = [(device, *self._placed([box], stage.source, stage.itemsize)) for device, box in stage.sends]
        self.scratch = max((box.volume for _, box in stage.receives), default=0) * stage.itemsize
        self.beside = accumulator_bytes(stage)

    def bind(self, scratch: Bytes) -> None:
        self.staging = scratch

    def run(self, source: Bytes, target: Bytes) -> None:
        requests = [self.comm.Isend([source[at:], 1, datatype], device, TAG) for device, at, datatype in self.shares]
        self.sum.run(source, target, self._receive)
        MPI.Request.Waitall(requests)

    def _receive(self, k: int, box: Box) -> Tile:
        dtype = self.stage.dtype
        memory = self.staging[: box.volume * dtype.itemsize]
        self.comm.Recv([memory, MPI.BYTE], self.stage.receives[k][0], TAG)
        return memory.view(dtype).reshape(box.size)


class SharedSum(Runner):
    """Copies into shared memory of the receivers, then the reduction."""

    name = "shared"

    def __init__(
        self, stage: Stage, host_rank: Callable[[int], int], share: Callable[[int], SharedTile], staged: int
    ) -> None:
        """`share` allocates shared memory of so many bytes on every rank: `staged`, the same number on all ranks."""
        super().__init__(stage)
        self.sum = _Sum(stage)
        self.staging = share(staged)
        self.beside = staged + accumulator_bytes(stage)
        self.puts: list[tuple[int, Strided, Strided]] = []
        count = stage.step.devices
        for device in sorted({d for d, _ in stage.sends}, key=lambda d: (d - stage.device) % count):
            at = 0
            for sender, box in stage.step.transfers(device).receives(device):
                if sender == stage.device:
                    self.puts.append((host_rank(device), *runs_in_both(box, stage.source, box, stage.itemsize, 0, at)))
                at += box.volume * stage.itemsize

    def run(self, source: Bytes, target: Bytes) -> None:
        for rank, of, to in self.puts:
            self.staging.put(rank, to, source, of)
        self.staging.wait()
        self.sum.run(source, target, self.sum.staged(self.staging.memory))

    def free(self) -> None:
        super().free()
        self.staging.close()


class PackedReduceScatter(Packed):
    """`Reduce_scatter_block` of parts packed in the order of the members."""

    def __init__(self, stage: Stage, group: MPI.Intracomm) -> None:
        self.group = group
        sends, box = dict(stage.sends), stage.step.after.box(stage.device)
        order = stage.step.group_of(stage.device) if isinstance(stage.step, ReduceScatter) else []
        super().__init__(stage, [sends.get(member, box) for member in order], [box])
        self.operation = _OPERATIONS[reduction_of(stage)]
        self.local_copies = []  # the collective includes the part of the rank itself

    def _send(self, out: Bytes, into: Bytes) -> None:
        dtype = self.stage.dtype
        if out.size:
            self.group.Reduce_scatter_block(out.view(dtype), into.view(dtype), self.operation)


class PackedAllReduce(Packed):
    """`Allreduce`; or every member reduces a part of the tile and sends it to the other members."""

    def __init__(self, stage: Stage, group: MPI.Intracomm) -> None:
        assert isinstance(stage.step, AllReduce)
        self.group = group
        super().__init__(stage, [stage.step.before.box(stage.device)], [stage.step.after.box(stage.device)])
        self.operation = _OPERATIONS[reduction_of(stage)]
        self.native = is_native(stage)
        self.local_copies = []
        order = stage.step.group_of(stage.device)
        label = stage.step.before.label
        self.order = sorted(range(len(order)), key=lambda k: int(label[order[k]]))
        self.parts, self.place = stage.step.parts, order.index(stage.device)
        self.staged = 0 if self.native else self.parts[self.place] * len(order) * stage.itemsize
        self.scratch += self.staged
        self.beside = accumulator_bytes(stage)
        self.unit = self._typed(run_type(stage.itemsize))

    def bind(self, scratch: Bytes) -> None:
        super().bind(scratch)
        self.staging = scratch[self.scratch - self.staged : self.scratch]

    def _send(self, out: Bytes, into: Bytes) -> None:
        dtype = self.stage.dtype
        if not out.size:
            return
        if self.native:
            self.group.Allreduce(out.view(dtype), into.view(dtype), self.operation)
            return
        part = self.parts[self.place]
        starts = [sum(self.parts[:k]) for k in range(len(self.parts))]
        even = [part] * len(self.parts), [k * part for k in range(len(self.parts))]
        self.group.Alltoallv([out, (self.parts, starts), self.unit], [self.staging, even, self.unit])
        rows = self.staging.view(dtype).reshape(len(self.parts), part)
        reduced = into.view(dtype)[starts[self.place] :][:part]
        total = Accumulator((part,), dtype, reduction_of(self.stage), self.stage.accumulate, reduced)
        for k in self.order:
            total.add([0], rows[k])
        total.result()
        self.group.Allgatherv(MPI.IN_PLACE, [into, (self.parts, starts), self.unit])


class IdentityFill(Runner):
    """Identity elements in the target, and a copy of the retained box; no messages."""

    name = "local"

    def run(self, source: Bytes, target: Bytes) -> None:
        stage = self.stage
        tile = tile_in(target, stage.target(), stage.step.after.box(stage.device), stage.dtype)
        tile[...] = identity(reduction_of(stage), stage.dtype)
        self._copy_locally(source, target)


def tile_in(memory: Bytes, tile: Box, box: Box, dtype: np.dtype[Any]) -> Tile:
    """A view of a box of the tile in a memory."""
    whole = memory[: tile.volume * dtype.itemsize].view(dtype).reshape(tile.size)
    return view(whole, _minus(box.start, tile.start), box.size)


def _minus(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))
