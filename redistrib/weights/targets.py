"""Targets of a load: the tensors that a caller names, with their shardings and element types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec, Sharding

from redistrib.arguments import dtype_name
from redistrib.backends.jax.tree_paths import path_text
from redistrib.errors import DtypeError, WeightsFileError
from redistrib.plans.dtypes import dtype_of, itemsize_of
from redistrib.resharding.actions import route
from redistrib.resharding.checks import check_array, check_devices, naming, placing
from redistrib.resharding.leaves import Leaf, matched, sharding_of
from redistrib.resharding.paths import DEFAULT, is_by_path, spread_by_path
from redistrib.weights.headers import StoredTensor, WeightFiles
from redistrib.weights.names import named_leaves

MOST_DIMENSIONS = 64  # of an array of NumPy


@dataclass(frozen=True)
class TargetTensor:
    """A tensor to be loaded.

    Attributes:
        stored: the tensor in its file.
        sharding: of the result.
        dtype: element type of the result.
    """

    stored: StoredTensor
    sharding: Sharding
    dtype: str


@dataclass(frozen=True)
class TargetTree:
    """The tensors to load for a tree of results.

    Attributes:
        tensors: each once, in the order of the leaves.
        structure: of the tree.
        places: for each leaf the number of its tensor; leaves of tied names share one.
    """

    tensors: tuple[TargetTensor, ...]
    structure: Any
    places: tuple[int, ...]


def asked_for(headers: Callable[[], WeightFiles] | None, shardings: Any, mesh: Any) -> Any:
    """The shardings of a call as a tree of names, without arrays and partition specs.

    Args:
        headers: reads those of the files, for patterns and for a function; None where these are of a result.
        shardings, mesh: as for `load`.

    Raises:
        WeightsFileError: as `read_headers` does.
        LeafError: if a pattern matches no tensor, or two match one; if a spec does not fit the mesh.
    """

    def placed(path: Any, leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        if isinstance(leaf, PartitionSpec):
            leaf = matched(0.0 if not path else {path_text(path): 0.0}, leaf, mesh=mesh)[0][0].target
        check_devices(path_text(path), getattr(leaf, "sharding", leaf))
        return leaf

    if headers is not None and is_by_path(None, shardings):
        files = headers()
        named = {name: _leaf_of(files, name) for name in files.names}
        if isinstance(shardings, Mapping):
            places = spread_by_path(named, {DEFAULT: None, **shardings})
        else:
            places = [shardings(name, leaf) for name, leaf in named.items()]
        shardings = {name: place for name, place in zip(named, places, strict=True) if place is not None}
    return jax.tree_util.tree_map_with_path(placed, shardings, is_leaf=is_place)


def _leaf_of(files: WeightFiles, name: str) -> Any:
    if not files.is_readable(name):
        return _Unreadable(files, name)
    return jax.ShapeDtypeStruct(files[name].shape, jnp.dtype(files[name].dtype))


class _Unreadable:
    """In the place of a leaf whose tensor cannot be read: who asks for its shape or type gets the error."""

    def __init__(self, files: WeightFiles, name: str) -> None:
        self._files, self._name = files, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._files[self._name], attribute)


def is_place(value: Any) -> bool:
    """Whether a value says where an array is placed."""
    return isinstance(value, Sharding | PartitionSpec | jax.Device | jax.ShapeDtypeStruct)


def target_tree(files: WeightFiles, shardings: Any, dtype: Any, *, strict: bool = True) -> TargetTree:
    """The tensors that a tree of shardings names.

    Args:
        files: the files of the tensors.
        shardings: a tree whose leaves are shardings, devices, or `jax.ShapeDtypeStruct` with a sharding; or one of
            these for all tensors, as a flat dict by name.
        dtype: of the result's floating-point tensors, a dict of types by name, or None for those of the files.
        strict: whether to refuse element types that JAX lacks without `jax_enable_x64`.

    Raises:
        WeightsFileError: if a name is missing, or the shape of a tensor is not that of its leaf.
        LeafError: if a leaf is no sharding, or one that does not fit its tensor, or its type is none.
        DtypeError: if the type of all is none.
    """
    tree = dict.fromkeys(files.names, shardings) if is_place(shardings) else shardings
    leaves, structure = named_leaves(tree, is_leaf=is_place)
    types, every = dict[str, str](), None
    if isinstance(dtype, Mapping):
        paths = {name: path for name, path, _ in leaves}
        for name, asked in dtype.items():
            files[name]  # refuses names that are missing
            with naming(paths.get(name, str(name))):
                types[name] = _type_named(asked)
    elif dtype is not None:
        every = _type_named(dtype)
    tensors: dict[tuple[Any, ...], int] = {}
    result: list[TargetTensor] = []
    places = []
    for name, path, leaf in leaves:
        stored = files[name]
        kind = types.get(name, every if _is_floating(stored.dtype) else None)
        target = _target(files, name, path, leaf, kind, strict)
        key = (stored.name, target.sharding, target.dtype)
        if key not in tensors:
            tensors[key] = len(result)
            result.append(target)
        places.append(tensors[key])
    return TargetTree(tuple(result), structure, tuple(places))


def _target(files: WeightFiles, name: str, path: str, leaf: Any, dtype: str | None, strict: bool) -> TargetTensor:
    stored = files[name]
    kind = dtype or stored.dtype
    _check_size(files, name, stored, kind)
    if isinstance(leaf, jax.ShapeDtypeStruct):
        check_array(path, leaf)
        if leaf.shape != stored.shape:
            raise WeightsFileError(files.shown, name, f"its shape is {stored.shape}, and {leaf.shape} is asked for")
        kind = dtype or str(leaf.dtype)
        leaf = leaf.sharding
    sharding = sharding_of(path, leaf)
    with placing(Leaf(path, jax.ShapeDtypeStruct(stored.shape, jnp.float32), sharding)):
        route(stored.shape, None, sharding)  # refuses what does not fit
    for name_of_type in (stored.dtype, kind) if strict else ():
        if str(jax.dtypes.canonicalize_dtype(jnp.dtype(name_of_type))) != name_of_type:
            raise WeightsFileError(
                files.shown,
                name,
                f"JAX has no arrays of {name_of_type} unless jax_enable_x64 is set; set it, convert the file, or "
                "leave the tensor out of the shardings",
            )
    return TargetTensor(stored, sharding, kind)


def _type_named(dtype: Any) -> str:
    """NumPy's name of an element type that a caller asks for."""
    name = dtype_name(dtype)
    try:
        jax.typeof(np.zeros((), kind := dtype_of(name)))
    except (DtypeError, TypeError):
        raise DtypeError(name, "JAX", "dtype") from None
    return kind.name


def _check_size(files: WeightFiles, name: str, stored: StoredTensor, kind: str) -> None:
    """Refuse what NumPy, and so JAX, has no arrays for; sizes count there though another dimension is empty."""
    if len(stored.shape) > MOST_DIMENSIONS:
        reason = (
            f"it has {len(stored.shape)} dimensions, of {MOST_DIMENSIONS} that an array may have; write it with fewer"
        )
        raise WeightsFileError(files.shown, name, reason)
    if math.prod(filter(None, stored.shape)) * max(stored.itemsize, itemsize_of(kind)) >= 2**63:
        reason = f"its shape {stored.shape} is above the 2^63 bytes that arrays may span; write it with smaller sizes"
        raise WeightsFileError(files.shown, name, reason)


def _is_floating(dtype: str) -> bool:
    return bool(jnp.issubdtype(jnp.dtype(dtype), jnp.floating))
