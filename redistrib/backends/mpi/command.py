"""What `redistrib run` does under MPI: carry a plan out on `COMM_WORLD` and check every element."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from redistrib.backends.mpi.arrays import dtype_of
from redistrib.backends.mpi.executor import Executor, to_mpi
from redistrib.plans.plan import Plan
from redistrib.report import rendered
from redistrib.theory.placement import Placement


def run_command(
    plan: Plan, *, as_json: bool = False, comm: MPI.Intracomm | None = None, memory_limit: int | None = None
) -> int:
    """Run a plan on all ranks, check every element of every tile, and print what came of it on rank 0.

    Every element of the input tells its own place, hashed, so an element that came from elsewhere is found out.

    Args:
        plan: the same plan on all ranks.
        as_json: print the figures as JSON.
        comm: the communicator; `COMM_WORLD` by default.
        memory_limit: passed on to `to_mpi`.

    Returns:
        The exit code, equal on all ranks: 0 if every element is right.

    Raises:
        CommunicatorError: as `to_mpi` does.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    with to_mpi(plan, comm, memory_limit=memory_limit) as execute:
        source = telling_tile(plan, plan.before, comm.rank)
        execute(source)
        comm.Barrier()
        start = time.perf_counter()
        result = execute(source)
        seconds = float(comm.allreduce(time.perf_counter() - start, MPI.MAX))
        want = telling_tile(plan, plan.after, comm.rank)
        differing = (_bits(result) != _bits(want)).reshape(-1, plan.itemsize).any(axis=1)
        wrong = int(comm.allreduce(int(np.count_nonzero(differing))))
        received = comm.allreduce(execute.received_bytes)
        if comm.rank == 0:
            _report(plan, execute, as_json, wrong, received, seconds)
    return 1 if wrong else 0


def telling_tile(plan: Plan, placement: Placement, rank: int) -> npt.NDArray[Any]:
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
    hashed = np.stack([_mixed(number + np.uint64(k << 56)) for k in range(words)], axis=-1)
    if dtype.kind == "b":
        return (hashed[..., 0] & np.uint64(1)).astype(dtype)
    tile = np.ascontiguousarray(hashed).view(np.uint8)[..., : dtype.itemsize]
    return np.ascontiguousarray(tile).view(dtype).reshape(box.size)


def _mixed(number: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bijection of 64-bit words that leaves no two neighbours alike."""
    mixed = (number ^ (number >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _report(plan: Plan, execute: Executor, as_json: bool, wrong: int, received: int, seconds: float) -> None:
    bound = sum(plan.lower_bound) * plan.itemsize
    compared = plan.after.tile_size * plan.devices
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
    steps = [step.kind for step in plan.steps if step.kind != "dynslice"]
    how = [f"{kind} ({name})" for kind, name in zip(steps, execute.transports, strict=True)]
    rows = [
        ("MPI library", MPI.Get_library_version().split("\n")[0].strip().rstrip("\0")),
        ("steps", ", ".join(how) or "none"),
        ("bytes received, all ranks", f"{received:,}"),
        ("over the lower bound", f"{received / bound:.2f}x" if bound else "-"),
        ("staging per rank, bytes", f"{execute.scratch_bytes:,}"),
        ("milliseconds, slowest rank", f"{seconds * 1e3:.3f}"),
        ("elements that differ", f"{wrong:,}"),
    ]
    verdict = "every element is right" if not wrong else f"{wrong:,} ELEMENTS ARE WRONG"
    table = rendered(f"run on {plan.devices} MPI ranks", ["", "ours"], rows)
    print(f"{plan}\n\n{table}\n{compared:,} elements compared: {verdict}", flush=True)
