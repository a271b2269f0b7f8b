"""Virtual devices for an `AbstractMesh`, which names none: to plan and compile for, never to run on."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from redistrib.backends.jax import private
from redistrib.errors import MeshError
from redistrib.lang.mesh import Mesh

MOST_DEVICES = 2048  # XLA's client counts the 2,049th as a device of a second process


def over_virtual_devices(tree: Any, *others: Any) -> tuple[Any, ...]:
    """Trees with virtual CPU devices in all shardings over an `AbstractMesh`.

    Device `k` of every mesh, in row-major order, is the same device. The trees are unchanged if JAX has no virtual
    devices, or if no leaf of the first is a `jax.ShapeDtypeStruct` over an `AbstractMesh`.

    Args:
        tree: of arrays and `jax.ShapeDtypeStruct`s.
        others: trees with shardings and meshes among their leaves; an `rd.Mesh` counts as an `AbstractMesh`.

    Raises:
        MeshError: if a mesh has more devices than XLA's client of CPU devices.
    """
    trees = (tree, *others)
    if all(_abstract(leaf) is None for leaf in jax.tree.leaves(tree)):
        return trees
    meshes = [mesh for leaf in jax.tree.leaves(trees) if (mesh := _abstract(leaf)) is not None]
    largest = max(meshes, key=lambda mesh: int(mesh.size))
    size = largest.size
    if size > MOST_DEVICES:
        name = str(Mesh.of(largest))
        raise MeshError("mesh size", mesh=name, size=size, subject="devices to compile for", most=MOST_DEVICES)
    devices = private.virtual_devices(size)
    if devices is None:
        return trees
    everyone = np.array(devices)

    def concrete(mesh: AbstractMesh) -> jax.sharding.Mesh:
        first = everyone[: mesh.size].reshape(mesh.axis_sizes)
        return jax.sharding.Mesh(first, mesh.axis_names, axis_types=mesh.axis_types)

    def placed(leaf: Any) -> Any:
        mesh = _abstract(leaf)
        if mesh is None:
            return leaf
        if isinstance(leaf, AbstractMesh | Mesh):
            return concrete(mesh)
        sharding = leaf if isinstance(leaf, NamedSharding) else leaf.sharding
        placed = NamedSharding(concrete(mesh), sharding.spec, memory_kind=sharding.memory_kind)
        return placed if sharding is leaf else leaf.update(sharding=placed)

    return tuple(jax.tree.map(placed, trees))


def is_virtual(device: jax.Device) -> bool:
    """Whether a device is none of those that JAX has."""
    try:
        return device not in jax.devices(device.platform)
    except RuntimeError:  # JAX has none of that platform
        return True


def virtual_mesh(mesh: Mesh) -> jax.sharding.Mesh | None:
    """A mesh over virtual CPU devices, with Auto axes; None if JAX has none.

    Raises:
        MeshError: if it has more devices than XLA's client of CPU devices.
    """
    form = jax.ShapeDtypeStruct((), bool, sharding=NamedSharding(AbstractMesh(mesh.shape, mesh.names), PartitionSpec()))
    (placed,) = over_virtual_devices(form)
    return placed.sharding.mesh if isinstance(placed.sharding.mesh, jax.sharding.Mesh) else None


def _abstract(leaf: Any) -> AbstractMesh | None:
    """The `AbstractMesh` that a leaf is, or is placed over; None if there is none."""
    if isinstance(leaf, Mesh):
        return AbstractMesh(leaf.shape, leaf.names)
    if not isinstance(leaf, AbstractMesh | NamedSharding | jax.ShapeDtypeStruct):
        return None
    mesh = leaf if isinstance(leaf, AbstractMesh) else getattr(getattr(leaf, "sharding", leaf), "mesh", None)
    return mesh if isinstance(mesh, AbstractMesh) else None
