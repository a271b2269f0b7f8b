"""Why a backend cannot carry out a plan or a program: what all refuse, and the refusal as one line of text."""

from __future__ import annotations

from collections.abc import Callable

from redistrib.errors import ProgramError, RedistribError
from redistrib.plans.plan import Plan
from redistrib.programs.inline import inlined
from redistrib.programs.program import Compute, Program


def refusal(require: Callable[[Plan | Program], None], what: Plan | Program) -> str | None:
    """What `require` says against a plan or a program in the error that it raises; None where it raises none."""
    try:
        require(what)
    except RedistribError as error:
        return " ".join(str(error).split())
    return None


def require_bodies(program: Program) -> None:
    """Refuse a program of which a nest cannot be run.

    Raises:
        ProgramError: if a nest has no body.
    """
    for op in inlined(program).ops:
        if isinstance(op, Compute):
            for part in op.parts:
                if part.nest.body is None:
                    raise ProgramError(op.name, "", "Nest", f"nest {part.nest.name!r} has no body; give one to run it")
