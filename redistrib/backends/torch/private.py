"""The private names of PyTorch that the library uses, all of them here, and why no public name serves.

`_StridedShard`: the only placement that expresses an order of sharding other than that of the mesh dimensions.
`DTensor.redistribute` and `from_local` take no shard order.

`AsyncCollectiveTensor`: the local tensor of a DTensor whose collective is under way. `to_local` may return one by its
documentation; the class itself is private.

`redistribute_local_tensor` and `DTensorSpec`: DTensor's own steps, for placements that plans do not know. The public
`DTensor.redistribute` is a function of autograd, which the library has of its own.

A DTensor from its local tensor, and back: the public `from_local` and `to_local` cost ten times as much, because they
are functions of autograd and build the spec of the DTensor again.

The store of the default process group, and its time-out: the public names give the members of the group only.

`torch.utils._pytree`: containers that other libraries register; the public names in `torch.export` only register.

The planner of DTensor, and a fake process group: no public name gives the plan of `DTensor.redistribute`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.utils import _pytree


def strided_shard(dim: int, split_factor: int) -> Any:
    """Sharding of a dimension after later mesh dimensions, which have `split_factor` devices in all."""
    if split_factor == 1:
        return Shard(dim)
    from torch.distributed.tensor.placement_types import _StridedShard

    return _StridedShard(dim, split_factor=split_factor)


def local_of(x: DTensor) -> torch.Tensor:
    """The local tensor of a DTensor without gradient, after its collective."""
    return finished(x._local_tensor)


def memory_of(local: torch.Tensor) -> tuple[Any, ...]:
    """What tensors over the same elements in memory have in common, empty ones too."""
    storage = local.untyped_storage()._cdata
    return storage, local.storage_offset(), tuple(local.shape), local.stride(), local.dtype


def spec_of(x: DTensor) -> Any:
    """The layout, global shape and dtype of a DTensor, for `of_spec`."""
    return x._spec


def of_spec(local: torch.Tensor, spec: Any, requires_grad: bool = False) -> DTensor:
    """A DTensor from a local tensor of the right shape."""
    return DTensor(local, spec, requires_grad=requires_grad)


def spec_for(mesh: Any, placements: Sequence[Any], shape: Sequence[int], stride: Sequence[int], dtype: Any) -> Any:
    """The spec of a DTensor from its layout, its global shape and strides, and its element type."""
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    return DTensorSpec(mesh, tuple(placements), tensor_meta=TensorMeta(torch.Size(shape), tuple(stride), dtype))


def shard_order_of(spec: Any) -> Sequence[tuple[int, Sequence[int]]]:
    """The tensor dimensions of a spec with the mesh dimensions that cut each, in order; none before PyTorch 2.10."""
    return [(entry.tensor_dim, entry.mesh_dims) for entry in getattr(spec, "shard_order", None) or ()]


def moved_by_dtensor(local: torch.Tensor, source: Any, target: Any) -> torch.Tensor:
    """The local tensor after DTensor's own steps between two specs; collective over the mesh."""
    from torch.distributed.tensor._redistribute import redistribute_local_tensor

    return finished(redistribute_local_tensor(local, source, target))


def real_of(value: Any) -> Any:
    """A mesh or a placement itself, where a compiled function passes an object that stands for it."""
    return value.real_obj if type(value).__name__ == "FakeScriptObject" else value


# DTensor's method, found before anyone may replace it by the library's.
redistribute_by_dtensor = DTensor.redistribute


def is_plain(local: torch.Tensor) -> bool:
    """Whether a local tensor is memory of its own: no tensor of a compiler, and no other class over memory."""
    return type(local) in (torch.Tensor, torch.nn.Parameter)


def is_simulated() -> bool:
    """Whether the ranks of the default group are threads, or only seem to be there, as in PyTorch's own tests."""
    return str(dist.get_backend()) in ("fake", "threaded")


def tree_children(value: Any) -> list[Any] | None:
    """The children of a container that is registered as a pytree; None for a leaf."""
    children: list[Any] = _pytree.tree_leaves(value, is_leaf=lambda part: part is not value)
    return None if len(children) == 1 and children[0] is value else children


def tree_like(value: Any, children: Sequence[Any]) -> Any:
    """A container of the same structure with other children."""
    structure = _pytree.tree_structure(value, is_leaf=lambda part: part is not value)
    return _pytree.tree_unflatten(list(children), structure)


def default_store() -> Any:
    """The store of the default process group."""
    return dist.distributed_c10d._get_default_store()


def timeout_of(group: Any) -> float:
    """The time-out of a process group, in seconds."""
    try:
        return float(group._get_backend(torch.device("cpu")).options._timeout.total_seconds())
    except (AttributeError, RuntimeError):
        return 1800.0


def finished(local: torch.Tensor) -> torch.Tensor:
    """A local tensor after its collective."""
    return local.wait() if type(local).__name__ == "AsyncCollectiveTensor" else local


def planned_steps(
    shape: Sequence[int],
    mesh: Sequence[int],
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    *,
    greedy: bool,
) -> tuple[str, list[tuple[int, str, str]]]:
    """The steps of DTensor's planner, found without ranks.

    Args:
        shape: global shape, in elements.
        mesh: sizes of the mesh dimensions.
        source, target: for each tensor dimension the mesh dimensions that shard it, in order.
        greedy: whether to use the default planner, or else that of least cost.

    Returns:
        The version of PyTorch, and for each step the mesh dimension, and "shard" or "replicate" before and after.
    """
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
    from torch.distributed.tensor._redistribute import (
        _gen_transform_infos_non_cached,
        use_min_cost_redistribution_plan,
    )
    from torch.testing._internal.distributed.fake_pg import FakeStore

    is_fake = not dist.is_initialized()
    if is_fake:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=prod(mesh))
    try:
        device_mesh = init_device_mesh("cpu", tuple(mesh))
        empty = torch.empty(tuple(shape), device="meta")
        meta = TensorMeta(empty.shape, empty.stride(), torch.float32)
        specs = []
        for axes in (source, target):
            placements: list[Any] = [Replicate()] * len(mesh)
            for dim, numbers in enumerate(axes):
                for number in numbers:
                    placements[number] = Shard(dim)
            order = tuple(
                ShardOrderEntry(tensor_dim=dim, mesh_dims=tuple(numbers)) for dim, numbers in enumerate(axes) if numbers
            )
            specs.append(DTensorSpec(device_mesh, tuple(placements), tensor_meta=meta, shard_order=order))
        with use_min_cost_redistribution_plan(not greedy):
            infos = _gen_transform_infos_non_cached(*specs)
        steps = []
        for info in infos:
            before, after = info.src_dst_placements
            kinds = ["replicate" if placement.is_replicate() else "shard" for placement in (before, after)]
            steps.append((info.mesh_dim, kinds[0], kinds[1]))
        return torch.__version__, steps
    finally:
        if is_fake:
            dist.destroy_process_group()
