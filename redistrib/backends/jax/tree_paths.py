"""The path of a leaf as text: the one notation that is printed, and that patterns and schedules take."""

from __future__ import annotations

from typing import Any, TypeAlias

from jax.tree_util import GetAttrKey, keystr

KeyPath: TypeAlias = tuple[Any, ...]  # of a leaf, as JAX has it


def path_text(path: KeyPath) -> str:
    """The keys of a path with `/` between them, without the `value` of a box such as Flax's `Partitioned` at its end.

    >>> from jax.tree_util import DictKey, SequenceKey
    >>> path_text((DictKey("layers"), SequenceKey(0), DictKey("kernel"), GetAttrKey("value")))
    'layers/0/kernel'
    """
    return with_box(without_box(path))


def with_box(path: KeyPath) -> str:
    """As `path_text`, with the `value` of a box."""
    return keystr(path, simple=True, separator="/")


def without_box(path: KeyPath) -> KeyPath:
    """The path of the box of a leaf, or the path itself."""
    return path[:-1] if path and path[-1] == GetAttrKey("value") else path
