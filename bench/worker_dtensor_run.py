"""Child of `bench.dtensor_run`: one rank of a gloo job that redistributes a DTensor.

Runs under whatever interpreter has PyTorch; needs nothing else.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._redistribute import _gen_transform_infos, use_min_cost_redistribution_plan

from bench.children import serve
from bench.problems import Cut, Problem

MESHES: dict[tuple[int, ...], DeviceMesh] = {}


def placements(problem: Problem, cut: Cut) -> list[Any]:
    """A cut as DTensor's public interface says it: a placement per mesh axis."""
    found: list[Any] = [Replicate()] * len(problem.mesh)
    names = [name for name, _ in problem.mesh]
    for dim, axes in enumerate(cut):
        for name in axes:
            found[names.index(name)] = Shard(dim)
    return found


def tile(problem: Problem, cut: Cut, rank: int) -> torch.Tensor:
    """The rank's tile of the array that counts its elements."""
    position = problem.position(rank)
    parts = [torch.arange(*problem.interval(i, axes, position)) for i, axes in enumerate(cut)]
    total = torch.zeros((), dtype=torch.int64)
    for size, part in zip(problem.shape, parts, strict=True):
        total = total[..., None] * size + part
    return (total % 8388593).to(torch.float32)


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    problem = Problem.from_json(task["problem"])
    sizes = tuple(size for _, size in problem.mesh)
    if sizes not in MESHES:
        MESHES[sizes] = init_device_mesh("cpu", sizes)
    rank = dist.get_rank()
    source, target = placements(problem, problem.source_axes), placements(problem, problem.target_axes)
    x = DTensor.from_local(tile(problem, problem.source_axes, rank), MESHES[sizes], source, run_check=False)
    wanted = tile(problem, problem.target_axes, rank)
    times: dict[str, list[float]] = {}
    with torch.no_grad():
        for name in task["planners"]:
            chosen = use_min_cost_redistribution_plan(True) if name == "dijkstra" else contextlib.nullcontext()
            _gen_transform_infos.cache_clear()
            with chosen:
                if not torch.equal(x.redistribute(placements=target).to_local(), wanted):
                    part({"wrong": {name: f"wrong elements on rank {rank}"}})
                times[name] = [_seconds(x, target) for _ in range(task["rounds"])]
    part({"torch": torch.__version__, "times": times})


def _seconds(x: DTensor, target: list[Any]) -> float:
    dist.barrier()
    start = time.perf_counter()
    x.redistribute(placements=target).to_local()
    return time.perf_counter() - start


if __name__ == "__main__":
    address, processes, number = (os.environ[f"BENCH_CLUSTER_{n}"] for n in ("ADDRESS", "PROCESSES", "NUMBER"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=int(number), world_size=int(processes))
    serve(handle)
