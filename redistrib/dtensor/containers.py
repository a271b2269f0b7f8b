"""Containers of a model state: mappings, lists, (named) tuples, dataclasses, modules, classes registered as pytrees."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from redistrib.backends.torch.private import tree_children, tree_like


def children_of(value: Any) -> dict[Any, Any] | None:
    """The children of a container by their keys, which are their names in paths, in order; None for a leaf."""
    if isinstance(value, torch.Tensor):
        return None
    if isinstance(value, torch.nn.Module):
        return dict((*value.named_parameters(remove_duplicate=False), *value.named_buffers(remove_duplicate=False)))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return dict(zip(getattr(value, "_fields", range(len(value))), value, strict=True))
    registered = tree_children(value)
    if registered is not None:
        return dict(enumerate(registered))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    return None


def rebuilt(value: Any, children: Sequence[Any]) -> Any:
    """A container of the same class with other children; a module itself, which gets them."""
    if isinstance(value, torch.nn.Module):
        for key, child in zip(children_of(value) or (), children, strict=True):
            put(value, key, child)
        return value
    if isinstance(value, MutableMapping):
        result = copy.copy(value)  # of the same class, with the same attributes
        for key, child in zip(list(value), children, strict=True):
            result[key] = child
        return result
    if isinstance(value, Mapping):
        return type(value)(zip(value, children, strict=True))  # type: ignore[call-arg]
    if isinstance(value, list | tuple):
        return type(value)(*children) if hasattr(value, "_fields") else type(value)(children)
    if tree_children(value) is not None:
        return tree_like(value, children)
    parts = children_of(value)
    assert parts is not None
    return dataclasses.replace(value, **dict(zip(parts, children, strict=True)))


def put(container: Any, key: Any, value: Any) -> None:
    """Replace a child, if the container is mutable; in a module by its name with dots."""
    if isinstance(container, MutableMapping | list):
        container[key] = value
    elif isinstance(container, torch.nn.Module):
        owner, _, name = key.rpartition(".")
        setattr(container.get_submodule(owner), name, value)
    elif dataclasses.is_dataclass(container) and not getattr(type(container), "__dataclass_params__").frozen:  # noqa: B009
        setattr(container, key, value)
