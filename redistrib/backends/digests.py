"""Digests of plans and programs, which ranks compare before they prepare one together."""

from __future__ import annotations

import hashlib

from redistrib.plans.plan import Plan
from redistrib.programs.data import ProgramData
from redistrib.programs.program import Program
from redistrib.programs.text import to_text


def digest_of(runnable: Plan | Program) -> str:
    """A digest of a plan or a program, equal on all ranks with an equal one.

    Of the bodies of a program's nests only the names count.
    """
    if isinstance(runnable, ProgramData):
        return hashlib.sha256(to_text(runnable).encode()).hexdigest()
    plan = runnable
    sums = f"{plan.accumulate}|{plan.order}"
    digest = hashlib.sha256(f"{plan.source}|{plan.target}|{plan.dtype}|{plan.shape}|{sums}".encode())
    for step in plan.steps:
        digest.update(f"{step.kind}|".encode() + step.field_bytes())
        for end in (step.before, step.after):
            digest.update(end.index.tobytes())
            digest.update(f"{end.grid}|{end.cuts}|{end.reduction}|{end.label.tolist()}".encode())
    return digest.hexdigest()
