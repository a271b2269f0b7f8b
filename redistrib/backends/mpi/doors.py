"""The doors of this backend, see `redistrib/backends/README.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from redistrib.backends.mpi import calibrate
from redistrib.backends.mpi.consistency import require
from redistrib.backends.mpi.executor import Executor, to_mpi
from redistrib.backends.refusals import refusal
from redistrib.extras import need
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample
from redistrib.programs.data import ProgramData
from redistrib.programs.program import Program

if TYPE_CHECKING:
    from redistrib.backends.mpi.program import ProgramExecutor


def run(runnable: Plan | Program, where: MPI.Intracomm, **options: Any) -> Executor | ProgramExecutor:
    """The function of local tiles of a plan or a program on a communicator; collective.

    Args:
        runnable: a plan, which moves one array, or a program, from its inputs to the list of its outputs.
        where: a communicator with one rank per device of the plan, or at least one per device of the program.
        options: those of `to_mpi` for a plan, of `program_to_mpi` for a program.

    Raises:
        RedistribError: as these functions do.
    """
    if isinstance(runnable, ProgramData):
        need("redistrib.backends.mpi.program", "rd.to_mpi of a program")
        from redistrib.backends.mpi.program import program_to_mpi

        return program_to_mpi(runnable, where, **options)
    return to_mpi(runnable, where, **options)


def can(runnable: Plan | Program) -> str | None:
    """The reason why no communicator can carry out a plan or a program, in one line; None if one can."""
    return refusal(require, runnable)


def measure(where: MPI.Intracomm | None = None, **options: Any) -> list[Sample] | None:
    """Time this backend's collectives; collective.

    Args:
        where: the communicator, of at least 2 ranks; `COMM_WORLD` by default.
        options: those of `redistrib.backends.mpi.calibrate.measure`.

    Returns:
        On rank 0 samples for `redistrib.cost.fit.fit_profile`, in seconds and bytes; None elsewhere.

    Raises:
        CommunicatorError: if there is only one rank.
    """
    return calibrate.measure(where, **options)
