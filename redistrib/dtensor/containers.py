"""Containers of a model state: mappings, lists, (named) tuples, dataclasses, and classes registered as pytrees."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import torch

from redistrib.backends.torch.private import tree_children, tree_like


@dataclasses.dataclass(frozen=True)
class Child:
    """A child of a container: its name in paths, its key, and its value."""

    label: str
    key: Any
    value: Any


def children_of(value: Any) -> list[Child] | None:
    """The children of a container, in order; None for a leaf."""
    if isinstance(value, torch.Tensor):
        return None
    if isinstance(value, Mapping):
        return [Child(f"[{key!r}]", key, child) for key, child in value.items()]
    if isinstance(value, list | tuple):
        return [Child(f"[{k}]", k, child) for k, child in enumerate(value)]
    registered = tree_children(value)
    if registered is not None:
        return [Child(f"[{k}]", k, child) for k, child in enumerate(registered)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return [Child(f".{name}", name, getattr(value, name)) for name in names]
    return None


def rebuilt(value: Any, children: Sequence[Any]) -> Any:
    """A container of the same class with other children."""
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
    """Replace a child, if the container is mutable."""
    if isinstance(container, MutableMapping | list):
        container[key] = value
    elif isinstance(key, str) and not getattr(type(container), "__dataclass_params__").frozen:  # noqa: B009
        setattr(container, key, value)
