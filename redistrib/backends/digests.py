"""Digests of plans, which ranks compare before they prepare one together."""

from __future__ import annotations

from redistrib.digests import digest_of_parts
from redistrib.plans.plan import Plan


def digest_of(plan: Plan) -> str:
    """A digest of a plan, equal on all ranks with an equal one."""
    parts: list[object] = [plan.source, plan.target, plan.dtype, plan.shape, plan.accumulate, plan.order]
    for step in plan.steps:
        parts += [step.kind, step.field_bytes()]
        for end in (step.before, step.after):
            parts += [end.index, end.grid, end.cuts, end.reduction, end.label]
    return digest_of_parts(parts)
