"""Measure what a step costs here, and fit a latency-bandwidth profile to it.

Every sample is one step run by the executor itself, timed from a barrier until the slowest rank is done. The model
is the one that plans are priced with: a latency by kind and group size, bytes received over a bandwidth, bytes
copied over a memory bandwidth; the fit is non-negative least squares of relative errors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy.optimize import nnls

from redistrib.backends.mpi.choice import REALISATIONS
from redistrib.backends.mpi.executor import to_mpi
from redistrib.errors import CommunicatorError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, Step
from redistrib.theory.semantics import placement_of

KINDS = ("allgather", "alltoall", "allpermute")

# Seconds per byte below which a coefficient of the fit is noise; a bandwidth must be finite.
_LEAST = 1e-15


@dataclass(frozen=True)
class Timed(Sample):
    """A sample and how it ran.

    Attributes:
        realisation: as `to_mpi` names it.
    """

    realisation: str


def measure(
    comm: MPI.Intracomm | None = None,
    *,
    tile_bytes: Sequence[int] = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22),
    repeats: int = 9,
) -> list[Sample] | None:
    """Time gathers, all-to-alls and permutes, each in its fastest realisation, to fit a cost model to.

    Args:
        comm: the communicator, of at least 2 ranks; `COMM_WORLD` by default.
        tile_bytes: tile sizes to measure at.
        repeats: runs of each step.

    Returns:
        The samples on rank 0, None elsewhere.

    Raises:
        CommunicatorError: if there is only one rank.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    timed = _all_timed(comm, tile_bytes, repeats)
    return list(_fastest(timed)) if comm.rank == 0 else None


def run(
    comm: MPI.Intracomm | None = None,
    *,
    name: str = "mpi",
    tile_bytes: Sequence[int] = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22),
    repeats: int = 9,
) -> dict[str, Any]:
    """Measure on all ranks of a communicator, and return the profile on each.

    Args:
        comm: the communicator, of at least 2 ranks; `COMM_WORLD` by default.
        name: recorded in the profile and in plans priced with it.
        tile_bytes: tile sizes to measure at.
        repeats: runs of each step; the median counts.

    Returns:
        A JSON-able dict in the form of version 1 of "redistrib-profile": latencies as [seconds a launch, seconds a
        further member] by kind, bandwidths in bytes per second; and `realisations`, by name [seconds a launch,
        seconds a further member, seconds a byte received], from which the executor chooses; and the samples.

    Raises:
        CommunicatorError: if there is only one rank.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    profile = fitted(_all_timed(comm, tile_bytes, repeats), name)
    profile["source"] = f"{comm.size} ranks, {MPI.Get_library_version().split(chr(10))[0].strip()}"
    return profile


def _all_timed(comm: MPI.Intracomm, tile_bytes: Sequence[int], repeats: int) -> list[Timed]:
    if comm.size < 2:
        raise CommunicatorError("one rank has nobody to send to; calibrate under mpiexec with 2 ranks or more")
    samples: list[Timed] = []
    for size in tile_bytes:
        for plan in _plans(comm.size, size):
            for how in REALISATIONS:
                sample = _measured(plan, comm, how, repeats)
                if sample is not None:
                    samples.append(sample)
    return samples


def _fastest(samples: Sequence[Timed]) -> list[Timed]:
    """Of the samples of one step the one in its fastest realisation."""
    best: dict[tuple[str, int, int], Timed] = {}
    for sample in samples:
        key = (sample.kind, sample.members, sample.received)
        if key not in best or sample.seconds < best[key].seconds:
            best[key] = sample
    return list(best.values())


def fitted(samples: Sequence[Timed], name: str) -> dict[str, Any]:
    """The profile that explains samples best; see `run`."""
    chosen = _fastest(samples)
    rows = np.zeros((len(chosen), 2 * len(KINDS) + 2))
    for k, sample in enumerate(chosen):
        column = 2 * KINDS.index(sample.kind)
        rows[k, column : column + 2] = 1, sample.members - 1
        rows[k, -2:] = sample.received, sample.copied
    figures = _least_squares(rows, chosen)
    if min(figures[-2:]) < _LEAST:  # what travels and what is copied grew alike: one bandwidth explains both
        rows[:, -2] += rows[:, -1]
        figures = _least_squares(rows[:, :-1], chosen)
        figures = np.append(figures, figures[-1])
    realisations = {}
    for how in REALISATIONS:
        own = [s for s in samples if s.realisation == how]
        if own:
            table = np.array([[1, s.members - 1, s.received] for s in own], float)
            realisations[how] = [float(v) for v in _least_squares(table, own)]
    return {
        "format": "redistrib-profile",
        "version": 1,
        "name": name,
        "latency": {kind: [float(figures[2 * k]), float(figures[2 * k + 1])] for k, kind in enumerate(KINDS)},
        "bandwidth": 1 / max(float(figures[-2]), _LEAST),
        "memory_bandwidth": 1 / max(float(figures[-1]), _LEAST),
        "slow_bandwidth": None,
        "devices_per_host": None,
        "axis_bandwidth": {},
        "one_call": True,
        "source": "",
        "realisations": realisations,
        "samples": [[s.kind, s.realisation, s.members, s.received, s.copied, s.seconds] for s in samples],
    }


def _least_squares(rows: np.ndarray[Any, np.dtype[np.float64]], samples: Sequence[Sample]) -> Any:
    seconds = np.array([s.seconds for s in samples])
    relative = rows / seconds[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-300)  # columns differ by ten orders of magnitude
    solution, _ = nnls(relative / scale, np.ones(len(samples)))
    return solution / scale


def _measured(plan: Plan, comm: MPI.Intracomm, how: str, repeats: int) -> Timed | None:
    try:
        execute = to_mpi(plan, comm, realisation=how)
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
    return Timed(step.kind, members, received, copied, middle, (three - quarter) / 2, how)


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
