"""Measure the seconds of steps on a process group; `redistrib.cost.fit` fits a profile to them.

A sample is one step, run by the executor and timed from a barrier to the end of the slowest rank.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from redistrib.backends.single_steps import sample_of, single_steps
from redistrib.backends.torch.dtypes import torch_dtype
from redistrib.backends.torch.executor import to_torch
from redistrib.backends.torch.links import Links
from redistrib.errors import CommunicatorError
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample


def measure(
    group: Any = None,
    *,
    tile_bytes: Sequence[int] = (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22),
    repeats: int = 9,
) -> list[Sample] | None:
    """Time gathers, all-to-alls and permutes; collective.

    Args:
        group: the process group, of at least 2 ranks; the default group if None.
        tile_bytes: tile sizes to measure at.
        repeats: runs of each step; the median counts.

    Returns:
        The samples on rank 0, None elsewhere.

    Raises:
        CommunicatorError: if there is only one rank.
    """
    ranks = dist.get_world_size(group)
    if ranks < 2:
        raise CommunicatorError("one rank has nobody to send to; calibrate with 2 ranks or more")
    plans = [plan for size in tile_bytes for plan in single_steps(ranks, size)]
    timed = [_measured(plan, group, repeats) for plan in plans]
    return timed if dist.get_rank(group) == 0 else None


def _measured(plan: Plan, group: Any, repeats: int) -> Sample:
    execute = to_torch(plan, group, check=False)
    device = Links(group).device
    tile = torch.zeros(plan.before.tile, dtype=torch_dtype(plan.dtype), device=device)
    execute(tile)
    taken = []
    for _ in range(repeats):
        dist.barrier(group)
        start = time.perf_counter()
        execute(tile)
        if device.type != "cpu":
            torch.cuda.synchronize()
        seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64, device=device)
        dist.all_reduce(seconds, dist.ReduceOp.MAX, group=group)
        taken.append(float(seconds))
    return sample_of(plan, taken)
