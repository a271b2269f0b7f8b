"""Bytes that a program receives as the compiler of a platform runs it."""

from __future__ import annotations

from collections.abc import Mapping

from redistrib.backends.jax.platforms import Platform
from redistrib.backends.stages import adds_natively
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.steps import AllReduce, Step
from redistrib.programs.ir.data import ProgramData, called_by
from redistrib.programs.ir.program import Loop, Move


def compiled_received_bytes(program: ProgramData, platform: Platform) -> int:
    """Bytes received in all moves by all devices, loops at every step.

    As `program.received_bytes`, but for sums that the platform's compiler reduces in a wider element type.
    """
    quirks = platform.quirks
    more = _more(program, quirks.wide_sums, quirks.has_reliable_reduce_scatter) if quirks.wide_sums else 0
    return program.received_bytes + more


def _more(program: ProgramData, widened: Mapping[str, int], native: bool) -> int:
    """Bytes beyond those of the elements as they are."""
    total = 0
    for op in program.ops:
        if isinstance(op, Move):
            wide = widened.get(op.out.dtype)
            if wide is not None and op.plan is not None:
                elements = sum(step.received_total() for step in op.plan.steps if _is_widened(step, native))
                total += elements * (wide - itemsize_of(op.out.dtype))
        else:
            times = op.steps if isinstance(op, Loop) else 1
            total += times * sum(_more(inner, widened, native) for inner in called_by(op))
    return total


def _is_widened(step: Step, native: bool) -> bool:
    """Whether a step is a sum of the platform, and not of the library on one device."""
    by_platform = adds_natively(step) and (native or isinstance(step, AllReduce))
    return by_platform and step.before.reduction == "sum"
