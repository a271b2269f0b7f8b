"""Leaves of a model state: each with its path, its container and the spec of its move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from redistrib.dtensor.arguments import target_layout
from redistrib.dtensor.containers import children_of
from redistrib.dtensor.layouts import Options, RedistributeSpec, layout_of, spec_of_move
from redistrib.errors import LeafError, RedistribError
from redistrib.errors.base import shown
from redistrib.lang.placements import are_placements, is_device_mesh


@dataclass(frozen=True)
class StateLeaf:
    """A tensor of the tree, or another leaf.

    Attributes:
        path: its path in the tree, keys with `/` between them.
        value: the leaf.
        spec: the spec of its move; None if it has no target.
        holder, key: the container that holds it, and its key there.
    """

    path: str
    value: Any
    spec: RedistributeSpec | None
    holder: Any = None
    key: Any = None


def leaves_of(
    state: Any, targets: Any, options: Options, path: str = "", holder: Any = None, at: Any = None
) -> Iterator[StateLeaf]:
    """The leaves of a tree, each with the move to its target.

    Raises:
        LeafError: if a leaf has no target, or one that does not fit it.
    """
    children = children_of(state)
    if children is None:
        yield StateLeaf(path, state, _spec(state, targets, options, path), holder, at)
        return
    if isinstance(state, torch.nn.Module):
        _require_own(state, path)
    inner = _targets(state, children, targets, path)
    for (key, child), target in zip(children.items(), inner, strict=True):
        yield from leaves_of(child, target, options, _below(path, key), state, key)


def _below(path: str, key: Any) -> str:
    """The path of a child of a container."""
    return f"{path}/{key}" if path else str(key)


def _require_own(module: torch.nn.Module, path: str) -> None:
    """Refuse a module whose parameters another object refers to and would put back.

    Raises:
        LeafError: names its class.
    """
    for part in module.modules():
        if isinstance(part, FSDPModule | DistributedDataParallel):
            raise LeafError(
                path,
                f"{type(part).__name__} keeps its parameters itself; reshard module.state_dict() and load it into a "
                "module that is not wrapped",
            )


def _targets(state: Any, children: Mapping[Any, Any], targets: Any, path: str) -> list[Any]:
    """The target of each child of a container; a single target is that of all children.

    Raises:
        LeafError: if there are not as many targets as children, or one is missing.
    """
    if targets is None or isinstance(targets, torch.Tensor) or _is_target(targets):
        return [targets] * len(children)
    if isinstance(targets, torch.nn.Module):
        targets = children_of(targets) or {}
    alike = isinstance(targets, Mapping | list | tuple) or type(targets) is type(state)
    target_children = children_of(targets) if alike else None
    if target_children is None:
        return [targets] * len(children)
    if isinstance(targets, Mapping):
        for key in children:
            if key not in targets:
                raise LeafError(_below(path, key), "it has no target; give one, or None to keep it")
        return [targets[key] for key in children]
    if len(target_children) != len(children):
        raise LeafError(path, f"{len(target_children)} targets for {len(children)} tensors; give one for each")
    return list(target_children.values())


def _is_target(value: Any) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2 and is_device_mesh(value[0])
    lists = isinstance(value, list | tuple) and any(isinstance(item, list | tuple) for item in value)
    return pair or (are_placements(value) and not lists)


def _spec(value: Any, target: Any, options: Options, path: str) -> RedistributeSpec | None:
    """The spec of a leaf's move, which may be one to its own layout; None if it has no target."""
    if target is None or not isinstance(value, torch.Tensor):
        return None
    try:
        if isinstance(target, DTensor):
            layout = layout_of(target)
        elif isinstance(target, tuple) and len(target) == 2 and is_device_mesh(target[0]):
            layout = target_layout(target[0], target[1], value.ndim)
        elif are_placements(target) and isinstance(value, DTensor):
            layout = target_layout(value.device_mesh, target, value.ndim)
        elif isinstance(target, torch.Tensor) and not isinstance(value, DTensor) and target.shape == value.shape:
            return None  # a buffer of another model's state, a whole tensor on every rank as this is
        else:
            is_list = are_placements(target)
            why = "has no mesh, since the tensor is no DTensor" if is_list else "is no target"
            raise LeafError(path, f"{shown(target)} {why}; give (mesh, placements), placements, or a DTensor")
        return spec_of_move(value, layout, value.dtype, options)
    except LeafError:
        raise
    except RedistribError as error:
        raise LeafError(path, str(error)) from None
