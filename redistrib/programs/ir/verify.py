"""A program and the plans of its moves, verified together."""

from __future__ import annotations

from typing import TypeVar

from redistrib.plans.verify import verify
from redistrib.programs.ir.check import check
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import with_steps

_Program = TypeVar("_Program", bound=ProgramData)


def verify_program(program: _Program) -> _Program:
    """The program, once it and the plans of all its moves are found right.

    Raises:
        ProgramError: as `check` does.
        VerificationError: for the first rule that a plan breaks.
    """
    check(program)
    verified: set[int] = set()
    for move in (move for inner in with_steps(program) for move in inner.moves):
        if move.plan is not None and id(move.plan) not in verified:
            verify(move.plan)
            verified.add(id(move.plan))
    return program
