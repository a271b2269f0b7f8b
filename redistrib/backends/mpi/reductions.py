"""What MPI may reduce, and the runners of stages that reduce by datatypes or through shared memory.

MPI reduces only where the plan
leaves the order to it and MPI has the operation: sums of NumPy's numbers of up to 8 bytes for each real part, maxima
and minima of integers. MPI's maximum of floats drops NaNs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi.datatypes import TypeOwner
from redistrib.backends.mpi.shared import SharedTile
from redistrib.backends.ranks.protocols import RankMemory
from redistrib.backends.ranks.runners import Addition, Runner, accumulator_bytes, end_to_end
from redistrib.backends.stages import Stage, adds_natively, reduction_of
from redistrib.lang.notation import Reduction
from redistrib.plans.steps import ReduceExchange, ReduceScatter
from redistrib.plans.strided import Bytes, Strided, runs_in_both

TAG = 7

_OPERATIONS: dict[Reduction, MPI.Op] = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_NUMBERS = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8), "c": (8, 16)}  # kind -> bytes


def adds(stage: Stage) -> bool:
    """Whether the device of a stage reduces the boxes that it receives."""
    return isinstance(stage.step, ReduceScatter | ReduceExchange)


def is_native(stage: Stage) -> bool:
    """Whether MPI reduces in this stage."""
    if not adds_natively(stage.step) or stage.accumulate is not None:
        return False
    return operation_of(reduction_of(stage), stage.dtype) is not None


def operation_of(kind: Reduction, dtype: np.dtype[Any]) -> MPI.Op | None:
    """MPI's operation, in any order, with the results of NumPy's; None if MPI has none."""
    kinds = "iufc" if kind == "sum" else "iu"
    supported = dtype.isbuiltin == 1 and dtype.kind in kinds and dtype.itemsize in _NUMBERS[dtype.kind]
    return _OPERATIONS[kind] if supported else None


class TypedSum(TypeOwner, Runner):
    """Point-to-point messages, each reduced when it arrives, in ascending order, box by box."""

    name = "datatypes"

    def __init__(self, stage: Stage, memory: RankMemory, comm: MPI.Intracomm) -> None:
        TypeOwner.__init__(self)
        Runner.__init__(self, stage, memory)
        self.comm = comm
        self.addition = Addition(stage, memory, [0] * len(stage.receives))
        self.shares = [(device, *self._placed([box], stage.source, stage.itemsize)) for device, box in stage.sends]
        self.scratch, self.beside = self._largest(stage), accumulator_bytes(stage)

    @classmethod
    def most_bytes(cls, stage: Stage) -> int:
        return cls._largest(stage) + accumulator_bytes(stage)

    @staticmethod
    def _largest(stage: Stage) -> int:
        """Bytes of the largest message that comes."""
        return max((box.volume for _, box in stage.receives), default=0) * stage.itemsize

    def run(self, source: Bytes, target: Bytes, staging: Bytes) -> tuple[()]:
        def receive(k: int) -> None:
            sender, box = self.stage.receives[k]
            self.comm.Recv([staging[: box.volume * self.stage.itemsize], MPI.BYTE], sender, TAG)

        requests = [self.comm.Isend([source[at:], 1, datatype], device, TAG) for device, at, datatype in self.shares]
        self.addition.run(source, target, staging, receive)
        MPI.Request.Waitall(requests)
        return ()


class SharedSum(Runner):
    """Copies into shared memory of the receivers, then the reduction."""

    name = "shared"

    def __init__(
        self,
        stage: Stage,
        memory: RankMemory,
        host_rank: Callable[[int], int],
        share: Callable[[int], SharedTile],
        in_staging: int,
    ) -> None:
        """`share` allocates shared memory of so many bytes on every rank: `in_staging`, the same number on all."""
        super().__init__(stage, memory)
        self.addition = Addition(stage, memory, end_to_end(stage, memory, range(len(stage.receives))))
        self.staging = share(in_staging)
        self.beside = in_staging + accumulator_bytes(stage)
        self.puts: list[tuple[int, Strided, Strided]] = []
        count = stage.step.devices
        for device in sorted({d for d, _ in stage.sends}, key=lambda d: (d - stage.device) % count):
            at = 0
            for sender, box in stage.step.transfers(device).receives(device):
                if sender == stage.device:
                    self.puts.append((host_rank(device), *runs_in_both(box, stage.source, box, stage.itemsize, 0, at)))
                at += box.volume * stage.itemsize

    @classmethod
    def most_bytes(cls, stage: Stage) -> int:
        return stage.received_bytes + accumulator_bytes(stage)

    def run(self, source: Bytes, target: Bytes, staging: Bytes) -> tuple[()]:
        for rank, of, to in self.puts:
            self.staging.put(rank, to, source, of)
        self.staging.wait()
        self.addition.run(source, target, self.staging.memory)
        return ()

    def free(self) -> None:
        self.staging.close()
