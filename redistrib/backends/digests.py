"""Digests of plans and programs, which ranks compare before they prepare one together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redistrib.digests import digest_of_parts
from redistrib.plans.plan import Plan

if TYPE_CHECKING:
    from redistrib.programs.program import Program


def digest_of(runnable: Plan | Program) -> str:
    """A digest of a plan or a program, equal on all ranks with an equal one.

    Of the bodies of a program's nests only the names count.
    """
    if not isinstance(runnable, Plan):
        from redistrib.programs.text import to_text  # moves of arrays do not need programs

        return digest_of_parts([to_text(runnable)])
    plan = runnable
    parts: list[object] = [plan.source, plan.target, plan.dtype, plan.shape, plan.accumulate, plan.order]
    for step in plan.steps:
        parts += [step.kind, step.field_bytes()]
        for end in (step.before, step.after):
            parts += [end.index, end.grid, end.cuts, end.reduction, end.label]
    return digest_of_parts(parts)
