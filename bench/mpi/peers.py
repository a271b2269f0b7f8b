"""Our executor and its peers on the same tiles, each prepared once and run on demand.

A peer is made for a case and gives a function that moves this rank's tile; a peer that cannot express the case
gives None. Every result is compared with ours before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.plans.plan import Plan

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[], Array]


@dataclass(frozen=True)
class Case:
    """One redistribution: two types on a mesh."""

    source: str
    target: str
    mesh: str
    dtype: str

    def plan(self) -> Plan:
        """The plan that meets the lower bound."""
        return synthesize(self.source, self.target, self.mesh, dtype=self.dtype, cost_model="exact")


def box(plan: Plan, rank: int, after: bool) -> tuple[slice, ...]:
    """Where a rank's tile lies in the global array."""
    found = (plan.after if after else plan.before).box(rank)
    return tuple(slice(start, start + size) for start, size in zip(found.start, found.size, strict=True))


def tile_for(plan: Plan, rank: int, after: bool = False) -> Array:
    """A tile whose every element tells its place in the global array (modulo what the dtype can hold)."""
    where = box(plan, rank, after)
    index = np.zeros([s.stop - s.start for s in where], np.int64)
    for s, n, k in zip(where, plan.shape, range(len(where)), strict=True):
        steps = [1] * len(where)
        steps[k] = -1
        index = index * n + np.arange(s.start, s.stop).reshape(steps)
    return (index % 251 if plan.itemsize == 1 else index % 1000003).astype(plan.dtype)


def ours(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array, **options: Any) -> Run:
    """The executor, with a result of its own."""
    run = to_mpi(plan, comm, **options)
    return lambda: run(x)


def ours_into(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array, **options: Any) -> Run:
    """The executor, into an array that the caller made before."""
    run = to_mpi(plan, comm, **options)
    out = np.zeros(plan.after.box(comm.rank).size, plan.dtype)
    return lambda: run(x, out)


def mpi4py_fft(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run | None:
    """mpi4py-fft's redistribution between pencils, into an array made before."""
    try:
        from mpi4py_fft.pencil import Pencil, Subcomm
    except ImportError:
        return None
    pair = _aligned(plan)
    if pair is None:
        return None
    free_before, free_after = pair
    grid = [int(n) for n in plan.before.grid]
    pencils = Subcomm(comm, grid)
    first = Pencil(pencils, plan.shape, axis=free_before)
    second = first.pencil(free_after)
    same = all(
        tuple(pencil.subshape) == placement.box(comm.rank).size
        and (placement.start[comm.rank] == pencil.substart).all()
        for pencil, placement in ((first, plan.before), (second, plan.after))
    )
    if not comm.allreduce(same, MPI.LAND):  # other ranks may differ in where their tiles lie
        return None
    transfer = first.transfer(second, np.dtype(plan.dtype).char)
    out = np.zeros(plan.after.box(comm.rank).size, plan.dtype)

    def run() -> Array:
        transfer.forward(x, out)
        return out

    return run


def _aligned(plan: Plan) -> tuple[int, int] | None:
    """The dimensions that are whole before and after, where exactly one cut moves from one dimension to another."""
    before, after = plan.before.grid, plan.after.grid
    changed = [k for k in range(len(before)) if before[k] != after[k]]
    if len(changed) != 2:
        return None
    a, b = changed
    if before[b] == 1 and after[a] == 1 and before[a] == after[b]:
        return b, a
    if before[a] == 1 and after[b] == 1 and before[b] == after[a]:
        return a, b
    return None


def heat(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run | None:
    """HeAT's `resplit`, which cuts along one dimension or none."""
    try:
        import heat as ht
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    splits = []
    for placement in (plan.before, plan.after):
        cut = [k for k, n in enumerate(placement.grid) if n > 1]
        if len(cut) > 1 or (cut and placement.grid[cut[0]] != comm.size):
            return None
        if cut and any(int(placement.index[r, cut[0]]) != r for r in range(comm.size)):
            return None
        splits.append(cut[0] if cut else None)
    try:
        array = ht.array(torch.from_numpy(x), is_split=splits[0], comm=ht.MPICommunication(comm))
    except TypeError:
        return None
    return lambda: ht.resplit(array, splits[1]).larray.numpy()


def gather_scatter(case: Case, comm: MPI.Intracomm, plan: Plan, x: Array) -> Run | None:
    """Everything to rank 0, put together there, cut again, and out to everyone; of tiles of one size."""
    if plan.source.uneven or plan.target.uneven:
        return None
    root = comm.rank == 0
    parts = np.zeros((comm.size, *plan.before.tile), plan.dtype) if root else None
    whole = np.zeros(plan.shape, plan.dtype) if root else None
    cut = np.zeros((comm.size, *plan.after.tile), plan.dtype) if root else None
    out = np.zeros(plan.after.tile, plan.dtype)
    mine = x.view(np.uint8) if x.ndim and x.size else x

    def run() -> Array:
        comm.Gather(mine, None if parts is None else parts.view(np.uint8), root=0)
        if parts is not None and whole is not None and cut is not None:
            for rank in range(comm.size):
                whole[box(plan, rank, False)] = parts[rank]
            for rank in range(comm.size):
                cut[rank] = whole[box(plan, rank, True)]
        comm.Scatter(None if cut is None else cut.view(np.uint8), out.view(np.uint8), root=0)
        return out

    return run
