"""Child of `bench.dtensor`: plans with DTensor's planners on a fake process group.

It runs under any interpreter with PyTorch, and needs nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor._redistribute import (
    _gen_transform_infos_non_cached,
    clear_redistribute_planner_cache,
    use_min_cost_redistribution_plan,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from bench.children import serve
from bench.problems import Cut, Problem

DIJKSTRA = "dijkstra"


MESHES: dict[tuple[int, ...], DeviceMesh] = {}


def mesh_for(sizes: tuple[int, ...]) -> DeviceMesh:
    """A CPU mesh of fake ranks; a new mesh replaces the process group."""
    if sizes not in MESHES:
        MESHES.clear()
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=math.prod(sizes))
        MESHES[sizes] = init_device_mesh("cpu", sizes)
    return MESHES[sizes]


def spec_of(problem: Problem, cut: Cut, mesh: DeviceMesh) -> DTensorSpec:
    """A cut as DTensor's spec: a placement per mesh axis, and per dimension the axes major to minor."""
    number = {name: k for k, (name, _) in enumerate(problem.mesh)}
    placements: list[Any] = [Replicate()] * len(number)
    order = []
    for dim, names in enumerate(cut):
        for name in names:
            placements[number[name]] = Shard(dim)
        if names:
            order.append(ShardOrderEntry(tensor_dim=dim, mesh_dims=tuple(number[n] for n in reversed(names))))
    empty = torch.empty(problem.shape, device="meta")
    meta = TensorMeta(empty.shape, empty.stride(), torch.float32)
    return DTensorSpec(mesh, tuple(placements), tensor_meta=meta, shard_order=tuple(order))


def count(infos: list[Any], problem: Problem, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Bytes received per device and the largest tile, by the rules of the other systems."""
    tile = problem.nbytes
    for size, dims in zip(sizes, _cutting(problem.source_axes, problem), strict=True):
        tile //= size if dims else 1
    largest, received, steps = tile, 0.0, []
    for info in infos:
        before, after = info.src_dst_placements
        n = sizes[info.mesh_dim]
        if before.is_shard() and after.is_replicate():
            received += (n - 1) * tile
            tile *= n
            steps.append(f"allgather/{n}")
        elif before.is_replicate() and after.is_shard():
            tile = tile / n if tile % n else tile // n
            steps.append("dynslice/0")
        elif before.is_shard() and after.is_shard():
            received += tile * (n - 1) / n
            steps.append(f"alltoall/{n}")
        else:
            raise ValueError(f"no rule to count {before} -> {after}")
        largest = max(largest, tile)
    return {"received": received, "largest": largest, "steps": steps}


def _cutting(cut: Cut, problem: Problem) -> list[bool]:
    used = {name for names in cut for name in names}
    return [name in used for name, _ in problem.mesh]


def handle(task: dict[str, Any], part: Callable[[dict[str, Any]], None]) -> None:
    part({"torch": torch.__version__})
    problem = Problem.from_json(task["problem"])
    sizes = tuple(size for _, size in problem.mesh)
    mesh = mesh_for(sizes)
    source, target = (spec_of(problem, cut, mesh) for cut in (problem.source_axes, problem.target_axes))
    for name in task["planners"]:
        clear_redistribute_planner_cache()
        start = time.process_time()
        with use_min_cost_redistribution_plan(name == DIJKSTRA):
            infos = _gen_transform_infos_non_cached(source, target)
        seconds = time.process_time() - start
        part({name: {"plan_s": seconds, **count(infos, problem, sizes)}})


if __name__ == "__main__":
    serve(handle)
