"""The doors of this backend, see `redistrib/backends/README.md`."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from redistrib.backends.mpi import calibrate
from redistrib.backends.mpi.consistency import require
from redistrib.backends.mpi.executor import Executor, to_mpi
from redistrib.backends.refusals import refusal
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample


def run(plan: Plan, where: MPI.Intracomm, **options: Any) -> Executor:
    """The function of local tiles that carries out a plan on a communicator; collective.

    Args:
        plan: a plan, which moves one array.
        where: a communicator with one rank per device of the plan.
        options: those of `to_mpi`.

    Raises:
        RedistribError: as `to_mpi` does.
    """
    return to_mpi(plan, where, **options)


def can(plan: Plan) -> str | None:
    """The reason why no communicator can carry out a plan, in one line; None if one can."""
    return refusal(require, plan)


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
