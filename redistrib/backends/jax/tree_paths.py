"""The path of a leaf as text: the one notation that is printed, and that patterns and schedules take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from jax.tree_util import DictKey, GetAttrKey, keystr

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


def without_boxes(paths: Sequence[KeyPath], *, dicts: bool = False) -> list[KeyPath]:
    """The paths of all leaves of a tree without the `value` of their boxes, which have no other child.

    Args:
        paths: of the leaves.
        dicts: whether a dictionary with the only key `value`, as a checkpoint of boxes may have, is a box too.
    """
    ends = (GetAttrKey("value"), DictKey("value")) if dicts else (GetAttrKey("value"),)
    below = Counter(path[:length] for path in paths for length in range(len(path)))
    return [path[:-1] if len(path) > 1 and path[-1] in ends and below[path[:-1]] == 1 else path for path in paths]


def without_box(path: KeyPath) -> KeyPath:
    """The path of the box of a leaf, or the path itself."""
    return path[:-1] if path and path[-1] == GetAttrKey("value") else path
