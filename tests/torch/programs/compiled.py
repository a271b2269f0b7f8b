"""Moves inside compiled functions."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import redistrib as rd
from programs.dtensors import mesh_of


def functions() -> list[str]:
    """Forward and backward of compiled functions whose first call moves a tensor: in full graphs, or with a break."""
    mesh, turned = mesh_of((0, 1), (2,)), mesh_of((1, 0), (2,))
    whole = torch.arange(16.0).reshape(4, 4)
    theirs = DTensor.redistribute
    done = []

    def cast(x: DTensor) -> DTensor:
        return rd.torch.redistribute(x * 2, placements=[Shard(1)], forward_dtype=torch.float64) + 1

    def method(x: DTensor) -> DTensor:
        return (x * 2).redistribute(mesh, [Shard(1)]) + 1

    def elsewhere(x: DTensor) -> DTensor:
        return rd.torch.redistribute(x * 2, turned, [Shard(1)]) + 1

    cases: list[tuple[Callable[[DTensor], DTensor], bool]] = [
        (cast, True), (method, True), (elsewhere, False)
    ]  # fmt: skip
    for function, full in cases:
        torch._dynamo.reset()
        if function is method:  # as where the library takes the place of DTensor's method
            DTensor.redistribute = rd.torch.redistribute
        try:
            compiled: Any = torch.compile(function, backend="aot_eager", fullgraph=full)
            for _ in range(2):
                x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
                y = compiled(x)
                assert list(y.placements) == [Shard(1)], y
                gathered = rd.torch.redistribute(y.detach(), mesh, [Replicate()]).to_local()
                assert torch.equal(gathered, (2 * whole + 1).to(y.dtype)), (function, gathered)
                (y.to_local() * 3).sum().backward()
                assert x.grad is not None and torch.equal(x.grad.full_tensor(), torch.full((4, 4), 6.0)), function
        finally:
            DTensor.redistribute = theirs
        done.append(function.__name__)
    return done


def cached(folder: str) -> dict[str, list[tuple[bool, int]]]:
    """Compiled functions whose programs are on disk at the second time, in one folder for both ranks.

    Returns:
        For the library's move and for DTensor's, at each time whether result and gradient are right on this rank, and
        how many programs came from the folder.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    mesh, rank = mesh_of((0, 1), (2,)), dist.get_rank()
    whole = torch.arange(16.0).reshape(4, 4)
    weights = whole.chunk(2, 1)[rank].double()

    def ours(x: DTensor) -> DTensor:
        return rd.torch.redistribute(x * 2, placements=[Shard(1)], forward_dtype=torch.float64) + 1

    def theirs(x: DTensor) -> DTensor:
        return (x * 2).redistribute(placements=[Shard(1)], forward_dtype=torch.float64) + 1

    found: dict[str, list[tuple[bool, int]]] = {}
    for function in (ours, theirs):
        for _ in range(2):
            torch._dynamo.reset()
            counters.clear()
            x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
            compiled: Any = torch.compile(function, backend="inductor", fullgraph=True)
            y = compiled(x).to_local()
            (y * weights).sum().backward()
            assert x.grad is not None
            right = torch.equal(y.detach(), 2 * weights + 1)
            right &= torch.equal(x.grad.to_local(), 2 * whole.chunk(2, 0)[rank])
            found.setdefault(function.__name__, []).append((right, counters["aot_autograd"]["autograd_cache_hit"]))
            dist.barrier()
    return found
