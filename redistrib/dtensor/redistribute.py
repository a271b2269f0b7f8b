"""`redistribute`: a DTensor on another layout, with gradients."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard

from redistrib.backends.torch.private import finished, local_of, of_spec, spec_of, strided_shard
from redistrib.cache import Cache, cached
from redistrib.dtensor.moves import DTensorLayout, Options, PreparedRedistribute, RedistributeSpec, move_of, tell
from redistrib.errors import CommunicatorError, LeafError, RedistribError, SpecError
from redistrib.errors.base import shown
from redistrib.lang.placements import from_device_mesh, kind_of, ranks_of, split_factors
from redistrib.sizes import parse_size

ShardOrder = Mapping[int, Sequence[int | str]]


def redistribute(
    x: DTensor,
    device_mesh: Any = None,
    placements: Sequence[Any] | None = None,
    *,
    shard_order: ShardOrder | None = None,
    memory_limit: int | str | None = None,
    cost_model: Any = None,
    topology: Sequence[Hashable] | None = None,
    check: bool | None = None,
) -> DTensor:
    """Redistribute a DTensor by a plan, on its mesh or onto another one; in place of `x.redistribute(...)`.

    All ranks of both meshes call it together. Other ranks may call it too; for them it does nothing. The result is
    differentiable as that of `DTensor.redistribute` is: gradients of partial sums are replicated.

    Args:
        x: the DTensor; never written.
        device_mesh: the mesh of the result, over any ranks; by default that of `x`.
        placements: the placements of the result, one for each mesh dimension: `Shard`, `Replicate`, `_StridedShard`, or
            `Partial` where `x` has it too; by default all are `Replicate`.
        shard_order: for each tensor dimension the mesh dimensions that shard it, by number or name, in the order in
            which they cut it; by default in the order of the mesh.
        memory_limit: bytes per rank for source, target and all memory between: an integer or a text such as "2GiB".
        cost_model: what the plan minimises, as for `redistrib.synthesize`; by default the preset of the mesh's devices.
        topology: the host of every rank of the default group, where links between hosts are slower.
        check: whether all ranks compare their calls before data moves, by a short message between each pair. By
            default they compare a call the first time only. If a rank makes another call later, all ranks raise the
            same error after a second; a rank that has returned by then raises it at its next call.

    Returns:
        The DTensor. Its local tensor is contiguous. On an accelerator it is returned when the work has been enqueued.

    Raises:
        LeafError: if `x` is no DTensor.
        SpecError: if placements have no meaning as a type.
        CommunicatorError: on every rank, if the ranks make different calls.
        TilesError: on every rank, if the local tensor of a rank has another shape than its placements say.
        MemoryLimitError: on every rank, if no plan fits the limit.
    """
    if not isinstance(x, DTensor):
        raise LeafError("", f"{type(x).__name__} is no DTensor; make one by DTensor.from_local or distribute_tensor")
    key: tuple[Any, ...] = (
        x.device_mesh, x.placements, x.shape, x.dtype, device_mesh, None if placements is None else tuple(placements),
        None if shard_order is None else tuple((dim, tuple(dims)) for dim, dims in shard_order.items()),
        memory_limit, cost_model, None if topology is None else tuple(topology),
    )  # fmt: skip
    arguments = (device_mesh, placements, shard_order, memory_limit, cost_model, topology)
    try:
        move = _PLANNED.get(key, lambda: _planned(x, *arguments))
    except RedistribError as error:
        tell(tuple(sorted({*ranks_of(x.device_mesh), *ranks_of(device_mesh or x.device_mesh)})), error)
        raise
    if move is None:
        return x
    if x.requires_grad and torch.is_grad_enabled():
        local = _Moved.apply(finished(x.to_local()), move, check)
        return as_dtensor(local, move.spec.target, move.spec.shape)
    local = move(local_of(x), check)
    if move.result_spec is None:
        result = as_dtensor(local, move.spec.target, move.spec.shape)
        move.result_spec = spec_of(result)
        return result
    return of_spec(local, move.result_spec)


# The moves of calls; None for calls that move nothing.
_PLANNED: Cache[PreparedRedistribute | None] = Cache(1 << 10)


def _planned(
    x: DTensor,
    device_mesh: Any,
    placements: Sequence[Any] | None,
    shard_order: ShardOrder | None,
    memory_limit: int | str | None,
    cost_model: Any,
    topology: Sequence[Hashable] | None,
) -> PreparedRedistribute | None:
    """The move of a call of `redistribute`; None if it moves nothing."""
    if not dist.is_initialized():
        raise CommunicatorError("there is no process group; call torch.distributed.init_process_group first")
    mesh = x.device_mesh if device_mesh is None else device_mesh
    target = target_layout(mesh, placements, x.ndim, shard_order)
    source = DTensorLayout(x.device_mesh, x.placements)
    if source == target:
        return None
    if source.mesh.device_type != mesh.device_type:
        raise SpecError("device type", source=source.mesh.device_type, target=mesh.device_type)
    limit = None if memory_limit is None else parse_size(memory_limit)
    options = Options(limit, cost_model, None if topology is None else tuple(topology))
    return move_of(RedistributeSpec(source, target, tuple(x.shape), x.dtype, options))


class _Moved(torch.autograd.Function):  # type: ignore[misc]
    """The move of a local tensor; its gradient moves back, between the layouts of gradients."""

    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, move: PreparedRedistribute, check: bool | None) -> torch.Tensor:
        ctx.move, ctx.check = move, check
        return move(local.detach(), check)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        spec = ctx.move.spec
        source, target = gradient_layout(spec.target), gradient_layout(spec.source)
        back = RedistributeSpec(source, target, spec.shape, gradient.dtype, spec.options)
        if source == target:
            return gradient, None, None
        return _Moved.apply(gradient.contiguous(), move_of(back), ctx.check), None, None


def gradient_layout(layout: DTensorLayout) -> DTensorLayout:
    """The layout of the gradient of a DTensor: replicated where the DTensor has partial sums."""
    return layout.with_placements([Replicate() if kind_of(p) == "partial" else p for p in layout.placements])


def target_layout(
    mesh: Any, placements: Sequence[Any] | None, rank: int, shard_order: ShardOrder | None = None
) -> DTensorLayout:
    """The layout of a caller's arguments: dimensions count from the front, and shard orders become strided shards.

    Raises:
        SpecError: if the placements or the order have no meaning.
    """
    axes = from_device_mesh(mesh)
    resolved = [Replicate()] * len(axes.axes) if placements is None else list(placements)
    if len(resolved) != len(axes.axes):
        raise SpecError("placements", count=len(resolved), mesh=str(axes), axes=len(axes.axes))
    for k, placement in enumerate(resolved):
        kind = kind_of(placement)
        if kind in ("shard", "strided") and not -rank <= placement.dim < rank:
            raise SpecError("placement dimension", value=placement, rank=rank)
        if kind == "shard" and placement.dim < 0:
            resolved[k] = Shard(placement.dim + rank)
        elif kind == "strided":
            resolved[k] = strided_shard(placement.dim % rank, int(placement.split_factor))
    for key, dims in (shard_order or {}).items():
        dim = key + rank if key < 0 else key
        names = [axes.names.index(k) if k in axes.names else k for k in dims]
        expected = [k for k, placement in enumerate(resolved) if kind_of(placement) == "shard" and placement.dim == dim]
        if sorted(map(str, names)) != sorted(map(str, expected)):
            raise SpecError("shard order", value=shown(tuple(dims)), dim=dim, expected=tuple(map(str, expected)))
        for k, factor in split_factors([int(k) for k in names], axes).items():
            resolved[k] = strided_shard(dim, factor)
    return DTensorLayout(mesh, tuple(resolved))


def as_dtensor(local: torch.Tensor, layout: DTensorLayout, shape: tuple[int, ...]) -> DTensor:
    """The DTensor of a local tensor and its global shape."""
    size, stride = _size_and_stride(shape)
    return DTensor.from_local(local, layout.mesh, layout.placements, run_check=False, shape=size, stride=stride)


@cached(1 << 12)
def _size_and_stride(shape: tuple[int, ...]) -> tuple[torch.Size, tuple[int, ...]]:
    return torch.Size(shape), tuple(prod(shape[k + 1 :]) for k in range(len(shape)))
