"""Our executor with one part taken out or put in another's place, as peers of the executor as it is.

    mpiexec -n 4 python -m mpi4py bench/mpi/against.py --peers packed datatypes mpi-barrier no-direct plain-copy

A ratio below 1 says what the part brings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from peers import Array, Case, Run

from redistrib.backends.mpi import shared, to_mpi
from redistrib.plans import strided
from redistrib.plans.plan import Plan

Maker = Callable[..., Run | None]


def transport(name: str) -> Maker:
    """Every step by one transport, into an array made before, as the peers do."""

    def make(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run:
        run, out = to_mpi(plan, comm, realisation=name), np.zeros(plan.after.tile, plan.dtype)
        return lambda: run(x, out)

    return make


def mpi_barrier(own_out: bool) -> Maker:
    """MPI's `Allreduce` in the place of the barrier in shared memory."""

    def make(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run:
        run, out = to_mpi(plan, comm), np.zeros(plan.after.tile, plan.dtype) if own_out else None
        host = run._groups.meeting.host
        word = np.zeros(1, np.int64)

        def agree(given: int) -> int:
            word[0] = given
            host.Allreduce(MPI.IN_PLACE, word, MPI.BAND)
            return int(word[0])

        run._groups.meeting.agree = agree  # type: ignore[method-assign]
        return lambda: run(x, out)

    return make


def no_direct(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run | None:
    """Through shared memory even where MPI would move from memory to memory at once."""
    run, out = to_mpi(plan, comm), np.zeros(plan.after.tile, plan.dtype)
    if run._straight is None:
        return None
    run._straight = None
    return lambda: run(x, out)


def plain_copy(own_out: bool, begin: int) -> Maker:
    """Copies that go around no alias of pages, and shared tiles that begin where they may."""

    def make(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run:
        kept, shared.BEGIN = shared.BEGIN, begin
        run, out = to_mpi(plan, comm), np.zeros(plan.after.tile, plan.dtype) if own_out else None
        shared.BEGIN = kept

        def call() -> Array:
            page, strided._PAGE = strided._PAGE, 1  # nothing is ahead of anything, modulo 1
            try:
                return run(x, out)
            finally:
                strided._PAGE = page

        return call

    return make


MAKERS: dict[str, Any] = {
    "packed": transport("packed"),
    "datatypes": transport("datatypes"),
    "mpi-barrier": mpi_barrier(True),
    "mpi-barrier-own": mpi_barrier(False),
    "no-direct": no_direct,
    "plain-copy": plain_copy(True, 48),
    "plain-copy-own": plain_copy(False, 48),
    "plain-copy-0": plain_copy(False, 0),
}
