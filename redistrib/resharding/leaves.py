"""Trees of arrays and trees of shardings, matched leaf by leaf as JAX's own functions match them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jax.tree_util import tree_flatten_with_path

from redistrib.backends.jax import private
from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.sharding import over_first_devices
from redistrib.backends.jax.tree_paths import path_text
from redistrib.cache import Cache
from redistrib.errors import LeafError, SpecError
from redistrib.errors.base import shown_leaf
from redistrib.lang.mesh import Mesh as Axes
from redistrib.lang.specs import spec_entries
from redistrib.resharding.padding import Padding, is_shape, padding_of, shape_of
from redistrib.resharding.paths import is_by_path, is_static, spread_by_path, through_boxes


@dataclass(frozen=True)
class Leaf:
    """One leaf of the tree.

    Attributes:
        path: its text by `path_text`; empty for a tree that is one array.
        value: the leaf.
        target: the sharding of the result.
        source: the sharding by the caller's `source`; None for that of the value.
        padding: shapes of source and result, of which the leaf fills the front; None without padding.
    """

    path: str
    value: Any
    target: Sharding
    source: Sharding | None = None
    padding: Padding | None = None


Rebuild: TypeAlias = Callable[[Sequence[Any]], Any]  # from leaves of data to a tree of one structure


def _rebuilt(structure: Any, static: Mapping[int, Any], leaves: Sequence[Any]) -> Any:
    """A tree of leaves of data, and of those that are no data, such as functions, by number."""
    if static:
        data = iter(leaves)
        leaves = [static[k] if k in static else next(data) for k in range(structure.num_leaves)]
    return jax.tree.unflatten(structure, leaves)


def matched(
    tree: Any, shardings: Any, sources: Any = None, logical_shape: Any = None, mesh: Any = None
) -> tuple[list[Leaf], Rebuild]:
    """The leaves of a tree with their target shardings, and what builds such a tree of other leaves.

    Functions among the leaves are left out, and are in the tree that is built.

    Args:
        tree: any pytree.
        shardings: a tree of the same structure, a prefix of it, one sharding for all, or shardings by path; see
            `paths.spread_by_path`. A leaf of it is a `jax.sharding.Sharding`, a device, or a partition spec over `mesh`
            or over the mesh that `jax.set_mesh` has set.
        sources: the same, or None.
        mesh: of the partition specs, as JAX has it, or axes and sizes over the first devices.
        logical_shape: the same of shapes, or None: the shape of each leaf without padding. Then a leaf of `shardings`
            may be a `jax.ShapeDtypeStruct` with the shape of the result.

    Raises:
        LeafError: if the shardings, or the shapes, are no prefix of the tree, a leaf of `shardings` is no sharding, or
            a leaf of the tree is smaller than its logical shape.
    """
    if mesh is not None and not isinstance(mesh, Mesh | AbstractMesh):
        mesh = over_first_devices(Axes.of(mesh))
    values, structure = jax.tree.flatten(tree)
    targets = _spread(tree, structure, shardings)
    origins = [None] * len(values) if sources is None else _spread(tree, structure, sources)
    given = [None] * len(values) if logical_shape is None else _spread(tree, structure, logical_shape, is_shape)
    shapes = map(shape_of, given)
    result = []
    static = {k: value for k, value in enumerate(values) if is_static(value)}
    every = zip(_paths(tree, structure), values, targets, origins, shapes, strict=True)
    for k, (name, value, target, source, shape) in enumerate(every):
        if k in static:
            continue
        origin, size = None if source is None else sharding_of(name, source, mesh), None
        if isinstance(target, jax.ShapeDtypeStruct) and shape is not None:
            target, size = target.sharding, target.shape
        sharding = sharding_of(name, target, mesh)
        result.append(Leaf(name, value, sharding, origin, padding_of(name, value, shape, sharding, size)))
    return result, partial(_rebuilt, structure, static)


# The paths of the leaves of a tree, by its structure; building them takes longer than moving small leaves.
_PATHS: Cache[list[str]] = Cache(256)


def _paths(tree: Any, structure: Any) -> list[str]:
    return _PATHS.get(structure, lambda: [path_text(path) for path, _ in tree_flatten_with_path(tree)[0]])


def _is_sharding(value: Any) -> bool:
    return isinstance(value, Sharding | PartitionSpec | jax.Device) or value is None


# Shardings by patterns of paths, by the tree's structure, its functions and the patterns.
_PATTERNS: Cache[list[Any]] = Cache(256)


def _by_path(tree: Any, structure: Any, shardings: Any) -> list[Any]:
    if not isinstance(shardings, Mapping):
        return spread_by_path(tree, shardings)
    functions = tuple(k for k, leaf in enumerate(jax.tree.leaves(tree)) if is_static(leaf))
    key = (structure, functions, tuple(shardings.items()))
    return _PATTERNS.get(key, lambda: spread_by_path(tree, shardings))


def _spread(tree: Any, structure: Any, shardings: Any, is_leaf: Callable[[Any], bool] = _is_sharding) -> list[Any]:
    if is_leaf is _is_sharding and is_by_path(tree, shardings):
        return _by_path(tree, structure, shardings)
    flat, same = jax.tree.flatten(shardings, is_leaf=is_leaf)
    if same == structure:
        return list(flat)
    try:
        spread = jax.tree.broadcast(shardings, tree, is_leaf=is_leaf)
    except (ValueError, TypeError) as error:
        inside = through_boxes(tree, shardings, is_leaf)
        if inside is not None:
            return inside
        reason = str(error).splitlines()[0].rstrip(".")
        raise LeafError(
            "",
            f"the shardings do not match the tree: {reason}; give one sharding, a tree of them of the same structure, "
            "or a prefix of it",
        ) from None
    return list(structure.flatten_up_to(spread))


def sharding_of(path: str, value: Any, given_mesh: Any = None) -> Sharding:
    """The sharding that a leaf of `shardings` is; a partition spec is over a mesh, by default the one that is set.

    Raises:
        LeafError: if it is none.
    """
    if isinstance(value, Sharding):
        return value
    if isinstance(value, jax.Device):
        return SingleDeviceSharding(value)
    if isinstance(value, PartitionSpec):
        mesh = _context_mesh() if given_mesh is None else given_mesh
        if mesh is None:
            raise LeafError(
                path, f"{value} names axes of no mesh; give a NamedSharding, or mesh=, or call under jax.set_mesh"
            )
        axes = [axis for entry in spec_entries(value) for axis in (entry if isinstance(entry, tuple) else (entry,))]
        axes = [axis for axis in axes if isinstance(axis, str)]
        for axis in axes:
            if axis not in mesh.axis_names:
                names = ", ".join(map(repr, mesh.axis_names))
                raise LeafError(path, f"{value} names axis {axis!r}, and the mesh has {names}; give one of its axes")
            if axes.count(axis) > 1:
                raise LeafError(path, f"{value} has axis {axis!r} twice; an axis cuts one dimension, so drop one")
        try:
            return NamedSharding(mesh, value)
        except ValueError as error:  # JAX's own, for what axes of one kind alone can do
            free = [dim for dim, entry in enumerate(spec_entries(value)) if entry is PartitionSpec.UNCONSTRAINED]
            raise LeafError(path, str(SpecError("unconstrained spec", dim=free[0]) if free else error)) from None
    raise LeafError(path, f"{shown_leaf(value)} is no jax.sharding.Sharding; give a NamedSharding")


def _context_mesh() -> Any:
    abstract = jax.sharding.get_abstract_mesh()
    if abstract.empty:
        return None
    mesh = private.mesh_of_devices()  # inside a shard_map, and under use_abstract_mesh, it is not the one that counts
    return abstract if mesh is None or mesh.abstract_mesh != abstract else mesh


def on_devices(leaf: Leaf) -> Leaf:
    """A leaf with devices in its target, where that names none: those of the array, or of the mesh that has been set.

    As in `jax.sharding.reshard`, axes must be Explicit for it.
    """
    target = leaf.target
    if not isinstance(target, NamedSharding) or not isinstance(target.mesh, AbstractMesh):
        return leaf
    if any(kind != AxisType.Explicit for kind in target.mesh.axis_types):
        return leaf
    current = getattr(leaf.value, "sharding", None)
    mesh = current.mesh if isinstance(current, NamedSharding) else private.mesh_of_devices()
    if not isinstance(mesh, Mesh) or mesh.size != target.mesh.size:
        return leaf
    devices = mesh.devices.reshape(target.mesh.axis_sizes)
    concrete = Mesh(devices, target.mesh.axis_names, axis_types=target.mesh.axis_types)
    return replace(leaf, target=NamedSharding(concrete, target.spec, memory_kind=target.memory_kind))


def present(leaf: Leaf) -> Leaf:
    """A leaf whose values other processes have, described by a `jax.ShapeDtypeStruct`, as an array of this process."""
    value: Any = leaf.value
    sharding = getattr(value, "sharding", None)
    abstract = isinstance(getattr(sharding, "mesh", None), AbstractMesh)
    if not isinstance(value, jax.ShapeDtypeStruct) or sharding is None or abstract:
        return leaf
    if any(device.process_index == jax.process_index() for device in sharding.device_set):
        return leaf
    return replace(leaf, value=without_shards(value.shape, value.dtype, sharding))
