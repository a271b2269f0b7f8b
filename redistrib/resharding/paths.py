"""Shardings by path: patterns, functions of path and leaf, and trees that follow another tree of shardings."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding
from jax.tree_util import tree_flatten_with_path

from redistrib.backends.jax.tree_paths import KeyPath, path_text, with_box, without_box, without_boxes
from redistrib.errors import LeafError
from redistrib.errors.base import shown_leaf
from redistrib.resharding.padding import is_shape, shape_of

# The pattern of leaves that no other pattern matches.
DEFAULT = "*"
_SHOWN = 5  # of the paths that an error lists


def is_static(value: Any) -> bool:
    """Whether a leaf is a function, for example the activation of an Equinox module; it stays as it is."""
    return callable(value) and not isinstance(value, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic)


def is_by_path(tree: Any, shardings: Any) -> bool:
    """Whether shardings are a function, or a flat mapping from patterns to shardings, and no tree.

    A key that holds `*`, `?` or `/` makes a mapping one of patterns, unless the tree has the same keys.

    >>> rows = PartitionSpec("x")
    >>> [is_by_path({"mlp": 1}, shardings) for shardings in ({"*/kernel": rows, "*": rows}, {"mlp": rows})]
    [True, False]
    """
    if isinstance(shardings, Mapping):
        if isinstance(tree, Mapping) and set(tree) == set(shardings):
            return False
        texts = all(isinstance(key, str | int) for key in shardings)
        plain = all(map(_is_place, shardings.values()))
        if not plain and any(DEFAULT in str(key) for key in shardings):  # of no tree: wrong values are said by leaf
            plain = all(map(_is_leaf, shardings.values()))
        return texts and plain and any(mark in str(key) for key in shardings for mark in "*?/")
    return callable(shardings) and _is_leaf(shardings) and not _is_place(shardings)  # a module may be called too


def _is_place(value: Any) -> bool:
    return isinstance(value, Sharding | PartitionSpec | jax.Device)


def _is_leaf(value: Any) -> bool:
    return jax.tree_util.treedef_is_leaf(jax.tree.structure(value))


def spread_by_path(tree: Any, shardings: Any) -> list[Any]:
    """The sharding of every leaf of a tree, in its order; None of a function.

    Args:
        tree: any pytree.
        shardings: a function of path and leaf, or a mapping from patterns to shardings. A path is the leaf's keys with
            `/` between them, such as `layers/0/wq/kernel`, as `path_text` makes it; a pattern that is a number is the
            text of it. In a pattern `*` stands for any text, and a leading `*/` also for nothing; `/` is also a dot of
            a key. The pattern `*` alone is for leaves that no other pattern matches.

    Raises:
        LeafError: if a leaf matches no pattern, or two; if the function returns None; if a pattern other than `*`
            matches no leaf of a tree that has leaves.
    """
    leaves = tree_flatten_with_path(tree)[0]
    if not isinstance(shardings, Mapping):
        results = [None if is_static(leaf) else shardings(path_text(path), leaf) for path, leaf in leaves]
        for (path, leaf), result in zip(leaves, results, strict=True):
            if result is None and not is_static(leaf):
                raise LeafError(path_text(path), "the function of path and leaf returns None; return a sharding")
        return results
    shardings = {str(pattern): sharding for pattern, sharding in shardings.items()}
    patterns = [pattern for pattern in shardings if pattern != DEFAULT]
    unused, results = dict.fromkeys(patterns), []
    for (path, leaf), box in zip(leaves, without_boxes([path for path, _ in leaves], dicts=True), strict=True):
        if is_static(leaf):
            results.append(None)
            continue
        names = _spellings(path, box)
        hits = [pattern for pattern in patterns if any(_matches(name, pattern) for name in names)]
        if len(hits) > 1:
            raise LeafError(
                path_text(path),
                f"the patterns {_listed(hits)} both match {names[0]!r}; make one of them narrower, so that each leaf "
                "has one sharding",
            )
        chosen = hits[0] if hits else DEFAULT
        if chosen not in shardings:
            raise LeafError(
                path_text(path),
                f"no pattern of {_listed(patterns)} matches {names[0]!r}; add one, or '*' for all other leaves",
            )
        unused.pop(chosen, None)
        results.append(shardings[chosen])
    paths = [path_text(path) for path, leaf in leaves if not is_static(leaf)]
    if unused and paths:
        raise LeafError(
            "",
            f"the pattern {_listed(list(unused))} matches no leaf; the paths are {_listed(paths)}",
        )
    return results


def _spellings(path: KeyPath, box: KeyPath) -> list[str]:
    """The texts of a path that patterns match: without its box and with it, and with dots of keys as `/`."""
    texts = (path_text(path), with_box(path), with_box(box))
    return list(dict.fromkeys((*texts, *(text.replace(".", "/") for text in texts))))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or (pattern.startswith("*/") and fnmatchcase(name, pattern[2:]))


def _listed(names: Sequence[str]) -> str:
    texts = [repr(name) for name in names[:_SHOWN]]
    more = len(names) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")


# ------------------------------------------------------------------------------------------------- like


def like(params: Any, tree: Any, logical_shape: Any = None) -> Any:
    """Shardings for a tree that holds copies of the parameters' tree, such as an optimizer's state.

    A leaf whose path ends in the path of a parameter gets that parameter's sharding: `0/mu/wq/kernel` gets that
    of `wq/kernel`. All other leaves, such as counters, are whole on every device of the parameters' mesh; so are
    leaves of another shape than their parameter, such as the factored moments of Adafactor. Where such leaves have
    1 MiB or more, one warning names them with their bytes.

    Args:
        params: the parameters, as arrays or `jax.ShapeDtypeStruct`, or their shardings. Shardings do not say the shapes
            of parameters: then a leaf that its parameter's sharding does not divide is whole on every device. Or the
            logical shapes of the parameters: then those of the leaves are the result, None where there is none.
        tree: any pytree of arrays or `jax.ShapeDtypeStruct`.
        logical_shape: of the parameters, as for `reshard`. A copy with other padding than its parameter follows it too:
            `reshard(tree, like(params, tree, shapes), logical_shape=like(shapes, tree))`.

    Returns:
        A tree like `tree` with a sharding, or a logical shape, in the place of each leaf.

    Raises:
        LeafError: if a leaf of `params` is no sharding and has none, or if there is none at all.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> rows = NamedSharding(jax.make_mesh((2,), ("x",)), P("x"))
    >>> state = {"count": jnp.zeros(()), "mu": {"w": jnp.zeros((4, 4))}}
    >>> shardings = like({"w": rows}, state)
    >>> shardings["mu"]["w"].spec == P("x"), shardings["count"].spec == P()
    (True, True)
    >>> like({"w": (3, 4)}, state)
    {'count': None, 'mu': {'w': (3, 4)}}
    """
    leaves, structure = tree_flatten_with_path(tree)
    if _are_shapes(params):
        return jax.tree.unflatten(structure, _logical_shapes(params, leaves))
    shardings: dict[KeyPath, tuple[Sharding, tuple[int, ...] | None]] = {}
    for path, leaf in tree_flatten_with_path(params)[0]:
        if is_static(leaf):
            continue
        sharding = leaf if isinstance(leaf, Sharding) else getattr(leaf, "sharding", None)
        if not isinstance(sharding, Sharding):
            raise LeafError(
                path_text(path), f"{shown_leaf(leaf)} is no sharding and has none; give arrays or shardings"
            )
        shardings[without_box(path)] = sharding, None if isinstance(leaf, Sharding) else leaf.shape
    if not shardings:
        raise LeafError("", "the parameters have no leaf; give a tree of arrays or shardings")
    whole = _whole(next(iter(shardings.values()))[0])
    result, large = [], []
    for (path, leaf), logical in zip(leaves, _logical_shapes(logical_shape, leaves), strict=True):
        sharding, expected = _of_end(shardings, path) or (None, None)
        shape = np.shape(leaf)
        fits = sharding and (logical or (_divides(sharding, shape) if expected is None else shape == expected))
        result.append(sharding if fits else whole)
        if not fits and (size := math.prod(shape) * getattr(leaf, "dtype", np.dtype(bool)).itemsize) >= _LARGE_BYTES:
            large.append(f"{path_text(path)} ({size:,} bytes)")
    if large and len(whole.device_set) > 1:
        names = ", ".join(large[:_SHOWN]) + (f" and {len(large) - _SHOWN} more" if len(large) > _SHOWN else "")
        warnings.warn(
            f"rd.like: no parameter has the path and the shape of {names}; all {len(whole.device_set)} devices hold "
            "the whole of it. Give it a sharding of its own, or logical_shape= where only its padding differs",
            stacklevel=2,
        )
    return jax.tree.unflatten(structure, result)


_LARGE_BYTES = 2**20  # of a leaf on every device: those that are counters and scales have less


def _are_shapes(tree: Any) -> bool:
    leaves = jax.tree.leaves(tree, is_leaf=is_shape)
    return all(map(is_shape, leaves)) and any(leaves)  # None and empty tuples are no parameters


def _logical_shapes(shapes: Any, leaves: Sequence[tuple[KeyPath, Any]]) -> list[tuple[int, ...] | None]:
    """The logical shape of each leaf, where its path ends in one that has a shape, which fits in the leaf."""
    pairs = tree_flatten_with_path(shapes, is_leaf=is_shape)[0]
    sizes = ((path, shape_of(shape)) for path, shape in pairs if shape is not None)
    of_end = {without_box(path): tuple(shape) for path, shape in sizes if shape}

    def fits(shape: tuple[int, ...] | None, whole: tuple[int, ...]) -> bool:
        return shape is not None and len(shape) == len(whole) and all(map(operator.le, shape, whole))

    found = ((_of_end(of_end, path), np.shape(leaf)) for path, leaf in leaves)
    return [shape if fits(shape, whole) else None for shape, whole in found]


def _of_end(entries: Mapping[KeyPath, Any], path: KeyPath) -> Any:
    """The entry of the longest path in which a path ends; None if there is none."""
    inner = without_box(path)
    return next((entries[inner[k:]] for k in range(len(inner) + 1) if inner[k:] in entries), None)


def _whole(sharding: Sharding) -> Sharding:
    if isinstance(sharding, NamedSharding):
        return NamedSharding(sharding.mesh, PartitionSpec(), memory_kind=sharding.memory_kind)
    devices: Any = sorted(sharding.device_set, key=lambda device: int(device.id))
    mesh = jax.make_mesh((len(devices),), ("devices",), devices=devices)
    return NamedSharding(mesh, PartitionSpec(), memory_kind=sharding.memory_kind)


def _divides(sharding: Sharding, shape: tuple[int, ...]) -> bool:
    try:
        sharding.shard_shape(shape)
    except (ValueError, IndexError):
        return False
    return True


# ------------------------------------------------------------------------------------------------- boxes


def through_boxes(tree: Any, shardings: Any, is_leaf: Callable[[Any], bool]) -> list[Any] | None:
    """The sharding of every leaf where a tree has boxes that the shardings lack, or box metadata that differ.

    `flax.linen.get_partition_spec` takes the boxes of `nn.Partitioned` off, and `flax.nnx.get_partition_spec` keeps
    boxes whose metadata may differ from those of the state. Dictionaries, lists and tuples must have the same keys.

    Returns:
        None if the shardings match in no such way.
    """
    if is_leaf(shardings):
        return [shardings] * len(jax.tree.leaves(tree))
    children, targets = _children(tree), _children(shardings)
    if children is None:
        return None
    if targets is not None and type(tree) is type(shardings) and [k for k, _ in children] == [k for k, _ in targets]:
        parts = [through_boxes(a, b, is_leaf) for (_, a), (_, b) in zip(children, targets, strict=True)]
        return None if any(part is None for part in parts) else [pair for part in parts for pair in part or ()]
    if len(children) == 1 and not isinstance(tree, dict | list | tuple):
        return through_boxes(children[0][1], shardings, is_leaf)
    return None


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    """The children of a pytree's node by key; None of a leaf."""
    children = tree_flatten_with_path(node, is_leaf=lambda value: value is not node)[0]
    return None if any(not path for path, _ in children) else [(path[0], child) for path, child in children]
