"""Child of `bench.torch_cluster`: a rank of a gloo job, which moves DTensors by DTensor and by plans."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, _redistribute, placement_types

import redistrib as rd
from bench.children import serve
from bench.elements import numbered
from bench.library import model_of
from bench.problems import Cut, Problem
from bench.rounds import alternate
from bench.summary import OURS

MESHES: dict[tuple[int, ...], DeviceMesh] = {}
GATHERING = placement_types.shard_dim_alltoall


def real_all_to_all(local: torch.Tensor, gather_dim: int, shard_dim: int, mesh: DeviceMesh, mesh_dim: int) -> Any:
    """DTensor's all-to-all on accelerators, through gloo's all-to-all; tiles are even."""
    parts = torch.stack(local.chunk(mesh.size(mesh_dim), shard_dim))
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=mesh.get_group(mesh_dim))
    return torch.cat(list(received), gather_dim)


@functools.cache
def planner(least_cost: bool) -> Callable[..., Any]:
    """A planner of DTensor with a separate cache."""

    def planned(*args: Any, **options: Any) -> Any:
        with _redistribute.use_min_cost_redistribution_plan(least_cost):
            return _redistribute._gen_transform_infos_non_cached(*args, **options)

    return functools.cache(planned)


def placements(problem: Problem, cut: Cut) -> list[Any]:
    """A cut in DTensor's public interface: a placement per mesh axis."""
    result: list[Any] = [Replicate()] * len(problem.mesh)
    names = [name for name, _ in problem.mesh]
    for dim, axes in enumerate(cut):
        for name in axes:
            result[names.index(name)] = Shard(dim)
    return result


def moved(way: str, x: DTensor, target: list[Any], task: dict[str, Any]) -> torch.Tensor:
    """The local tensor after the move, by the method `way`."""
    if way == OURS:
        model = model_of(task["cost_model"])
        return rd.torch.redistribute(x, None, target, machine=model, topology=task["hosts"]).to_local()
    _redistribute._gen_transform_infos = planner(way.startswith("dijkstra"))
    placement_types.shard_dim_alltoall = GATHERING if way.endswith("gathering") else real_all_to_all
    local = x.redistribute(placements=target).to_local()
    return local.wait() if hasattr(local, "wait") else local


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    problem = Problem.from_json(task["problem"])
    sizes = tuple(size for _, size in problem.mesh)
    if sizes not in MESHES:
        MESHES[sizes] = init_device_mesh("cpu", sizes)
    rank = dist.get_rank()
    cuts = (problem.source_axes, problem.target_axes)
    source, target = (placements(problem, cut) for cut in cuts)
    tiles = [torch.from_numpy(numbered(problem.shape, problem.box(cut, rank))) for cut in cuts]
    x = DTensor.from_local(tiles[0], MESHES[sizes], source, run_check=False)
    ways = (OURS, *task["ways"])
    with torch.no_grad():
        for way in ways:
            if not torch.equal(moved(way, x, target, task), tiles[1]):
                part({"wrong": {way: f"wrong elements on rank {rank}"}})
        calls = {way: functools.partial(moved, way, x, target, task) for way in ways}
        times = alternate(calls, task["rounds"], dist.barrier)
    part({"torch": torch.__version__, "times": times})


if __name__ == "__main__":
    address, processes, number = (os.environ[f"BENCH_CLUSTER_{n}"] for n in ("ADDRESS", "PROCESSES", "NUMBER"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=int(number), world_size=int(processes))
    serve(handle)
