"""Results, gradients and collectives beside those of `DTensor.redistribute` for the same calls."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor, all_gather_tensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import redistrib as rd
from programs.dtensors import make, mesh_of

Move = Any


def _same(ours: DTensor | None, theirs: DTensor | None, what: Any) -> None:
    assert (ours is None) == (theirs is None), what
    if ours is None or theirs is None:
        return
    assert ours.placements == theirs.placements and ours.device_mesh == theirs.device_mesh, (what, ours, theirs)
    assert ours.dtype == theirs.dtype and ours.requires_grad == theirs.requires_grad, (what, ours, theirs)
    assert ours.shape == theirs.shape and ours.stride() == theirs.stride(), (what, ours, theirs)
    torch.testing.assert_close(ours.to_local(), theirs.to_local(), msg=str(what))


def gradients() -> int:
    """All pairs of placements on a grid: the result, and the gradient of a leaf, for three kinds of functions."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    whole, weight = torch.arange(64.0).reshape(8, 8) / 8, torch.arange(64.0).reshape(8, 8).T.contiguous() / 16
    starts = [Replicate(), Shard(0), Partial()]
    count = 0
    for source, target in product(product(starts, repeat=2), product([Replicate(), Shard(0), Shard(1)], repeat=2)):
        ends = [
            s if isinstance(s, Partial) and k == count % 3 else t
            for k, (s, t) in enumerate(zip(source, target, strict=True))
        ]
        results = []
        for move in (rd.torch.redistribute, DTensor.redistribute):
            local = make(whole, mesh, source).to_local().clone().requires_grad_()
            x = DTensor.from_local(local, mesh, source, run_check=False)
            leaf = make(whole, mesh, source).requires_grad_()
            y = move(leaf, mesh, ends)
            (y.to_local() * y.to_local()).sum().backward()
            through = move(x, mesh, ends)
            product_ = torch.mm(distribute_tensor(weight, mesh, [Replicate(), Replicate()]), through)
            product_.to_local(grad_placements=[Partial() if p.is_partial() else p for p in product_.placements])
            product_.sum().full_tensor().backward()
            results.append((y, leaf.grad, local.grad))
        what = (source, ends)
        for ours, theirs in zip(results[0][:2], results[1][:2], strict=True):
            _same(ours, theirs, what)
        torch.testing.assert_close(results[0][2], results[1][2], msg=str(what))
        count += 1
    return count


def unchanged() -> None:
    """A move that changes nothing is an alias: hooks, gradients under `no_grad`, and gradients of its own layout."""
    mesh = mesh_of(tuple(range(8)), (8,))
    whole = torch.arange(16.0).reshape(8, 2)
    answers = []
    for move in (rd.torch.redistribute, DTensor.redistribute):
        x = make(whole, mesh, [Replicate()]).requires_grad_()
        y = move(x, mesh, [Replicate()])
        fired: list[str] = []
        y.register_hook(lambda grad, fired=fired: fired.append("y"))
        assert y is not x and y.to_local().data_ptr() == x.to_local().data_ptr()
        x.to_local().sum().backward()
        assert not fired
        with torch.no_grad():
            assert not move(x, mesh, [Replicate()]).requires_grad
        x.grad = None
        move(x, mesh, [Replicate()]).to_local(grad_placements=[Partial()]).sum().backward()
        assert x.grad is not None
        answers.append((x.grad.placements, x.grad.to_local().tolist()))
        part = DTensor.from_local(whole.clone(), mesh, [Partial()], run_check=False).requires_grad_()
        move(part, mesh, [Partial()]).to_local().sum().backward()
        assert part.grad is not None
        answers[-1] += (part.grad.placements,)
    assert answers[0] == answers[1], answers


def collectives() -> tuple[dict[str, int], dict[str, int]]:
    """The collectives of DTensor that the backward of `x @ f(w, [Replicate()])` needs, with each `f`."""
    mesh = mesh_of(tuple(range(8)), (8,))
    counts, grads = [], []
    for move in (rd.torch.redistribute, DTensor.redistribute):
        w = distribute_tensor(torch.arange(64.0).reshape(8, 8), mesh, [Shard(0)]).requires_grad_()
        x = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])
        y = x @ move(w, mesh, [Replicate()])
        with CommDebugMode() as mode:
            y.to_local().sum().backward()
        counts.append({str(name): count for name, count in mode.get_comm_counts().items()})
        grads.append(w.grad)
    _same(grads[0], grads[1], "w")
    return counts[0], counts[1]


