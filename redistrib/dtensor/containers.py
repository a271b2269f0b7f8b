"""Containers of a model state: mappings, lists, (named) tuples, dataclasses, modules, classes registered as pytrees."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from redistrib.backends.torch.private import tree_children, tree_like


@dataclasses.dataclass(frozen=True)
class Child:
    """A child of a container: its key, which is its name in paths, and its value."""

    key: Any
    value: Any


def children_of(value: Any) -> list[Child] | None:
    """The children of a container, in order; None for a leaf."""
    if isinstance(value, torch.Tensor):
        return None
    if isinstance(value, torch.nn.Module):
        named = *value.named_parameters(remove_duplicate=False), *value.named_buffers(remove_duplicate=False)
        return [Child(name, child) for name, child in named]
    if isinstance(value, Mapping):
        return [Child(key, child) for key, child in value.items()]
    if isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        return [Child(name, child) for name, child in zip(names, value, strict=True)]
    registered = tree_children(value)
    if registered is not None:
        return [Child(k, child) for k, child in enumerate(registered)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return [Child(name, getattr(value, name)) for name in names]
    return None


def rebuilt(value: Any, children: Sequence[Any]) -> Any:
    """A container of the same class with other children; a module itself, which gets them."""
    if isinstance(value, torch.nn.Module):
        for part, child in zip(children_of(value) or (), children, strict=True):
            put(value, part.key, child)
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
    return dataclasses.replace(value, **{part.key: child for part, child in zip(parts, children, strict=True)})


def put(container: Any, key: Any, value: Any) -> None:
    """Replace a child, if the container is mutable; in a module by its name with dots."""
    if isinstance(container, MutableMapping | list):
        container[key] = value
    elif isinstance(container, torch.nn.Module):
        owner, _, name = key.rpartition(".")
        setattr(container.get_submodule(owner), name, value)
    elif dataclasses.is_dataclass(container) and not getattr(type(container), "__dataclass_params__").frozen:  # noqa: B009
        setattr(container, key, value)
