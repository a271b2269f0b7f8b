"""Names of the leaves of a tree: keys and indices on the path to a leaf, or to its box, joined by dots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from jax.tree_util import tree_flatten_with_path

from redistrib.backends.jax.tree_paths import path_text, without_boxes
from redistrib.errors import LeafError
from redistrib.errors.base import shown

# The argument of `load` and `save`: the new name of a name; None leaves it out.
Rename: TypeAlias = Mapping[str, str | None] | Callable[[str], str | None] | None


def named_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[tuple[str, str, Any]], Any]:
    """The leaves of a tree, each behind its name and the text of its path, and the tree's structure.

    Raises:
        LeafError: if two leaves have the same name, or a name is no text of Unicode.

    >>> named_leaves({"layers": [{"w": 1}], "norm.bias": 2})[0]
    [('layers.0.w', 'layers/0/w', 1), ('norm.bias', 'norm.bias', 2)]
    """
    pairs, structure = tree_flatten_with_path(tree, is_leaf=is_leaf)
    paths = without_boxes([path for path, _ in pairs])
    result = [
        (".".join(map(_name_of, path)), path_text(whole), leaf)
        for path, (whole, leaf) in zip(paths, pairs, strict=True)
    ]
    owners: dict[str, str] = {}
    for name, path, _ in result:
        _check_unicode(name, path)
        if name in owners:
            raise LeafError(path, f"it has the name {shown(name)}, as leaf {owners[name]}; rename one of them")
        owners[name] = path
    return result, structure


def renamed(names: Iterable[str], rename: Rename) -> dict[str, str]:
    """For each name the new one, without those that are left out; a mapping keeps the names that it has not.

    Raises:
        LeafError: if two names become one, a new name is no text of Unicode, or a mapping has a name that is not there.

    >>> renamed(["a", "b", "c"], {"a": "x", "b": None})
    {'a': 'x', 'c': 'c'}
    """
    old, result, owners = list(names), dict[str, str](), dict[str, str]()
    if rename is None:
        return {name: name for name in old}
    if not isinstance(rename, Mapping) and not callable(rename):
        raise LeafError("", f"rename={shown(rename)} is no mapping of names and no function of a name; give one")
    for name in sorted(set(rename) - set(old), key=str) if isinstance(rename, Mapping) else ():
        raise LeafError(str(name), "rename= has this name, and there is none such; take it out, or mend it")
    for name in old:
        new = rename.get(name, name) if isinstance(rename, Mapping) else rename(name)
        if new is None:
            continue
        if not isinstance(new, str):
            raise LeafError(name, f"rename= makes it {shown(new)}; give a text, or None to leave it out")
        _check_unicode(new, new)
        if new in owners:
            raise LeafError(name, f"rename= makes it {shown(new)}, and {owners[new]} too; give each its own")
        owners[new], result[name] = name, new
    return result


def _check_unicode(name: str, leaf: str) -> None:
    if not is_unicode(name):
        raise LeafError(ascii(leaf), "the name has half of a surrogate pair, which no file stores; rename the leaf")


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
