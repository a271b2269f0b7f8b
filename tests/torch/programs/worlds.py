"""Process groups that are destroyed and made anew in the same processes."""

from __future__ import annotations

import gc
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import redistrib as rd
from programs.dtensors import hold, make


def moves() -> None:
    """Calls, trees, sums and gradients among all ranks of the present default group."""
    count, rank = dist.get_world_size(), dist.get_rank()
    mesh = DeviceMesh("cpu", torch.arange(count))
    whole = torch.arange(16.0).reshape(4, 4)
    x = make(whole, mesh, [Shard(0)])
    for end in ([Replicate()], [Shard(1)]):
        hold(rd.torch.redistribute(x, mesh, end), whole, mesh, end, (count, end))
        hold(rd.torch.reshard({"x": x}, end)["x"], whole, mesh, end, (count, end))
    part = DTensor.from_local(torch.full((3,), 1.0 + rank), mesh, [Partial()], run_check=False)
    total = torch.full((3,), count * (count + 1) / 2)
    hold(rd.torch.redistribute(part, mesh, [Shard(0)]), total, mesh, [Shard(0)], count)
    w = make(whole, mesh, [Shard(0)]).requires_grad_()
    (rd.torch.redistribute(w, mesh, [Shard(1)]).to_local() ** 2).sum().backward()
    assert w.grad is not None
    hold(w.grad, 2 * whole, mesh, [Shard(0)], count)
    plan = rd.synthesize([Shard(0)], [Replicate()], mesh, shape=(4, 4))
    assert torch.equal(rd.to_torch(plan)(x.to_local()), whole)


def anew(ports: list[int], orders: list[list[int]]) -> int:
    """The same moves in one world after another, with other ranks; the threads of the library at the end.

    Args:
        ports: a free port for each world.
        orders: for each world the processes that are its ranks, in order.
    """
    process = dist.get_rank()
    moves()
    for port, order in zip(ports, orders, strict=True):
        dist.destroy_process_group()
        gc.collect()
        if process in order:
            rank, short = order.index(process), timedelta(seconds=60)
            store = dist.TCPStore("127.0.0.1", port, len(order), is_master=rank == 0, timeout=short)
            backend = "gloo" if len(order) == 4 else None  # one for each kind of device, as under torchrun
            dist.init_process_group(backend, store=store, rank=rank, world_size=len(order), timeout=short)
            moves()
        else:
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            moves()
    dist.destroy_process_group()
    time.sleep(1.0)
    return sum(thread.name == "redistrib watch" for thread in threading.enumerate())
