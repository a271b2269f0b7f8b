"""What MPI can carry out, and checks that all ranks prepare the same program."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from redistrib.backends.mpi.consistency import require_equal
from redistrib.backends.refusals import refusal
from redistrib.cost.latency import LatencyBandwidth
from redistrib.errors import CommunicatorError, ProgramError
from redistrib.programs.ir.check import check as checked
from redistrib.programs.ir.check_calls import require_bodies
from redistrib.programs.ir.data import Compute, ProgramData
from redistrib.programs.ir.inline import with_steps
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.text import digest_of
from redistrib.report import counted


def can(program: Program) -> str | None:
    """The reason why no communicator can carry out a program, in one line; None if one can."""
    return refusal(require, program)


def check(
    program: Program, comm: MPI.Intracomm, limit: int | str | None, machine: Any, transport: str | None
) -> tuple[LatencyBandwidth | None, int | None]:
    """Refuse a program or arguments that cannot be prepared, on every rank with the same message.

    Of the bodies of its nests only the names are compared.

    Raises:
        CommunicatorError, ProfileError, ProgramError: as `program_to_mpi` says.
    """
    options = require_equal("program", program, ProgramData, digest_of, comm, limit, machine, transport)
    ranks = max(program.devices, default=-1) + 1
    if comm.size < ranks:
        raise CommunicatorError(
            f"the program runs on devices up to number {ranks - 1} and the communicator has "
            f"{counted(comm.size, 'rank', 'ranks')}; give it "
            f"a rank for each, for example with mpiexec -n {ranks}"
        )
    require(program)
    return options


def require(program: Program) -> None:
    """Refuse a program that no communicator can carry out.

    Raises:
        ProgramError: if the program is invalid, or a nest has no body or has an effect.
    """
    require_bodies(checked(program))
    for op in (op for inner in with_steps(program) for op in inner.ops):
        if isinstance(op, Compute) and any(part.nest.effectful for part in op.parts):
            raise ProgramError(
                op.name, "", "Effect", "every rank would have the effect of the operation once; leave the operation "
                "out, and show the values that it reads after the call",
            )  # fmt: skip
