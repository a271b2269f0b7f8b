"""The refusals of a backend as one line of text, and those of all backends."""

from __future__ import annotations

from collections.abc import Callable

from redistrib.errors import ProgramError, RedistribError
from redistrib.plans.plan import Plan
from redistrib.programs.inline import with_steps
from redistrib.programs.program import Compute, Program


def refusal(require: Callable[[Plan | Program], None], runnable: Plan | Program) -> str | None:
    """The message of the error that `require` raises for a plan or a program; None if it raises none."""
    try:
        require(runnable)
    except RedistribError as error:
        return " ".join(str(error).split())
    return None


def require_bodies(program: Program) -> None:
    """Refuse a program of which a nest cannot be run.

    Raises:
        ProgramError: if a nest has no body.
    """
    for op in (op for inner in with_steps(program) for op in inner.ops):
        if isinstance(op, Compute):
            for part in op.parts:
                if part.nest.body is None:
                    raise ProgramError(op.name, "", "Nest", f"nest {part.nest.name!r} has no body; give one to run it")
