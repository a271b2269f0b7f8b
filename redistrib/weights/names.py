"""Names of the leaves of a tree: the keys and indices on the path to a leaf, joined by dots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax.tree_util import tree_flatten_with_path

from redistrib.errors import LeafError


def named_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[tuple[str, Any]], Any]:
    """The leaves of a tree with their names, and its structure.

    Raises:
        LeafError: if two leaves have the same name, or a name is no text of Unicode.

    >>> named_leaves({"layers": [{"w": 1}, {"w": 2}], "norm.bias": 3})[0]
    [('layers.0.w', 1), ('layers.1.w', 2), ('norm.bias', 3)]
    """
    pairs, structure = tree_flatten_with_path(tree, is_leaf=is_leaf)
    result = [(".".join(map(_name_of, path)), leaf) for path, leaf in pairs]
    names: set[str] = set()
    for name, _ in result:
        if not is_unicode(name):
            raise LeafError(ascii(name), "the name has half of a surrogate pair, which no file stores; rename the leaf")
        if name in names:
            raise LeafError(name, "two leaves of the tree have this name; rename one of them")
        names.add(name)
    return result, structure


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: it has no half of a surrogate pair."""
    try:
        return bool(text.encode()) or not text
    except UnicodeEncodeError:
        return False


def _name_of(entry: Any) -> str:
    """The text of a key, an index or an attribute."""
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
