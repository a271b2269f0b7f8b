"""Seconds of operations in kernels, and the bytes that they read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from redistrib.lang.types import DistType
from redistrib.plans.dtypes import bits_of
from redistrib.programs.ir.graph import Operation
from redistrib.programs.ir.record import WorkClass
from redistrib.programs.ir.work import work_of
from redistrib.programs.time.kernels.fusion import Kernel
from redistrib.programs.time.machine import Machine


def seconds_of(
    machine: Machine,
    operation: Operation,
    kernel: Kernel | None,
    dtypes: Iterable[str],
    size: int,
    flops: int,
    held: Callable[[int], int],
) -> float:
    """Seconds of a device's part of an operation.

    Args:
        machine: the machine.
        operation: the operation, none at the edge of a loop.
        kernel: its compiled kernel; None where every operation is one.
        dtypes: element types of the operands.
        size: bytes that the device reads and writes for it.
        flops: its floating-point operations.
        held: bytes of the device's tile of a read, by number.
    """
    work, rates = work_of(operation.record, operation.nest), machine.rates_of(operation.name, dtypes)
    is_turned = kernel is not None and kernel.strides and WorkClass.TRANSPOSE in rates.classes
    turning = rates.inside(2 * held(0), WorkClass.TRANSPOSE) if is_turned else 0.0
    if kernel is not None and not kernel.runs:
        return turning if work is WorkClass.TRANSPOSE else rates.inside(flops, work)
    launch = 0.0 if kernel is None or kernel.launches else rates.launch
    if is_turned and work is WorkClass.TRANSPOSE:
        size = 0
    return rates.of_kernel(size, flops, work) + turning - launch


def stored_bytes(operation: Operation, ins: Sequence[DistType], outs: Sequence[DistType], kernel: Kernel) -> int:
    """Bytes that a device reads and writes for a kernel; of an array that is read inside it, the share of the read."""
    read = sum(r.size * ins[r.number].local_size // max(1, ins[r.number].global_size) for r in kernel.reads)
    if not kernel.written:
        return read
    sizes = [bits_of(array.dtype) for array in operation.outs]
    whole = sum(size * form.global_size for size, form in zip(sizes, outs, strict=True))
    part = sum(size * form.local_size for size, form in zip(sizes, outs, strict=True))
    return read + kernel.written * part // max(1, whole)
