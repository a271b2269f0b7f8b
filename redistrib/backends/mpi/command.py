"""The command `redistrib run` under MPI: run a plan on `COMM_WORLD` and check every element."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of
from redistrib.backends.mpi.executor import Executor, to_mpi
from redistrib.plans import pattern, reference
from redistrib.plans.plan import Plan
from redistrib.report import rendered
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Placement


def run_command(plan: Plan, *, as_json: bool = False, comm: MPI.Intracomm | None = None) -> int:
    """Run a plan on all ranks, check every element of every tile, and print the result on rank 0.

    The bits of every element of the input are a hash of its place, so the check finds an element from any other place.
    Partial sums of the input differ likewise. Where the target's tiles are partial sums, their sum is checked on rank
    0.

    Args:
        plan: the same plan on all ranks.
        as_json: print the figures as JSON.
        comm: the communicator; `COMM_WORLD` by default.

    Returns:
        The exit code, equal on all ranks: 0 if every element is right.

    Raises:
        CommunicatorError: as `to_mpi` does.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    with to_mpi(plan, comm) as execute:
        dtype, sums = dtype_of(plan.dtype), plan.before.summands > 1 or plan.after.summands > 1
        source = pattern.source_tile(plan, comm.rank, dtype) if sums else pattern_tile(plan, plan.before, comm.rank)
        execute(source)
        comm.Barrier()
        start = time.perf_counter()
        result = execute(source)
        seconds = float(comm.allreduce(time.perf_counter() - start, MPI.MAX))
        if plan.after.summands > 1:
            wrong = comm.bcast(_wrong_sums(plan, comm.gather(result)))
        else:
            box = plan.after.box(comm.rank)
            want = pattern.reduced(plan, box, dtype) if sums else pattern_tile(plan, plan.after, comm.rank)
            wrong = int(comm.allreduce(_differing(result, want)))
        received = comm.allreduce(execute.received_bytes)
        if comm.rank == 0:
            _report(plan, execute, as_json, wrong, received, seconds)
    return 1 if wrong else 0


def pattern_tile(plan: Plan, placement: Placement, rank: int) -> npt.NDArray[Any]:
    """A tile of the array whose element k has the low bits of a hash of k."""
    dtype = dtype_of(plan.dtype)
    box = placement.box(rank)
    number = np.zeros(box.size, np.uint64)
    for i, (start, size, whole) in enumerate(zip(box.start, box.size, placement.shape, strict=True)):
        line = np.arange(start, start + size, dtype=np.uint64).reshape(
            [-1 if k == i else 1 for k in range(len(box.size))]
        )
        number = number * np.uint64(max(1, whole)) + line
    words = -(-dtype.itemsize // 8)
    hashed = np.stack([pattern.mixed(number + np.uint64(k << 56)) for k in range(words)], axis=-1)
    if dtype.kind == "b":
        return (hashed[..., 0] & np.uint64(1)).astype(dtype)
    tile = np.ascontiguousarray(hashed).view(np.uint8)[..., : dtype.itemsize]
    return np.ascontiguousarray(tile).view(dtype).reshape(box.size)


def _wrong_sums(plan: Plan, tiles: list[npt.NDArray[Any]] | None) -> int | None:
    """Elements of the whole array that differ from the sum of the tiles; None on ranks without the tiles."""
    if tiles is None:
        return None
    dtype, whole = dtype_of(plan.dtype), Box((0,) * plan.after.rank, plan.shape)
    return _differing(reference.assemble(tiles, plan.after), pattern.reduced(plan, whole, dtype))


def _differing(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> int:
    """Elements that differ in any bit."""
    return int(np.count_nonzero((_bits(a) != _bits(b)).reshape(-1, max(1, a.itemsize)).any(axis=1)))


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _report(plan: Plan, execute: Executor, as_json: bool, wrong: int, received: int, seconds: float) -> None:
    bound = plan.least_received * plan.itemsize
    compared = math.prod(plan.shape) if plan.after.summands > 1 else sum(plan.after.boxes.volumes())
    if as_json:
        figures = {
            "source": str(plan.source),
            "target": str(plan.target),
            "mesh": str(plan.source_mesh),
            "backend": "mpi",
            "ranks": plan.devices,
            "transports": execute.transports,
            "compared": compared,
            "received_bytes": received,
            "bound_bytes": bound,
            "scratch_bytes": execute.scratch_bytes,
            "seconds": seconds,
            "wrong_elements": wrong,
        }
        print(json.dumps(figures, indent=2), flush=True)
        return
    steps = [f"{step.kind} ({name})" for step, name in zip(execute.steps, execute.transports, strict=True)]
    rows = [
        ("MPI library", MPI.Get_library_version().split("\n")[0].strip().rstrip("\0")),
        ("steps", ", ".join(steps) or "none"),
        ("bytes received, all ranks", f"{received:,}"),
        ("over the lower bound", f"{received / bound:.2f}x" if bound else "-"),
        ("staging per rank, bytes", f"{execute.scratch_bytes:,}"),
        ("milliseconds, slowest rank", f"{seconds * 1e3:.3f}"),
        ("elements that differ", f"{wrong:,}"),
    ]
    verdict = "every element is right" if not wrong else f"{wrong:,} ELEMENTS ARE WRONG"
    table = rendered(f"run on {plan.devices} MPI ranks", ["", "ours"], rows)
    print(f"{plan}\n\n{table}\n{compared:,} elements compared: {verdict}", flush=True)