def options() -> None:
    """`async_op`, `forward_dtype` and `backward_dtype`, alone and together."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    whole = torch.arange(64.0).reshape(8, 8) / 3
    for asynchronous, forward, backward, (source, target) in product(
        (False, True),
        (None, torch.bfloat16, torch.float64),
        (None, torch.bfloat16),
        (
            ([Shard(0), Shard(1)], [Replicate()] * 2),
            ([Shard(0), Partial()], [Shard(0), Shard(1)]),
            ([Shard(1)] * 2,) * 2,
        ),
    ):
        results = []
        for move in (rd.torch.redistribute, DTensor.redistribute):
            x = make(whole, mesh, source).requires_grad_()
            y = move(x, mesh, target, async_op=asynchronous, forward_dtype=forward, backward_dtype=backward)
            (y.to_local() * 3).sum().backward()
            results.append((y.detach(), x.grad))
        for ours, theirs in zip(*results, strict=True):
            _same(ours, theirs, (asynchronous, forward, backward, source, target))
    x = make(whole.to(torch.bfloat16), mesh, [Shard(0), Shard(1)])
    z = rd.torch.redistribute(x, mesh_of((7, 5, 1), (3,)), [Shard(1)], forward_dtype=torch.float32)
    assert z.dtype is torch.float32 and z.to_local().dtype is torch.float32 and dist.is_initialized()


def kinds() -> int:
    """Partial sums of two kinds on two mesh dimensions: results and refusals."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    moved = 0
    for first, second in product(("sum", "avg", "max", "min", "product"), repeat=2):
        local = (torch.arange(64.0).reshape(8, 8) * 7 + dist.get_rank() * 5) % 11 + 1
        try:
            x = DTensor.from_local(local, mesh, [Partial(first), Partial(second)], run_check=False)
        except ValueError:  # a pair that this version of PyTorch does not have
            assert first != second
            continue
        for target in (
            [Replicate(), Replicate()], [Shard(0), Shard(1)], [Shard(0), Shard(0)], [Replicate(), Shard(1)],
            [Partial(first), Replicate()], [Shard(1), Partial(second)],
        ):  # fmt: skip
            results = []
            for move in (rd.torch.redistribute, DTensor.redistribute):
                try:
                    results.append(move(x, mesh, target))
                except RuntimeError:
                    results.append(None)
            moved += results[0] is not None
            _same(*results, (first, second, target))
    return moved


def under_way() -> None:
    """Local tensors whose collective is under way: of calls, of trees, and whole tensors of trees."""
    mesh = mesh_of(tuple(range(8)), (2, 4))
    whole = torch.arange(64.0).reshape(8, 8)
    for end in ([Shard(1), Shard(0)], [Replicate(), Replicate()], [Replicate(), Shard(0)]):

        def started() -> DTensor:
            x = make(whole, mesh, [Shard(0), Shard(1)]).redistribute(mesh, [Replicate(), Shard(1)], async_op=True)
            assert isinstance(x._local_tensor, AsyncCollectiveTensor)
            return x

        expected = DTensor.redistribute(started(), mesh, end)
        _same(rd.torch.redistribute(started(), mesh, end), expected, end)
        _same(rd.torch.reshard({"x": started()}, end)["x"], expected, end)
        plain = all_gather_tensor(make(whole, mesh, [Replicate(), Shard(0)]).to_local(), 0, (mesh, 1))
        assert isinstance(plain, AsyncCollectiveTensor)
        _same(rd.torch.reshard([plain], (mesh, end))[0], expected, end)


def turned() -> tuple[bool, bool]:
    """Whether the library, and PyTorch, gather the tensor again over a mesh whose ranks do not ascend."""
    mesh = mesh_of((3, 1, 0, 2), (4,))
    whole = torch.arange(16.0).reshape(4, 4)
    if dist.get_rank() > 3:
        return True, False
    x = make(whole, mesh, [Shard(0)])
    ours = rd.torch.redistribute(x, mesh, [Replicate()]).to_local()
    return torch.equal(ours, whole), torch.equal(x.full_tensor(), whole)
