"""Ranks that do not make the same calls: what each of them is told."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard

import redistrib as rd
from programs.dtensors import hold, make, mesh_of


def told(call: Callable[[], Any]) -> str:
    """The error of a call."""
    try:
        call()
    except rd.RedistribError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def different(which: str) -> list[str]:
    """What every rank is told in one case; afterwards all make the same call, which works."""
    mesh, rank = mesh_of(tuple(range(8)), (8,)), dist.get_rank()
    whole = torch.arange(64.0).reshape(8, 8)
    x, copy = make(whole, mesh, [Shard(0)]), make(whole, mesh, [Replicate()])
    wrong = DTensor.from_local(
        torch.ones(1 + (rank == 3), 8), mesh, [Shard(0)], shape=whole.shape, stride=whole.stride()
    )
    for source, end in ((x, [Shard(1)]), (x, [Replicate()]), (copy, [Shard(0)])):
        rd.torch.redistribute(source, mesh, end)
    said = []
    if which == "two known calls":
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Replicate() if rank == 2 else Shard(1)])))
    elif which == "a new call":
        limit = 1 << 30 if rank == 4 else None
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)], memory_limit=limit)))
    elif which == "a wrong tensor":
        said.append(told(lambda: rd.torch.redistribute(wrong, mesh, [Shard(1)])))
    elif which == "wrong placements":
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(5 if rank == 6 else 1)])))
    elif which == "compared by one":
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)], check=True if rank == 5 else None)))
    elif which == "nothing travels":
        # A slice waits for nobody; the call after it does.
        (lambda: rd.torch.redistribute(copy if rank == 1 else x, mesh, [Shard(0)]))()
        said.append(told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)])))
    elif which == "a tree":
        call = (lambda: rd.torch.reshard({"x": x}, [Shard(1)])) if rank == 7 else None
        said.append(told(call or (lambda: rd.torch.redistribute(x, mesh, [Shard(1)]))))
    hold(rd.torch.redistribute(x, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "afterwards")
    return said


def in_another_order() -> str:
    """Two calls among some ranks each, which two ranks make in different orders."""
    rank = dist.get_rank()
    here, there = mesh_of((0, 1, 2, 3), (4,)), mesh_of((2, 3, 4, 5), (4,))
    whole = torch.arange(16.0).reshape(4, 4)
    pairs = [(mesh, make(whole, mesh, [Shard(0)])) for mesh in (here, there)]
    for mesh, x in pairs:
        rd.torch.redistribute(x, mesh, [Shard(1)])
    if rank == 3:
        pairs.reverse()
    said = told(lambda: [rd.torch.redistribute(x, mesh, [Shard(1)]) for mesh, x in pairs])
    for mesh, x in ((mesh, x) for mesh, x in sorted(pairs, key=lambda pair: pair[0].mesh.tolist())):
        hold(rd.torch.redistribute(x, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "afterwards")
    return said


def late(seconds: float) -> str:
    """A rank that comes late is waited for, however the others ask meanwhile."""
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(64.0).reshape(8, 8)
    x = make(whole, mesh, [Shard(0)])
    rd.torch.redistribute(x, mesh, [Shard(1)])
    if dist.get_rank() == 3:
        time.sleep(seconds)
    return told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)]))


def missing(how: str) -> str:
    """One rank of 4 does not come to a call: it does something else, raises, or ends."""
    mesh, rank = mesh_of(tuple(range(4)), (4,)), dist.get_rank()
    whole = torch.arange(16.0).reshape(4, 4)
    x = make(whole, mesh, [Shard(0)])
    if how != "from the first":
        rd.torch.redistribute(x, mesh, [Shard(1)])
    if rank == 1:
        if how == "ends":
            os._exit(3)
        if how == "raises":
            raise ValueError("something else")
        return "away"
    return told(lambda: rd.torch.redistribute(x, mesh, [Shard(1)]))
