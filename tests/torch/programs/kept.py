"""Plans of model states as `rd.torch.reshard_plan` prints them, for `kept_plans.json`."""

from __future__ import annotations

import random
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import redistrib as rd
from programs.dtensors import make, mesh_of

ALL = tuple(range(8))
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]


def plans(ranks: list[int]) -> dict[str, list[str]]:
    """The lines of each plan, by the tree, what is donated and the limit; only these ranks plan."""
    answers = {}
    for name in (*map(str, range(4)), "large"):
        state, targets = large() if name == "large" else tree(random.Random(int(name)))
        for donate in (False, True) if dist.get_rank() in ranks else ():
            plan = rd.torch.reshard_plan(state, targets, donate=donate)
            try:
                rd.torch.reshard_plan(state, targets, donate=donate, memory_limit=1)
            except rd.errors.MemoryLimitError as error:
                least = error.least
            about = f"tree {name}, {'donated' if donate else 'not donated'}"
            answers[about] = printed(plan)
            for limit in sorted({least, (least + plan.peak_bytes) // 2, max(least, plan.peak_bytes - 1)}):
                within = rd.torch.reshard_plan(state, targets, donate=donate, memory_limit=limit)
                answers[f"{about}, within {limit}"] = printed(within)
            try:
                rd.torch.reshard_plan(state, targets, donate=donate, memory_limit=least - 1)
            except rd.errors.MemoryLimitError as error:
                answers[f"{about}, within {least - 1}"] = [str(error)]
    return answers


def printed(plan: Any) -> list[str]:
    """The groups of a plan, and the last lines of its table."""
    groups = [
        f"{group.launches} launches, {group.received_bytes} bytes received, {group.peak_bytes} at the peak: "
        + " ".join(group.paths)
        for group in plan.groups
    ]
    return [*groups, *(" ".join(line.split()) for line in str(plan).splitlines()[-2:])]


def tree(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors in even and uneven tiles, partial sums, one that DTensor's own steps move, and some that stay."""
    source = mesh_of(ALL, rng.choice([(8,), (2, 4)]))
    ends = [source, mesh_of(ALL[::-1], (4, 2)), mesh_of((4, 5, 6, 7), (2, 2)), mesh_of((1, 6), (2,))]
    target = rng.choice(ends)
    state: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    for k in range(8):
        shape = tuple(rng.choice((3, 8, 10, 16)) for _ in range(rng.randint(0, 3)))
        x = make(torch.zeros(shape, dtype=rng.choice(DTYPES)), source, _placements(rng, shape, source.ndim))
        mesh = target if k % 4 else rng.choice(ends)  # tensors on other ranks do not share a launch
        for name in (f"w{k}", f"m{k}")[: rng.randint(1, 2)]:
            state[name], targets[name] = x.clone(), (mesh, _placements(rng, shape, mesh.ndim))
    whole = torch.zeros(6, 8)
    for name, kind in (("sum", "sum"), ("product", "product")):
        state[name] = DTensor.from_local(whole, source, [Partial(kind)] * source.ndim, run_check=False)
        targets[name] = (source, [Shard(0)] * source.ndim)
    state |= {"kept": make(whole, source, [Replicate()] * source.ndim), "own": torch.zeros(40 * (dist.get_rank() == 3))}
    return state, {**targets, "kept": None, "own": None}


def _placements(rng: random.Random, shape: tuple[int, ...], count: int) -> list[Any]:
    return [
        Shard(rng.randrange(len(shape))) if shape and rng.random() < 0.7 else Replicate() for _ in range(count)
    ]  # fmt: skip


def large() -> tuple[dict[str, Any], Any]:
    """Tensors that do not fit one launch together, of which one has more bytes than a launch."""
    mesh = mesh_of(ALL, (8,))
    state = {
        f"w{k}": DTensor.from_local(torch.empty(rows << 20, 1), mesh, [Replicate()], run_check=False)
        for k, rows in enumerate((8, 3, 15, 2, 6, 1, 7, 9, 4))
    }
    return state, [Shard(0)]
