"""`redistribute`: a DTensor on another layout, with gradients."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

from redistrib.backends.torch.operators import on_rank
from redistrib.backends.torch.private import is_plain, local_of, of_spec, real_of, redistribute_by_dtensor, spec_of
from redistrib.backends.torch.world import OfWorld
from redistrib.cache import Cache, Key
from redistrib.dtensor.arguments import (
    ShardOrder,
    members_of,
    options_of,
    require_dtensor,
    require_dtype,
    require_plain,
    target_layout,
)
from redistrib.dtensor.layouts import gradient_layout, layout_of, spec_of_move
from redistrib.dtensor.moves import PreparedRedistribute, move_of, tell
from redistrib.errors import DTensorError, RedistribError
from redistrib.lang.placements import from_device_mesh, from_placements, is_placement
from redistrib.renamed import renamed


@renamed("cost_model", "machine")
def redistribute(
    x: DTensor,
    device_mesh: Any = None,
    placements: Sequence[Any] | None = None,
    *,
    async_op: bool = False,
    forward_dtype: torch.dtype | None = None,
    backward_dtype: torch.dtype | None = None,
    shard_order: ShardOrder | None = None,
    memory_limit: int | str | None = None,
    machine: Any = None,
    topology: Sequence[Hashable] | None = None,
    check: bool | None = None,
) -> DTensor:
    """Redistribute a DTensor by a plan, on its mesh or onto another one; in place of `x.redistribute(...)`.

    All ranks of both meshes call it together; an error of one rank counts as a call of all of them. Other ranks may
    call it too; for them it does nothing. The result is differentiable as that of `DTensor.redistribute` is: gradients
    of partial sums are replicated. If nothing moves, the result is another DTensor over the same memory.

    Args:
        x: the DTensor; never written.
        device_mesh: the mesh of the result, over any ranks; by default that of `x`.
        placements: the placements of the result, one for each mesh dimension: `Shard`, `Replicate`, `_StridedShard`, or
            `Partial` where `x` has it too; by default all are `Replicate`.
        async_op: as for DTensor, and without effect: the local tensor is never a collective under way.
        forward_dtype: element type to which the local tensor is converted first; that of the result.
        backward_dtype: element type in which the gradient moves back; it is converted to that of `x` afterwards.
        shard_order: for each tensor dimension the mesh dimensions that shard it, by number or name, in the order in
            which they cut it; by default in the order of the mesh.
        memory_limit: bytes per rank for source, target and all memory between: an integer or a text such as "2GiB".
        machine: as for `redistrib.synthesize`; by default the preset of the mesh's devices.
        topology: the host of every rank of the default group, where links between hosts are slower.
        check: whether all ranks compare their calls before data moves, by a short message between each pair. By
            default they compare a call the first time only. If a rank makes another call later, all ranks raise the
            same error after a second; a rank that has returned by then raises it at its next call.

    Returns:
        The DTensor. Its local tensor is dense, its dimensions lie in memory in the order of the strides of `x`. On an
        accelerator it is returned when the work has been enqueued.

    Raises:
        LeafError: if `x` is no DTensor.
        DTensorError: if an argument or a placement has no meaning; it is a `RuntimeError` too, as DTensor raises.
        CommunicatorError: on every rank, if the ranks make different calls.
        TilesError: on every rank, if the local tensor of a rank has another shape than its placements say.
        MemoryLimitError: on every rank, if no plan fits the limit.

    >>> import torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> import redistrib as rd
    >>> mesh = init_device_mesh("cpu", (8,))  # under torchrun with 8 ranks
    >>> x = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])
    >>> rd.torch.redistribute(x, placements=[Shard(1)]).to_local().shape
    torch.Size([8, 1])
    """
    arguments = (device_mesh, placements, shard_order, memory_limit, machine, topology, forward_dtype)
    compiling = torch.compiler.is_dynamo_compiling()
    if compiling or (isinstance(x, DTensor) and not is_plain(local_of(x))):
        plain = isinstance(x, DTensor) and (device_mesh is None or device_mesh == x.device_mesh)
        if plain and all(option is None for option in (shard_order, memory_limit, topology)):
            options = {"async_op": async_op, "forward_dtype": forward_dtype, "backward_dtype": backward_dtype}
            options = {name: value for name, value in options.items() if value is not None}
            ends = [Replicate()] * x.device_mesh.ndim if placements is None else placements
            # The compiler knows the collectives of DTensor's own steps, and schedules them; so does another class of
            # local tensors. The compiler knows the method by its name.
            if compiling:
                return on_rank(x, dist.get_rank()).redistribute(x.device_mesh, ends, **options)
            return redistribute_by_dtensor(x, x.device_mesh, ends, **options)
    return _eager(x, arguments, backward_dtype, check)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _eager(x: Any, arguments: tuple[Any, ...], backward_dtype: torch.dtype | None, check: bool | None) -> DTensor:
    """The move by a plan; a compiled function breaks its graph here."""
    device_mesh, placements = real_of(arguments[0]), arguments[1]
    if isinstance(placements, list | tuple):
        placements = [real_of(placement) for placement in placements]
    arguments = (device_mesh, placements, *arguments[2:])
    try:
        require_dtensor(x)
        require_plain(x)
        require_dtype("backward_dtype", backward_dtype)
        move = _move_of_call(x, *arguments)
        if move.stays:
            _require_local(x, move)
    except RedistribError as error:
        raise tell(members_of(x, device_mesh), error) from None
    if x.requires_grad and torch.is_grad_enabled():
        result: DTensor = _Redistributed.apply(x, move, check, backward_dtype or x.dtype)
        return result
    return _redistributed(x, move, check)


_CALLS: OfWorld[Cache[PreparedRedistribute]] = OfWorld(lambda: Cache(1 << 10))


def _move_of_call(x: DTensor, *arguments: Any) -> PreparedRedistribute:
    """The move of a call of `redistribute`, by the arguments of `_planned`.

    Raises:
        RedistribError: if an argument has no meaning.
    """
    spec = spec_of(x)
    mesh, placements, shard_order, memory_limit, machine, topology, dtype = arguments
    try:
        order = None if shard_order is None else tuple((dim, tuple(dims)) for dim, dims in shard_order.items())
        hosts = None if topology is None else tuple(topology)
        ends = None if placements is None else tuple(placements)
        key = Key((spec, mesh, ends, order, memory_limit, machine, hosts, dtype))
    except (TypeError, AttributeError):  # an argument of another kind, which `_planned` refuses
        return _planned(x, *arguments)
    if not all(map(is_placement, x.placements)):  # they may have memory of their own, as `_MaskPartial`
        return _planned(x, *arguments)
    return _CALLS.get().get(key, lambda: _planned(x, *arguments))


def _planned(
    x: DTensor,
    device_mesh: Any,
    placements: Sequence[Any] | None,
    shard_order: ShardOrder | None,
    memory_limit: int | str | None,
    machine: Any,
    topology: Sequence[Hashable] | None,
    forward_dtype: torch.dtype | None,
) -> PreparedRedistribute:
    require_dtype("forward_dtype", forward_dtype)
    mesh = x.device_mesh if device_mesh is None else device_mesh
    target = target_layout(mesh, placements, x.ndim, shard_order)
    if x.device_mesh.device_type != mesh.device_type:
        raise DTensorError("device type", source=x.device_mesh.device_type, target=mesh.device_type)
    if shard_order is not None:  # as boxes, or not at all
        from_placements(target.placements, tuple(x.shape), from_device_mesh(mesh))
    options = options_of(memory_limit, machine, topology)
    return move_of(spec_of_move(x, target, forward_dtype or x.dtype, options))


def _require_local(x: DTensor, move: PreparedRedistribute) -> None:
    """Refuse a local tensor that is not of its layout, where nothing moves and so no rank waits.

    Raises:
        TilesError: names its shape.
    """
    problem = move.wrong(local_of(x))
    if problem is not None:
        raise problem


def _redistributed(x: DTensor, move: PreparedRedistribute, check: bool | None, requires_grad: bool = False) -> DTensor:
    """The result of a move, from a DTensor; without a record for gradients."""
    local, spec = local_of(x), move.spec
    if local.dtype != spec.dtype:
        local = local.to(spec.dtype)
    if move.stays:
        return of_spec(local, move.result_spec, requires_grad)
    if local.is_meta:
        shape = move.target_shape if move.has_target else None
        return of_spec(local.new_empty((0,) if shape is None else shape), move.result_spec, requires_grad)
    if local.requires_grad:
        local = local.detach()
    return of_spec(move(local, spec_of(x), check), move.result_spec, requires_grad)


class _Redistributed(torch.autograd.Function):  # type: ignore[misc]
    """The move of a DTensor; the gradient of its result moves back, from the layout that it has."""

    @staticmethod
    def forward(ctx: Any, x: DTensor, move: PreparedRedistribute, check: bool | None, back: torch.dtype) -> DTensor:
        ctx.move, ctx.check, ctx.back, ctx.dtype = move, check, back, x.dtype
        return _redistributed(x, move, check, x.requires_grad)

    @staticmethod
    def backward(ctx: Any, gradient: DTensor) -> tuple[DTensor, None, None, None]:
        spec = ctx.move.spec
        target = gradient_layout(layout_of(gradient), spec.source)
        move = move_of(spec_of_move(gradient, target, ctx.back, spec.options))
        moved = _Redistributed.apply(gradient, move, ctx.check, ctx.back)
        return (moved if moved.dtype == ctx.dtype else moved.to(ctx.dtype)), None, None, None
