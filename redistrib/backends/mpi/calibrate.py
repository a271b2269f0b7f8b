"""Measurement of steps over every transport; `redistrib.cost.fit` makes a profile of the samples.

A sample is one step, run by the executor and timed from a barrier until the slowest rank is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi.executor import to_mpi
from redistrib.backends.mpi.selection import TRANSPORTS
from redistrib.backends.single_steps import sample_of, single_steps
from redistrib.errors import CommunicatorError
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample


def measure(
    comm: MPI.Intracomm | None = None,
    *,
    tile_bytes: Sequence[int] = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22),
    repeats: int = 9,
) -> list[Sample] | None:
    """Time gathers, all-to-alls and permutes over every transport; collective.

    Args:
        comm: the communicator, of at least 2 ranks; `COMM_WORLD` by default.
        tile_bytes: tile sizes to measure at.
        repeats: runs of each step; the median counts.

    Returns:
        The samples on rank 0, None elsewhere.

    Raises:
        CommunicatorError: if there is only one rank.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    if comm.size < 2:
        raise CommunicatorError("one rank has nobody to send to; calibrate under mpiexec with 2 ranks or more")
    plans = [plan for size in tile_bytes for plan in single_steps(comm.size, size)]
    timed = [_measured(plan, comm, transport, repeats) for plan in plans for transport in TRANSPORTS]
    return [sample for sample in timed if sample is not None] if comm.rank == 0 else None


def _measured(plan: Plan, comm: MPI.Intracomm, transport: str, repeats: int) -> Sample | None:
    try:
        execute = to_mpi(plan, comm, transport=transport)
    except CommunicatorError:  # raised on all ranks: no shared memory between them
        return None
    with execute:
        tile = np.zeros(plan.before.tile, plan.dtype)
        execute(tile)
        taken = []
        for _ in range(repeats):
            comm.Barrier()
            start = time.perf_counter()
            execute(tile)
            taken.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
    return sample_of(plan, taken, transport)
