"""DTensors through `rd.torch.redistribute`, held against locals cut by `torch.chunk` and against `full_tensor`."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import redistrib as rd
from programs.plans import bits
from programs.refusals import errors_of

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8,
          torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.int8]  # fmt: skip
MESHES = {8: ((8,), (2, 4), (4, 2), (2, 2, 2), (1, 8)), 4: ((4,), (2, 2)), 2: ((2,),), 6: ((6,), (2, 3))}


@cache
def mesh_of(ranks: tuple[int, ...], sizes: tuple[int, ...]) -> DeviceMesh:
    names = tuple("abc"[: len(sizes)])
    return DeviceMesh("cpu", torch.tensor(ranks).reshape(sizes), mesh_dim_names=names)


def cut(whole: torch.Tensor, mesh: DeviceMesh, placements: Any, rank: int) -> torch.Tensor:
    """The local tensor of a rank, cut mesh dimension by mesh dimension; of partial sums the whole is all of them."""
    at = (mesh.mesh == rank).nonzero()[0].tolist()
    local = whole
    for k, placement in enumerate(placements):
        count = mesh.mesh.shape[k]
        if isinstance(placement, _StridedShard):
            pieces = chunks(local, placement.split_factor, placement.dim)
            local = torch.cat([chunks(piece, count, placement.dim)[at[k]] for piece in pieces], placement.dim)
        elif isinstance(placement, Shard):
            local = chunks(local, count, placement.dim)[at[k]]
    return local


def chunks(tensor: torch.Tensor, count: int, dim: int) -> list[torch.Tensor]:
    made = list(torch.chunk(tensor, count, dim=dim))
    return made + [tensor.narrow(dim, 0, 0)] * (count - len(made))


def whole_of(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    values = torch.randint(-8, 9, shape, generator=generator)
    if dtype is torch.bool:
        return values > 0
    if dtype.is_complex:
        return torch.complex(values.double(), values.flip(0).double() if shape else values.double()).to(dtype)
    return (values.abs() if dtype is torch.uint8 else values).to(dtype)


def random_placements(rng: random.Random, mesh: DeviceMesh, rank: int, even: bool, shape: tuple[int, ...]) -> list[Any]:
    made: list[Any] = [
        Shard(rng.randrange(rank)) if rank and rng.random() < 0.7 else Replicate() for _ in range(mesh.ndim)
    ]
    if mesh.ndim > 1 and even and made[0] == made[-1] and isinstance(made[0], Shard) and rng.random() < 0.6:
        made[0] = _StridedShard(made[0].dim, split_factor=mesh.mesh.shape[-1])
    return made


def make(whole: torch.Tensor, mesh: DeviceMesh, placements: Any, strided_memory: bool = False) -> DTensor:
    rank = dist.get_rank()
    if rank in mesh.mesh.flatten().tolist():
        local = cut(whole, mesh, placements, rank)
        local = (
            local.mT.contiguous().mT
            if strided_memory and local.ndim > 1
            else local.clone(memory_format=torch.contiguous_format)
        )
    else:
        local = whole.new_empty(0 if whole.ndim else ())  # DTensor takes the shape of a scalar from it
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


def hold(result: DTensor, whole: torch.Tensor, mesh: DeviceMesh, placements: Any, what: Any) -> None:
    rank = dist.get_rank()
    assert result.device_mesh == mesh and list(result.placements) == list(placements), what
    assert result.shape == whole.shape and result.dtype == whole.dtype, what
    local = result.to_local()
    if rank not in mesh.mesh.flatten().tolist():
        assert local.numel() == 0
        return
    expected = cut(whole, mesh, placements, rank)
    assert local.shape == expected.shape and bits(local) == bits(expected), (what, local, expected)


def random_moves(seed: int, cases: int) -> tuple[int, set[str]]:
    """One mesh to itself, to another of its ranks, to more, to fewer, to others.

    Returns:
        How often DTensor's own gather was asked too, and what was drawn.
    """
    rng = random.Random(seed)
    compared, drawn = 0, set()
    for case in range(cases):
        dtype = DTYPES[case % len(DTYPES)]
        count = rng.choice([8, 8, 4, 2, 6])
        ranks = tuple(rng.sample(range(8), count)) if rng.random() < 0.3 else tuple(range(8))[:count]
        source = mesh_of(ranks, rng.choice(MESHES[count]))
        target = source
        if rng.random() < 0.5:
            other = rng.choice([8, 4, 2, 6])
            target = mesh_of(tuple(rng.sample(range(8), other)), rng.choice(MESHES[other]))
        rank, even = rng.randint(0, 5), rng.random() < 0.5
        sizes = [8, 16, 24] if even and count != 6 and target.size() != 6 else [0, 1, 2, 3, 5, 7, 9, 12]
        even = sizes[0] == 8
        shape = tuple(rng.choice(sizes) if k < 3 else rng.choice([1, 2, 3]) if not even else 8 for k in range(rank))
        if even:
            shape = shape[:3]
        rank = len(shape)
        whole = whole_of(rng, shape, dtype)
        ends = [random_placements(rng, mesh, rank, even, shape) for mesh in (source, target)]
        x = make(whole, source, ends[0], strided_memory=rng.random() < 0.3)
        what = (case, whole.shape, dtype, source, ends[0], target, ends[1])
        local = x.to_local()
        drawn |= {f"rank {rank}", str(dtype), "strided shards" if any(
            isinstance(one, _StridedShard) for end in ends for one in end) else "plain shards"}  # fmt: skip
        sizes_of = {tuple(cut(whole, source, ends[0], r).shape) for r in source.mesh.flatten().tolist()}
        drawn |= {"uneven shards"} if len(sizes_of) > 1 else {"even shards"}
        drawn |= {"empty shards"} if whole.numel() and any(0 in size for size in sizes_of) else set()
        drawn |= set() if local.is_contiguous() else {"non-contiguous locals"}
        drawn |= {"an empty tensor"} if not whole.numel() else set()
        drawn |= {"another mesh"} if target is not source else {"one mesh"}
        result = rd.torch.redistribute(x, target, ends[1])
        hold(result, whole, target, ends[1], what)
        # DTensor's own gather takes the ranks of a mesh dimension in ascending order, whatever their order in the mesh.
        ascending = target.mesh.flatten().tolist() == sorted(target.mesh.flatten().tolist())
        plain = (
            ascending
            and not any(isinstance(one, _StridedShard) for one in ends[1])
            and dtype is not torch.float8_e4m3fn
        )
        if plain and case % 4 == 0 and dist.get_rank() in target.mesh.flatten().tolist() and whole.numel():
            assert bits(result.full_tensor()) == bits(whole), what
            compared += 1
    return compared, drawn


def random_sums(seed: int, cases: int) -> None:
    """Partial sums, averages, maxima and minima; to the same mesh, to others; even and uneven."""
    rng = random.Random(seed)
    for case in range(cases):
        dtype = [torch.float32, torch.int64, torch.bfloat16, torch.float64, torch.int32][case % 5]
        operation = rng.choice(["sum", "avg", "max", "min"])
        source = mesh_of(tuple(range(8)), rng.choice([(8,), (2, 4), (2, 2, 2)]))
        target = (
            source
            if rng.random() < 0.6
            else mesh_of(*rng.choice([((4, 5, 6, 7), (2, 2)), ((7, 1), (2,)), (tuple(range(8))[::-1], (4, 2))]))
        )
        even = rng.random() < 0.6
        shape = tuple(
            rng.choice([8, 16] if even else [1, 3, 5, 9, 10]) for _ in range(rng.randint(0 if even else 1, 3))
        )
        starts = [
            Partial(operation) if rng.random() < 0.6 else one
            for one in random_placements(rng, source, len(shape), False, shape)
        ]
        if not any(isinstance(one, Partial) for one in starts):
            starts[0] = Partial(operation)
        ends = random_placements(rng, target, len(shape), even, shape)
        if target is source:
            ends = [
                s if isinstance(s, Partial) and rng.random() < 0.2 and even else e
                for s, e in zip(starts, ends, strict=True)
            ]
            if any(isinstance(one, Partial) for one in ends):  # no shard is cut in another order then
                ends = [Shard(one.dim) if isinstance(one, _StridedShard) else one for one in ends]
        parts = [whole_of(random.Random(f"{seed} {case} {k}"), shape, dtype) for k in range(8)]
        if operation == "avg":
            parts = [8 * part for part in parts]  # so that averages are exact
        # The summand of a rank is that of its coordinates along the partial dimensions.
        spots = [k for k, one in enumerate(starts) if isinstance(one, Partial)]
        sizes = [source.mesh.shape[k] for k in spots]
        count = int(np.prod(sizes))
        at = (source.mesh == dist.get_rank()).nonzero()[0].tolist()
        mine = int(np.ravel_multi_index([at[k] for k in spots], sizes))
        stack = torch.stack(parts[:count]).to(torch.float64 if dtype.is_floating_point else torch.int64)
        full = {"sum": stack.sum(0), "avg": stack.sum(0) / count, "max": stack.amax(0), "min": stack.amin(0)}[operation]
        local = cut(parts[mine], source, starts, dist.get_rank()).contiguous()
        x = DTensor.from_local(
            local, source, starts, run_check=False, shape=torch.Size(shape), stride=parts[0].stride()
        )
        result = rd.torch.redistribute(x, target, ends)
        what = (case, operation, shape, dtype, source, starts, target, ends)
        if any(isinstance(one, Partial) for one in ends):
            result = rd.torch.redistribute(
                result, target, [Replicate() if isinstance(one, Partial) else one for one in ends]
            )
            ends = list(result.placements)
        hold(result, full.to(dtype), target, ends, what)


def gradients(seed: int, cases: int) -> None:
    """The gradient of a function of a moved tensor, against one process."""
    rng = random.Random(seed)
    for case in range(cases):
        source = mesh_of(tuple(range(8)), rng.choice([(8,), (2, 4), (2, 2, 2)]))
        target = source if rng.random() < 0.5 else mesh_of(tuple(range(8))[::-1], rng.choice([(8,), (4, 2)]))
        shape = tuple(rng.choice([8, 16, 5]) for _ in range(2))
        whole, weight = whole_of(rng, shape, torch.float64), whole_of(rng, shape, torch.float64)
        starts, ends = (random_placements(rng, mesh, 2, False, shape) for mesh in (source, target))
        x = make(whole, source, starts).requires_grad_()
        y = rd.torch.redistribute(x, target, ends)
        assert y.requires_grad == x.requires_grad
        factor = make(weight, target, ends)
        local = y.to_local() * factor.to_local() * y.to_local()
        # Every rank takes part of its own in the loss, so replicated gradients are not counted twice.
        local.sum().backward()
        assert x.grad is not None and x.grad.device_mesh == source, case
        hold(x.grad.detach(), 2 * whole * weight, source, starts, (case, starts, ends))
    # Partial sums: gradients are replicated.
    mesh = mesh_of(tuple(range(8)), (8,))
    local = torch.arange(16.0).reshape(16, 1).requires_grad_()
    x = DTensor.from_local(local, mesh, [Partial()], run_check=False)
    y = rd.torch.redistribute(x, mesh, [Shard(0)])
    (y.to_local() * torch.full((2, 1), float(dist.get_rank()))).sum().backward()
    assert local.grad is not None and torch.equal(local.grad[:, 0], torch.arange(8.0).repeat_interleave(2))
    # A second derivative, through the way there and back.
    z = make(torch.ones(8, dtype=torch.float64), mesh, [Shard(0)]).requires_grad_()
    w = rd.torch.redistribute(z, mesh, [Replicate()])
    (first,) = torch.autograd.grad((w.to_local() ** 3).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.to_local().sum(), z)
    assert torch.equal(second.to_local(), torch.full((1,), 6.0, dtype=torch.float64))


def orders() -> list[str]:
    """Shard orders by number and name, as DTensor's strided shards say them; and those it has no name for."""
    mesh = mesh_of(tuple(range(8)), (2, 2, 2))
    whole = torch.arange(64.0).reshape(16, 4)
    x = make(whole, mesh, [Shard(0), Replicate(), Shard(1)])
    for order, expected in (
        ((0, 1, 2), [Shard(0)] * 3),
        ((2, 0, 1), [_StridedShard(0, split_factor=2), _StridedShard(0, split_factor=2), Shard(0)]),
        (("c", "b", "a"), [_StridedShard(0, split_factor=4), _StridedShard(0, split_factor=2), Shard(0)]),
    ):
        y = rd.torch.redistribute(x, mesh, [Shard(0)] * 3, shard_order={0: order})
        hold(y, whole, mesh, expected, order)
        hold(
            rd.torch.redistribute(y, mesh, [Shard(1), Shard(0), Replicate()]),
            whole,
            mesh,
            [Shard(1), Shard(0), Replicate()],
            order,
        )
    return errors_of(
        (
            lambda: rd.torch.redistribute(x, mesh, [Shard(0)] * 3, shard_order={0: (0, 1)}),
            lambda: rd.torch.redistribute(x, mesh, [Shard(0)] * 2),
            lambda: rd.torch.redistribute(x, mesh, [Shard(2)] * 3),
            lambda: rd.torch.redistribute(x, mesh, [Partial()] * 3),
            lambda: rd.torch.redistribute(
                make(torch.arange(5.0), mesh, [Replicate()] * 3), mesh, [Shard(0)] * 3, shard_order={0: (2, 1, 0)}
            ),
            lambda: rd.torch.redistribute(x, mesh, [Shard(0)] * 3, memory_limit="10B"),
            lambda: rd.torch.redistribute(torch.ones(3)),
        )
    )


