"""The arguments of a caller, checked before ranks meet: a library error names each that has no meaning."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard

from redistrib.backends.torch.private import is_plain, local_of, strided_shard
from redistrib.cost.presets import cost_model
from redistrib.dtensor.layouts import DTensorLayout, Options
from redistrib.errors import DTensorError, LeafError
from redistrib.errors.base import shown
from redistrib.lang.placements import from_device_mesh, is_device_mesh, kind_of, ranks_of, split_factors
from redistrib.sizes import parse_size

ShardOrder = Mapping[int, Sequence[int | str]]


def options_of(memory_limit: int | str | None, machine: Any, topology: Any) -> Options:
    """The options of a call.

    Raises:
        RedistribError: if one has no meaning.
    """
    hosts: tuple[Hashable, ...] | None = None
    if topology is not None:
        hosts = _tuple_of(topology)
        ranks = dist.get_world_size()
        if hosts is None or len(hosts) != ranks or not all(isinstance(host, Hashable) for host in hosts):
            raise DTensorError("hosts", value=topology, ranks=ranks)
    limit = None if memory_limit is None else parse_size(memory_limit)
    return Options(limit, None if machine is None else cost_model(machine), hosts)


def require_dtensor(x: Any) -> None:
    """Refuse what is no DTensor.

    Raises:
        LeafError: names its type.
    """
    if not isinstance(x, DTensor):
        raise LeafError("", f"{type(x).__name__} is no DTensor; make one by DTensor.from_local or distribute_tensor")


def require_plain(x: DTensor) -> None:
    """Refuse a local tensor of another class, whose memory plans do not know.

    Raises:
        DTensorError: names the class.
    """
    local = local_of(x)
    if not is_plain(local):
        raise DTensorError("local class", name=type(local).__name__)


def require_dtype(option: str, value: Any) -> None:
    """Refuse what is neither an element type nor None.

    Raises:
        DTensorError: names it.
    """
    if value is not None and not isinstance(value, torch.dtype):
        raise DTensorError("element type", option=option, value=value)


def members_of(x: Any, device_mesh: Any) -> tuple[int, ...]:
    """The ranks of a call whose other arguments may be wrong, ascending; empty if these do not say them."""
    meshes = [x.device_mesh] if isinstance(x, DTensor) else []
    if device_mesh is not None:
        meshes.append(device_mesh)
    if not all(map(is_device_mesh, meshes)):
        return ()
    return tuple(sorted({rank for mesh in meshes for rank in ranks_of(mesh)}))


def target_layout(mesh: Any, placements: Any, rank: int, shard_order: ShardOrder | None = None) -> DTensorLayout:
    """The layout of a caller's arguments: dimensions count from the front, and shard orders become strided shards.

    Args:
        mesh: the mesh.
        placements: one for each mesh dimension; None for all replicated.
        rank: number of dimensions of the tensor.
        shard_order: for each tensor dimension the mesh dimensions that shard it, in order.

    Raises:
        DTensorError: if the placements or the order have no meaning.
    """
    if not is_device_mesh(mesh):
        raise DTensorError("device mesh", value=mesh)
    axes = from_device_mesh(mesh)
    listed = [Replicate()] * len(axes.axes) if placements is None else _tuple_of(placements)
    if listed is None:
        raise DTensorError("placement list", value=placements)
    resolved: list[Any] = list(listed)
    if len(resolved) != len(axes.axes):
        raise DTensorError("placements", count=len(resolved), mesh=str(axes), axes=len(axes.axes))
    for k, placement in enumerate(resolved):
        kind = "foreign" if hasattr(placement, "is_partial") and placement.is_partial() else kind_of(placement)
        if kind in ("shard", "strided") and not -rank <= placement.dim < rank:
            raise DTensorError("placement dimension", value=placement, rank=rank)
        if kind == "shard" and placement.dim < 0:
            resolved[k] = Shard(placement.dim + rank)
        elif kind == "strided":
            resolved[k] = strided_shard(placement.dim % rank, int(placement.split_factor))
    for key, dims in _orders_of(shard_order, rank):
        names = [axes.names.index(k) if k in axes.names else k for k in dims]
        expected = [k for k, placement in enumerate(resolved) if type(placement) is Shard and placement.dim == key]
        if sorted(map(str, names)) != sorted(map(str, expected)):
            raise DTensorError("shard order", value=shown(dims), dim=key, expected=tuple(map(str, expected)))
        for k, factor in split_factors([int(k) for k in names], axes).items():
            resolved[k] = strided_shard(key, factor)
    return DTensorLayout(mesh, tuple(resolved))


def _orders_of(shard_order: Any, rank: int) -> list[tuple[int, tuple[Any, ...]]]:
    """The items of a shard order, dimensions counted from the front.

    Raises:
        DTensorError: if it is none.
    """
    if shard_order is None:
        return []
    orders = []
    if not isinstance(shard_order, Mapping):
        raise DTensorError("shard order form", value=shard_order)
    for dim, dims in shard_order.items():
        listed = None if isinstance(dims, str) else _tuple_of(dims)
        if type(dim) is not int or listed is None:
            raise DTensorError("shard order form", value=shard_order)
        orders.append((dim + rank if dim < 0 else dim, listed))
    return orders


def _tuple_of(value: Any) -> tuple[Any, ...] | None:
    """The items of a sequence; None if it is none."""
    try:
        return tuple(value)
    except TypeError:
        return None
