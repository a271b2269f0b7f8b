"""What is done with a leaf: it is kept, moved by a plan, made anew, or handed to `jax.device_put`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from jax.sharding import NamedSharding, Sharding

from redistrib.arith import prime_factors
from redistrib.errors import PlacementError, SpecError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.types import DistType, from_named_sharding, require_whole
from redistrib.theory.placement import Placement, placement_of, type_of

Action: TypeAlias = Literal["keep", "move", "empty", "via_device_put"]


@dataclass(frozen=True)
class SourceTarget:
    """Source and target of a leaf as types, over devices numbered by their place in the source's mesh.

    Attributes:
        source, target: types of one global shape.
        source_mesh, target_mesh: their meshes; the target's has its own device order.
    """

    source: DistType
    source_mesh: Mesh
    target: DistType
    target_mesh: Mesh


@dataclass(frozen=True)
class LeafRoute:
    """What is to be done with a leaf.

    Attributes:
        action: `"keep"`: every device holds its target tile already; `"move"`: by a plan; `"empty"`: no elements;
            `"via_device_put"`: by `jax.device_put`.
        ends: what a plan is made for; None unless the action is "move".
        devices: in the order of their numbers; empty unless the action is "move".
    """

    action: Action
    ends: SourceTarget | None = None
    devices: tuple[Any, ...] = ()


def route(shape: tuple[int, ...], source: Sharding | None, target: Sharding) -> LeafRoute:
    """What is done with an array of global `shape`; `source` is None for a value that is no `jax.Array`.

    Raises:
        RedistribError: a sharding that no type says, or that does not divide the shape.
        ValueError: JAX's own, for a target that cannot hold the shape.
    """
    for side in (source, target):
        if isinstance(side, NamedSharding):  # refuses what cannot hold the shape
            require_whole("reshard", from_named_sharding(side, shape)[0])
    if not isinstance(target, NamedSharding):
        target.shard_shape(shape)
    if source is None or source.device_set != target.device_set or _memory(source) != _memory(target):
        return LeafRoute("via_device_put")
    if 0 in shape:
        return LeafRoute("empty")
    if source == target or source.is_equivalent_to(target, len(shape)):
        return LeafRoute("keep")
    source_type, source_mesh, devices = typed(source, shape)
    target_type, target_mesh, order = typed(target, shape)
    number = {device: k for k, device in enumerate(devices)}
    target_mesh = Mesh(target_mesh.axes, tuple(number[device] for device in order))
    if placement_of(source_type, source_mesh) == placement_of(target_type, target_mesh):
        return LeafRoute("keep")
    return LeafRoute("move", SourceTarget(source_type, source_mesh, target_type, target_mesh), devices)


def typed(sharding: Any, shape: tuple[int, ...]) -> tuple[DistType, Mesh, tuple[Any, ...]]:
    """The type, the mesh, and the devices in mesh order of an array of global `shape`.

    A sharding without a mesh is read on a mesh of axes of prime size.

    Raises:
        SpecError: if no type says what the sharding does.
        SpecError: if a partition spec has no meaning as a type.
    """
    if isinstance(sharding, NamedSharding):
        dist_type, mesh = from_named_sharding(sharding, shape)
        return dist_type, mesh, tuple(sharding.mesh.devices.flat)
    boxes = sharding.devices_indices_map(shape)
    mesh = Mesh(tuple(Axis(f"d{k}", prime) for k, prime in enumerate(prime_factors(len(boxes)))))
    tile = sharding.shard_shape(shape)
    starts = [[part.indices(size)[0] for part, size in zip(box, shape, strict=True)] for box in boxes.values()]
    index = np.array(starts, dtype=np.int64).reshape(len(boxes), len(shape)) // np.array(tile, dtype=np.int64)
    try:
        placement = Placement(shape, tuple(size // part for size, part in zip(shape, tile, strict=True)), index)
        found = type_of(placement, mesh)
    except PlacementError:
        found = None
    if found is None:
        raise SpecError("sharding form", value=sharding)
    return found, mesh, tuple(boxes)


def _memory(sharding: Sharding) -> str:
    kind = sharding.memory_kind
    if kind is None:
        device: Any = next(iter(sharding.device_set))
        kind = device.default_memory().kind
    return str(kind)
