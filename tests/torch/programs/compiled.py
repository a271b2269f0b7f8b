"""Moves inside compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
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
