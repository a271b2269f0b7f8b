"""Placements and tensors beside those that a plan moves as they are: what DTensor knows, the library moves too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.placement_types import _StridedShard

import redistrib as rd
from programs.dtensors import cut, hold, make, mesh_of
from programs.refusals import errors_of


def ordered() -> None:
    """A spec that records the order of its shards: values follow it, whatever the placements say."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    whole = torch.arange(64.0).reshape(16, 4)
    strided = (_StridedShard(0, split_factor=4), Shard(0))
    spec = DTensorSpec(
        mesh, (Shard(0), Shard(0)), tensor_meta=TensorMeta(whole.shape, whole.stride(), whole.dtype),
        shard_order=(ShardOrderEntry(tensor_dim=0, mesh_dims=(1, 0)),),
    )  # fmt: skip
    x = DTensor(cut(whole, mesh, strided, dist.get_rank()).contiguous(), spec, requires_grad=False)
    for end in ([Replicate(), Replicate()], [Shard(0), Shard(0)], [Shard(1), Shard(0)]):
        hold(rd.torch.redistribute(x, mesh, end), whole, mesh, end, end)
        hold(rd.torch.reshard({"x": x}, end)["x"], whole, mesh, end, end)


def by_dtensor() -> None:
    """Strided shards that views make, even and uneven, products, and masked sums: as DTensor moves them."""
    line, mesh = mesh_of((0, 1, 2, 3, 4, 5, 6, 7), (8,)), mesh_of(tuple(range(8)), (2, 4))
    for size, factor in ((48, 3), (16, 2), (40, 5), (19, 2), (48, 8)):
        whole, end = torch.arange(float(size * 2)).reshape(size, 2), [_StridedShard(0, split_factor=factor)]
        x = make(whole, line, end)
        for target in ([Replicate()], [Shard(0)], [Shard(1)]):
            hold(rd.torch.redistribute(x, line, target), whole, line, target, (size, factor, target))
        hold(rd.torch.redistribute(make(whole, line, [Shard(0)]), line, end), whole, line, end, (size, factor))
    seen = distribute_tensor(torch.arange(48.0).reshape(2, 8, 3), line, [Shard(1)]).reshape(48)
    hold(rd.torch.redistribute(seen, line, [Shard(0)]), torch.arange(48.0), line, [Shard(0)], seen.placements)
    product = DTensor.from_local(torch.full((8, 2), 2.0), line, [Partial("product")], run_check=False)
    hold(rd.torch.redistribute(product, line, [Shard(0)]), torch.full((8, 2), 256.0), line, [Shard(0)], "product")
    true = DTensor.from_local(torch.tensor([True, False]), line, [Partial("sum")], run_check=False)
    hold(rd.torch.redistribute(true, line, [Replicate()]), torch.tensor([True, False]), line, [Replicate()], "bool")
    table = distribute_tensor(torch.arange(32.0).reshape(16, 2), line, [Shard(0)])
    rows = distribute_tensor(torch.tensor([0, 3, 15, 8]), line, [Replicate()])
    found = torch.nn.functional.embedding(rows, table)
    assert type(found.placements[0]).__name__ == "_MaskPartial", found.placements
    expected = torch.arange(32.0).reshape(16, 2)[[0, 3, 15, 8]]
    hold(rd.torch.redistribute(found, line, [Replicate()]), expected, line, [Replicate()], "masked")
    norm = torch.linalg.vector_norm(distribute_tensor(torch.ones(16, 4), mesh, [Shard(0), Shard(1)]))
    torch.testing.assert_close(rd.torch.redistribute(norm, mesh, [Replicate()] * 2).to_local(), torch.tensor(8.0))
    if hasattr(torch, "float4_e2m1fn_x2"):
        data = torch.arange(64, dtype=torch.uint8).reshape(16, 4)
        x = make(data, mesh, [Shard(0), Replicate()])
        four = DTensor.from_local(x.to_local().view(torch.float4_e2m1fn_x2), mesh, x.placements, run_check=False)
        for moved in (
            rd.torch.redistribute(four, mesh, [Shard(1), Shard(0)]),
            rd.torch.reshard([four], [Shard(1), Shard(0)])[0],
        ):
            assert moved.dtype is torch.float4_e2m1fn_x2
            expected = cut(data, mesh, [Shard(1), Shard(0)], dist.get_rank())
            assert torch.equal(moved.to_local().view(torch.uint8), expected)


def strides() -> None:
    """`channels_last` and transposed tensors stay so, global strides and the memory of local tensors alike."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    image = torch.arange(8.0 * 4 * 2 * 4).reshape(8, 4, 2, 4).contiguous(memory_format=torch.channels_last)
    matrix = torch.arange(64.0).reshape(8, 8).T
    for whole, starts, end in (
        (image, [Shard(0), Replicate()], [Replicate(), Shard(1)]), (matrix, [Shard(0), Shard(1)], [Shard(1), Shard(0)]),
        (matrix, [Shard(1), Replicate()], [Replicate(), Replicate()]),
    ):  # fmt: skip
        x = distribute_tensor(whole, mesh, starts)
        assert x.stride() == whole.stride()
        for y in (rd.torch.redistribute(x, mesh, end), rd.torch.reshard([x], end)[0]):
            assert y.stride() == whole.stride()
            local = y.to_local()
            assert torch.equal(local, cut(whole, mesh, end, dist.get_rank()))
            order = sorted(range(whole.ndim), key=lambda dim: -whole.stride(dim))
            assert local.permute(order).is_contiguous(), (local.shape, local.stride())


def meta() -> None:
    """Tensors without data move without messages, in calls and in trees."""
    mesh, other = mesh_of(tuple(range(8)), (2, 4)), mesh_of((4, 5, 6), (3,))
    whole = torch.empty(10, 6, device="meta")
    x = DTensor.from_local(
        cut(whole, mesh, [Shard(0), Shard(1)], dist.get_rank()), mesh, [Shard(0), Shard(1)], run_check=False,
        shape=whole.shape, stride=whole.stride(),
    )  # fmt: skip
    for target, end in ((mesh, [Replicate(), Shard(0)]), (mesh, [Shard(0), Shard(1)]), (other, [Shard(0)])):
        for y in (rd.torch.redistribute(x, target, end), rd.torch.reshard({"x": x}, (target, end))["x"]):
            assert y.is_meta and y.shape == whole.shape and list(y.placements) == end and y.device_mesh == target
            if dist.get_rank() in target.mesh.flatten().tolist():
                assert y.to_local().shape == cut(whole, target, end, dist.get_rank()).shape


def misfits() -> list[list[str]]:
    """Local tensors that are not those of their placements: what calls and trees say on every rank."""
    mesh, rank = mesh_of(tuple(range(8)), (8,)), dist.get_rank()
    whole, said = torch.arange(128.0).reshape(16, 8), []
    locals_ = (torch.ones(8, 2), torch.ones(3, 8), torch.ones(1, 8), torch.ones(16), torch.ones(2 + (rank == 5), 8))
    for local in locals_:
        for end in ([Shard(1)], [Replicate()], [Shard(0)]):
            x = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride())
            calls: list[Callable[[], Any]] = [lambda x=x, end=end: rd.torch.reshard({"w": x}, end)]
            if end != [Shard(0)] or local is not locals_[-1]:
                calls.append(lambda x=x, end=end: rd.torch.redistribute(x, mesh, end))
            said.append(errors_of(calls))
    good = make(whole, mesh, [Shard(0)])
    hold(rd.torch.redistribute(good, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "afterwards")
    return said
