"""The action for a leaf: keep it, move it by a plan, create it empty, or pass it to `jax.device_put`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax
from jax.sharding import NamedSharding, Sharding

from redistrib.arith import prime_factors
from redistrib.backends.jax.memory_kinds import in_default, other_kind
from redistrib.errors import MeshDevicesError, PlacementError, SpecError
from redistrib.lang.mesh import Axis, Mesh
from redistrib.lang.specs import from_named_sharding
from redistrib.lang.types import DistType
from redistrib.resharding.padding import Padding, padded_types
from redistrib.theory.boxes import boxes_of
from redistrib.theory.inverse import type_of
from redistrib.theory.placement import placement_of, placement_of_tiles
from redistrib.theory.topology import Topology

Action: TypeAlias = Literal["keep", "move", "empty", "via_device_put", "elsewhere", "copy"]
MemoryKinds: TypeAlias = tuple[str | None, str | None]


@dataclass(frozen=True)
class SourceTarget:
    """Source and target of a leaf as types, over numbered devices.

    Attributes:
        source, target: types of one global shape; of one element for a scalar between processes.
        source_mesh, target_mesh: their meshes. Devices are numbered by their position in the source's mesh, or by their
            ids if the target has other devices.
        topology: hosts and links of the devices; None if unknown.
    """

    source: DistType
    source_mesh: Mesh
    target: DistType
    target_mesh: Mesh
    topology: Topology | None = None


@dataclass(frozen=True)
class LeafRoute:
    """The action for a leaf, with source and target of its plan.

    Attributes:
        action: `"keep"`: every device holds its target tile already; `"move"`: by a plan, within the default memory of
            devices; `"empty"`: no elements; `"via_device_put"`: by `jax.device_put`; `"elsewhere"`: between devices of
            other processes only; `"copy"`: by copies in the memory of this process.
        ends: source and target of the plan; None unless the action is "move".
        devices: in the order of their numbers; empty unless the action is "move".
        kinds: the kinds of memory of source and target; None for the default kind of their devices.
    """

    action: Action
    ends: SourceTarget | None = None
    devices: tuple[Any, ...] = ()
    kinds: MemoryKinds = (None, None)


def route(
    shape: tuple[int, ...], source: Sharding | None, target: Sharding, padding: Padding | None = None
) -> LeafRoute:
    """The action for an array of global `shape`; `source` is None for a value that is no `jax.Array`.

    Args:
        shape: global shape, in elements; the shape of the source if source and target differ.
        source, target: shardings before and after.
        padding: shapes of source and target, of which the array fills the front; None without padding.

    Raises:
        RedistribError: for a sharding that no type describes or that does not divide the shape, and for devices of
            other kinds of several processes.
        ValueError: JAX's own, for a target that does not fit the shape.
    """
    kinds = other_kind(source), other_kind(target)
    found = _in_default_memory(shape, source and in_default(source), in_default(target), padding)
    if found.action == "keep" and kinds[0] != kinds[1]:
        return LeafRoute("via_device_put", kinds=kinds)
    return replace(found, kinds=kinds)


def _in_default_memory(
    shape: tuple[int, ...], source: Sharding | None, target: Sharding, padding: Padding | None
) -> LeafRoute:
    """The action where both ends are in the default memory of their devices."""
    if padding is not None and source is not None:
        return _padded(shape, source, target, padding)
    partial = [
        dist_type
        for side in (source, target)
        if isinstance(side, NamedSharding)  # refuses shardings that do not divide the shape
        for dist_type in [from_named_sharding(side, shape)[0]]
        if dist_type.partial
    ]
    if not isinstance(target, NamedSharding):
        target.shard_shape(shape)
    if partial and (source is None or source.device_set != target.device_set):
        raise SpecError("unreduced put", dist_type=str(partial[0]))
    if source is None:
        return LeafRoute("via_device_put")
    if source.device_set != target.device_set:
        return _to_others(shape, source, target)
    if 0 in shape:
        return LeafRoute("empty")
    if source == target or source.is_equivalent_to(target, len(shape)):
        return LeafRoute("keep")
    return _moved(shape, source, target)


def is_of_strings(value: Any) -> bool:
    """Whether a value has strings, of which JAX has arrays and no operation but `jax.device_put`."""
    return getattr(getattr(value, "dtype", None), "kind", None) == "T"


def is_elsewhere(source: Sharding | None, target: Sharding) -> bool:
    """Whether neither side has a device of this process."""
    if source is None or jax.process_count() == 1:
        return False
    devices: set[Any] = source.device_set | target.device_set
    return all(device.process_index != jax.process_index() for device in devices)


def _padded(shape: tuple[int, ...], source: Sharding, target: Sharding, padding: Padding) -> LeafRoute:
    """The action for an array with padding at either end: it is moved, so that all padding is zero."""
    kinds = [_kinds(side) for side in (source, target)]
    if len({*kinds[0], *kinds[1]}) > 1:
        raise MeshDevicesError("padded array", source=", ".join(kinds[0]), target=", ".join(kinds[1]))
    return _moved(shape, source, target, padding)


def _moved(shape: tuple[int, ...], source: Sharding, target: Sharding, padding: Padding | None = None) -> LeafRoute:
    source_type, source_mesh, devices = typed(source, shape)
    target_type, target_mesh, order = typed(target, shape if padding is None else padding.target)
    source_type, target_type = padded_types(source_type, target_type, padding)
    if source.device_set != target.device_set:  # then by id, as hosts are
        devices, of_source = tuple(sorted({*devices, *order}, key=lambda device: int(device.id))), devices
        source_mesh = _over(source_mesh, of_source, devices)
    topology = Topology.of_devices(devices)
    ends = SourceTarget(source_type, source_mesh, target_type, _over(target_mesh, order, devices), topology)
    if padding is None and placement_of(ends.source, ends.source_mesh) == placement_of(ends.target, ends.target_mesh):
        return LeafRoute("keep")
    return LeafRoute("move", ends, devices)


def _over(mesh: Mesh, order: Sequence[Any], devices: Sequence[Any]) -> Mesh:
    """A mesh of devices in row-major order, numbered by their position in another sequence."""
    number = {device: k for k, device in enumerate(devices)}
    return Mesh(mesh.axes, tuple(number[device] for device in order))


def _to_others(shape: tuple[int, ...], source: Sharding, target: Sharding) -> LeafRoute:
    """The action for an array whose target has other devices, the same in every process.

    In one process `jax.device_put` copies buffer by buffer where tiles stay the same.
    """
    sides: list[set[Any]] = [source.device_set, target.device_set]
    kinds = [_kinds(side) for side in (source, target)]
    one_kind = len({*kinds[0], *kinds[1]}) == 1
    if len({device.process_index for devices in sides for device in devices}) > 1:
        if not one_kind:
            raise MeshDevicesError("between processes", source=", ".join(kinds[0]), target=", ".join(kinds[1]))
        if 0 in shape:
            return LeafRoute("empty")
        return _moved(shape or (1,), source, target)
    if not one_kind or not shape or 0 in shape:
        return LeafRoute("via_device_put")
    try:
        move = _moved(shape, source, target)
    except SpecError:  # a sharding that no type says
        return LeafRoute("via_device_put")
    same = move.ends is not None and move.ends.source.local_shape == move.ends.target.local_shape
    return LeafRoute("via_device_put") if same else move


def _kinds(sharding: Sharding) -> list[str]:
    """The kinds of devices of a sharding."""
    devices: set[Any] = sharding.device_set
    return sorted({f"{device.platform} ({device.device_kind})" for device in devices})


def typed(sharding: Any, shape: tuple[int, ...]) -> tuple[DistType, Mesh, tuple[Any, ...]]:
    """The type, the mesh, and the devices in mesh order of an array of global `shape`.

    A sharding without a mesh is read as a sharding of a mesh with axes of prime size.

    Raises:
        SpecError: if no type describes the sharding, or a partition spec has no meaning as a type.
    """
    if isinstance(sharding, NamedSharding):
        dist_type, mesh = from_named_sharding(sharding, shape)
        return dist_type, mesh, tuple(sharding.mesh.devices.flat)
    boxes = boxes_of(sharding, shape)
    mesh = Mesh(tuple(Axis(f"d{k}", prime) for k, prime in enumerate(prime_factors(len(boxes)))))
    try:
        meaning = type_of(placement_of_tiles(shape, list(boxes.values())), mesh)
    except PlacementError:
        meaning = None
    if meaning is None:
        raise SpecError("sharding form", value=sharding)
    return meaning, mesh, tuple(boxes)
