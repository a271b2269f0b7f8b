"""Our executor over one transport, or with MPI's own barrier, as peers of the executor as it is.

    mpiexec -n 4 python -m mpi4py bench/mpi/against.py --peers packed datatypes mpi-barrier

A ratio below 1 says what the part brings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from peers import Array, Case, Run

from redistrib.backends.mpi import to_mpi
from redistrib.plans.plan import Plan

Maker = Callable[..., Run | None]


def transport(name: str) -> Maker:
    """Every step by one transport, into an array made before, as the peers do."""

    def make(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run:
        run, out = to_mpi(plan, comm, transport=name), np.zeros(plan.after.box(comm.rank).size, plan.dtype)
        return lambda: run(x, out)

    return make


def mpi_barrier(own_out: bool) -> Maker:
    """MPI's `Allreduce` in the place of the barrier in shared memory."""

    def make(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run:
        run, out = to_mpi(plan, comm), np.zeros(plan.after.box(comm.rank).size, plan.dtype) if own_out else None
        host = run._groups.barrier.host
        word = np.zeros(1, np.int64)

        def agree(given: int) -> int:
            word[0] = given
            host.Allreduce(MPI.IN_PLACE, word, MPI.BAND)
            return int(word[0])

        run._groups.barrier.agree = agree  # type: ignore[method-assign]
        return lambda: run(x, out)

    return make


MAKERS: dict[str, Any] = {
    "packed": transport("packed"),
    "datatypes": transport("datatypes"),
    "mpi-barrier": mpi_barrier(True),
    "mpi-barrier-own": mpi_barrier(False),
}
