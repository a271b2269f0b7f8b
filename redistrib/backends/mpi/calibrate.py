"""Measure what a step costs here, over every transport; `redistrib.cost.fit` makes a profile of it.

Every sample is one step run by the executor itself, timed from a barrier until the slowest rank is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi.executor import to_mpi
from redistrib.backends.mpi.selection import TRANSPORTS
from redistrib.errors import CommunicatorError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Step
from redistrib.theory.placement import placement_of


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
    plans = [plan for size in tile_bytes for plan in _plans(comm.size, size)]
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
    step = plan.steps[0]
    members = step.group_size if isinstance(step, AllGather | AllToAll) else 2
    received = max(step.received()) * plan.itemsize
    quarter, middle, three = (float(q) for q in np.quantile(taken, (0.25, 0.5, 0.75)))
    copied = _copied(step) * plan.itemsize
    return Sample(step.kind, members, received, copied, middle, (three - quarter) / 2, transport)


def _copied(step: Step) -> int:
    """Elements that the cost model counts as copied on each device."""
    return step.after.tile_size + (step.before.tile_size if isinstance(step, AllToAll) else 0)


def _plans(ranks: int, tile_bytes: int) -> Iterator[Plan]:
    """One plan of one step for each kind and group size."""
    sizes = sorted({g for g in range(2, ranks + 1) if ranks % g == 0})
    for g in {sizes[0], sizes[len(sizes) // 2], sizes[-1]}:
        mesh = Mesh((Axis("x", g), Axis("y", ranks // g)))
        groups = np.arange(ranks).reshape(g, ranks // g).T
        width = max(1, tile_bytes // 4 // 64 // g)
        cut_rows = DistType((DimType(64, ("x",), 64 * g), DimType(width * g, (), width * g)))
        cut_columns = DistType((DimType(64 * g, (), 64 * g), DimType(width, ("x",), width * g)))
        whole = DistType((DimType(64 * g, (), 64 * g), DimType(width * g, (), width * g)))
        before = placement_of(cut_rows, mesh)
        if tile_bytes * g <= 1 << 24:
            yield _one(cut_rows, mesh, whole, mesh, AllGather(before, placement_of(whole, mesh), groups))
        yield _one(cut_rows, mesh, cut_columns, mesh, AllToAll(before, placement_of(cut_columns, mesh), groups))
    line = Mesh((Axis("x", ranks),))
    turned = Mesh((Axis("x", ranks),), tuple(int(d) for d in np.roll(np.arange(ranks), -1)))
    cut = DistType((DimType(max(1, tile_bytes // 4), ("x",), max(1, tile_bytes // 4) * ranks),))
    pairs = np.stack([np.arange(ranks), np.roll(np.arange(ranks), -1)], axis=1)
    yield _one(cut, line, cut, turned, AllPermute(placement_of(cut, line), placement_of(cut, turned), pairs))


def _one(source: DistType, source_mesh: Mesh, target: DistType, target_mesh: Mesh, step: Step) -> Plan:
    return Plan(source, source_mesh, target, target_mesh, "float32", 4, (step,), "best", "exact", 0, "elements")
