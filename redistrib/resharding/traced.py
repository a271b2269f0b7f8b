"""`reshard` inside `jit` and under differentiation: leaves are traced, and say where they are only on Explicit axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax import memory_copies, memory_kinds, private
from redistrib.backends.jax.contexts import own_context
from redistrib.backends.jax.primitive import bind, names_in
from redistrib.backends.jax.sharding import check_names, constrained
from redistrib.errors import SpecError, TracedError
from redistrib.errors.backends import traced_order_error
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_named_sharding
from redistrib.resharding.checks import HostValue, check_host_value, placing
from redistrib.resharding.known_sources import known_source
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.outside_move import OutsideMove
from redistrib.resharding.padding import Padding
from redistrib.resharding.planning import Planner
from redistrib.resharding.traced_move import TracedMove, is_same_mesh


def is_traced(value: Any) -> bool:
    """Whether a leaf is a tracer."""
    return isinstance(value, jax.core.Tracer)


def as_constant(leaf: Leaf) -> Leaf:
    """A leaf that is not traced, as a constant of the traced function, whole on every device."""
    target, value = leaf.target, leaf.value
    if is_traced(value) or not isinstance(target, NamedSharding):
        return leaf
    on_host = isinstance(value, HostValue)
    if not on_host and (not isinstance(value, jax.Array) or isinstance(value.sharding, NamedSharding)):
        return leaf
    if not _is_in_traced_function():
        return leaf
    if on_host:
        check_host_value(leaf.path, value)
    return replace(leaf, value=_constant(value), source=_everywhere(target))


def _is_in_traced_function() -> bool:
    """Whether what runs now becomes a part of a function; derivatives outside `jit` compute at once."""
    if private.is_outside():
        return False
    with own_context(), jax.transfer_guard("allow"):
        return is_traced(jnp.zeros((), bool))


def held(arrays: list[Any], targets: Iterable[Sharding]) -> list[Any]:
    """Moved arrays, as constants of the traced function if there is one, which else forgets their shardings.

    Raises:
        TracedError: if the function is compiled for other devices.
    """
    if not _is_in_traced_function():
        return arrays
    # JAX finds the devices of a function without arguments in `device_put`.
    return [
        constrained(jax.device_put(array, target), target.mesh, target.spec)
        if isinstance(target, NamedSharding) and memory_kinds.other_kind(target) is None and not target.spec.unreduced
        else array
        for array, target in zip(arrays, targets, strict=True)
    ]


def _constant(value: Any) -> Any:
    """A value as a constant of the traced function; JAX does not copy keys."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_constant(jax.random.key_data(value)), impl=jax.random.key_impl(value))
    return jnp.array(value, copy=True)


def _everywhere(target: NamedSharding) -> NamedSharding:
    return NamedSharding(target.mesh, PartitionSpec())


def moved(leaf: Leaf, planner: Planner, plan_limit: int | None) -> jax.Array:
    """A traced leaf on its target.

    Raises:
        LeafError: with the leaf's path, and the message of the error behind it.
    """
    with placing(leaf):
        memory_copies.check_traced(leaf.value, leaf.target)
        inner = replace(leaf, value=memory_copies.loaded(leaf.value), target=memory_kinds.in_default(leaf.target))
        result = _moved(inner, planner, plan_limit)
        if leaf.value.aval.weak_type and not result.aval.weak_type:
            result = private.weakly_typed(result)
        return memory_copies.stored(result, leaf.target)