def other_calls() -> list[str]:
    """Ranks that make different calls, new ones and planned ones; locals that are wrong."""
    mesh, rank = mesh_of(tuple(range(8)), (8,)), dist.get_rank()
    whole = torch.arange(64.0).reshape(8, 8)
    x = make(whole, mesh, [Shard(0)])
    for end in ([Shard(1)], [Replicate()]):
        rd.torch.redistribute(x, mesh, end)
    wrong = DTensor.from_local(
        torch.ones(1 + (rank == 3), 8), mesh, [Shard(0)], shape=whole.shape, stride=whole.stride()
    )
    errors = errors_of(
        (
            lambda: rd.torch.redistribute(x, mesh, [Shard(1)] if rank != 2 else [Replicate()], check=True),
            lambda: rd.torch.redistribute(
                x, mesh, [Shard(1)], memory_limit=(1 << 30) if rank == 4 else None, check=True
            ),
            lambda: rd.torch.redistribute(wrong, mesh, [Shard(1)], check=True),
        )
    )
    hold(rd.torch.redistribute(x, mesh, [Shard(1)]), whole, mesh, [Shard(1)], "afterwards")
    return errors


def printed_beside() -> tuple[bool, bool]:
    """Whether a plan on a DeviceMesh names DTensor's planners; and one of partial sums, which cannot be compared."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    plan = rd.synthesize([Shard(0), Shard(1)], [Shard(1), Shard(0)], mesh, shape=(8, 8))
    sums = rd.synthesize([Partial(), Shard(1)], [Shard(1), Shard(0)], mesh, shape=(8, 8))
    return "least cost: " in str(plan) and "this plan: " in str(plan), "DTensor" in str(sums)