def _moved(leaf: Leaf, planner: Planner, plan_limit: int | None) -> jax.Array:
    target, array = leaf.target, leaf.value
    value = private.value_inside(array)
    if not is_traced(value) and leaf.padding is None and not _is_on_one_mesh(value.sharding, target):
        return bind(array, OutsideMove(value.sharding, target, planner, plan_limit))
    if not isinstance(target, NamedSharding):
        raise SpecError("sharding form", value=target)
    check_names(target.mesh)
    if manual := _manual_axes(array):
        return _beside(manual, array, target, leaf.padding, plan_limit)
    # Refuses what does not fit, before JAX asserts that it does.
    from_named_sharding(target, leaf.padding.target if leaf.padding else array.shape)
    if AxisType.Auto not in target.mesh.axis_types and _is_on_no_mesh(array):
        if isinstance(target.mesh, jax.sharding.Mesh) and leaf.padding is None and not target.spec.unreduced:
            put: jax.Array = jax.device_put(array, target)  # unlike a plan, it needs no mesh that has been set
            return put
        source: Any = _everywhere(target)
    else:
        source = leaf.source if leaf.source is not None else known_source(array, target)
        if source is None:
            return _left_to_xla(leaf, target, plan_limit)
    if not isinstance(source, NamedSharding):
        raise SpecError("sharding form", value=source)
    check_names(source.mesh)
    _check_order(source.mesh, target.mesh)
    return bind(array, TracedMove(source, target, leaf.padding, planner, plan_limit))


def _left_to_xla(leaf: Leaf, target: NamedSharding, plan_limit: int | None) -> jax.Array:
    """A traced leaf on its target, moved by XLA, which alone knows in the end where the leaf lies.

    Raises:
        SpecError, TypeFormError: for a sharding that no type describes.
        TracedError: for what only a plan can do.
    """
    wants = {
        "memory_limit=": plan_limit is not None,
        "logical_shape=": leaf.padding is not None,
        "a target with unreduced axes": bool(target.spec.unreduced),
    }
    if wanted := [name for name, is_wanted in wants.items() if is_wanted]:
        raise TracedError("unknown source", wanted=" and ".join(wanted))
    return constrained(leaf.value, target.mesh, target.spec)


def _is_on_no_mesh(array: jax.Array) -> bool:
    """Whether a traced array is whole on every device, by its type among Explicit axes."""
    return is_traced(private.value_inside(array)) and bool(jax.typeof(array).sharding.mesh.empty)


def _mesh_around(array: jax.Array) -> Any:
    """The abstract mesh of a traced array; of a constant, the current mesh."""
    mesh = jax.typeof(array).sharding.mesh
    return jax.sharding.get_abstract_mesh() if mesh.empty else mesh


def _manual_axes(array: jax.Array) -> tuple[str, ...]:
    mesh = _mesh_around(array)
    kinds = () if mesh.empty else zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(name for name, kind in kinds if kind == AxisType.Manual)


def _beside(
    manual: tuple[str, ...], tile: jax.Array, target: NamedSharding, padding: Padding | None, plan_limit: int | None
) -> jax.Array:
    """A tile along some axes, moved along the other axes by JAX.

    Programs of plans run under a separate `shard_map` without the check of varying values. Inside one with that check,
    their results would no longer be known to vary.

    Raises:
        TracedError: where JAX refuses.
    """
    mesh = _mesh_around(tile)
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    explicit = all(kinds.get(name) == AxisType.Explicit for name in names_in(target.spec))
    sums = [*jax.typeof(tile).sharding.spec.unreduced, *target.spec.unreduced]
    if not is_same_mesh(target.mesh, mesh) or not explicit or sums or plan_limit is not None or padding is not None:
        raise TracedError("manual reshard", axes=manual)
    result: jax.Array = jax.sharding.reshard(tile, target)
    return result


def _is_on_one_mesh(source: Sharding, target: Sharding) -> bool:
    """Whether two shardings are of meshes of the same devices in the same order."""
    meshes = [side.mesh for side in (source, target) if isinstance(side, NamedSharding)]
    return len(meshes) == 2 and (
        isinstance(meshes[1], AbstractMesh) or list(meshes[0].devices.flat) == list(meshes[1].devices.flat)
    )


def _check_order(source: Any, target: Any) -> None:
    """Refuse several device orders under one `jit`; an abstract mesh has any order."""
    if isinstance(source, jax.sharding.Mesh) and isinstance(target, jax.sharding.Mesh):
        orders = [[device.id for device in mesh.devices.flat] for mesh in (source, target)]
        if orders[0] != orders[1]:
            raise traced_order_error(*orders)
    elif Mesh.of(source).size != Mesh.of(target).size:
        raise traced_order_error(list(range(Mesh.of(source).size)), list(range(Mesh.of(target).size)))
