"""`reshard` inside `jit` and under differentiation: leaves are traced, and say where they are only on Explicit axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax import memory_copies, memory_kinds, private
from redistrib.backends.jax.context import Platform
from redistrib.backends.jax.cross_mesh import CrossMeshRedistribution, emptied
from redistrib.backends.jax.execute import to_jax
from redistrib.backends.jax.sharding import check_names, constrained, partition_spec, with_auto_axes
from redistrib.errors import RedistribError, SpecError, TracedError
from redistrib.errors.backends import traced_order_error
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_named_sharding, spec_entries
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.resharding.actions import SourceTarget
from redistrib.resharding.checks import HostValue, check_host_value, placing
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.padding import Padding, padded_types
from redistrib.resharding.planning import Planner
from redistrib.theory.topology import topology_of_mesh


def is_traced(value: Any) -> bool:
    """Whether a leaf is a tracer."""
    return isinstance(value, jax.core.Tracer)


def staged(leaf: Leaf) -> Leaf:
    """A leaf that is not traced, as a constant of the traced function, whole on every device."""
    target, value = leaf.target, leaf.value
    if is_traced(value) or not isinstance(target, NamedSharding):
        return leaf
    on_host = isinstance(value, HostValue)
    if not on_host and (not isinstance(value, jax.Array) or isinstance(value.sharding, NamedSharding)):
        return leaf
    if not is_traced(jnp.zeros((), bool)):  # nothing is traced
        return leaf
    if on_host:
        check_host_value(leaf.path, value)
    return replace(leaf, value=jnp.array(value, copy=True), source=_everywhere(target))


def _everywhere(target: NamedSharding) -> NamedSharding:
    return NamedSharding(target.mesh, PartitionSpec())


def moved(leaf: Leaf, planner: Planner, memory_limit: int | None) -> jax.Array:
    """A traced leaf on its target.

    Raises:
        LeafError: with the leaf's path, and the message of the error behind it.
    """
    with placing(leaf):
        memory_copies.check_traced(leaf.value, leaf.target)
        inner = replace(leaf, value=memory_copies.loaded(leaf.value), target=memory_kinds.in_default(leaf.target))
        try:
            result = _moved(inner, planner, memory_limit)
        except ValueError as error:  # JAX takes all axes for arrays without a batch
            spec = getattr(leaf.target, "spec", PartitionSpec())
            taken = private.batch_axes() & frozenset(_names(spec))
            if isinstance(error, RedistribError) or not taken:
                raise
            raise TracedError("batch axis", axes=tuple(sorted(taken)), spec=str(spec)) from None
        if leaf.value.aval.weak_type and not result.aval.weak_type:
            result = private.weakly_typed(result)
        return memory_copies.stored(result, leaf.target)


def _moved(leaf: Leaf, planner: Planner, memory_limit: int | None) -> jax.Array:
    target, array = leaf.target, leaf.value
    if not isinstance(target, NamedSharding):
        raise SpecError("sharding form", value=target)
    check_names(target.mesh)
    if manual := _manual_axes(array):
        return _beside(TracedError("manual reshard", axes=manual), array, target, leaf.padding, memory_limit)
    batch = private.batch_axes(explicit=True)
    if batch and not _mesh_around(array).empty:
        if taken := batch & frozenset(_names(target.spec)):
            raise TracedError("batch axis", axes=tuple(sorted(taken)), spec=str(target.spec))
        error = TracedError("batched reshard", axes=tuple(sorted(batch)))
        return _beside(error, array, target, leaf.padding, memory_limit)
    if AxisType.Auto not in target.mesh.axis_types and _is_on_no_mesh(array):
        if isinstance(target.mesh, jax.sharding.Mesh) and leaf.padding is None and not target.spec.unreduced:
            put: jax.Array = jax.device_put(array, target)  # unlike a plan, it needs no mesh that has been set
            return put
        source: Any = _everywhere(target)
    else:
        source = leaf.source if leaf.source is not None else known_source(array)
    if not isinstance(source, NamedSharding):
        raise SpecError("sharding form", value=source)
    check_names(source.mesh)
    _check_order(source.mesh, target.mesh)
    target_type = _ends(array, source, target, leaf.padding)[1][0]
    if getattr(target.spec, "reduced", None):  # JAX's own mark, which JAX puts on at no cost
        bare = NamedSharding(target.mesh, partition_spec(target_type))
        return constrained(_bare(array, source, bare, leaf.padding, planner, memory_limit), target.mesh, target.spec)
    return _bare(array, source, target, leaf.padding, planner, memory_limit)


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


def _names(spec: PartitionSpec) -> list[str]:
    """The axes that cut a dimension."""
    entries = [entry for entry in spec_entries(spec) if entry is not None and entry is not PartitionSpec.UNCONSTRAINED]
    return [name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)]


def _beside(
    error: TracedError, tile: jax.Array, target: NamedSharding, padding: Padding | None, memory_limit: int | None
) -> jax.Array:
    """A tile along some axes, or a part of a batch that is cut along them, moved along the other axes by JAX.

    Programs of plans run under a separate `shard_map` without the check of varying values. Inside one with that check,
    their results would no longer be known to vary. In a batch, collectives over all axes of the mesh have no meaning.

    Raises:
        TracedError: the given error, where JAX refuses.
    """
    mesh = _mesh_around(tile)
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    explicit = all(kinds.get(name) == AxisType.Explicit for name in _names(target.spec))
    summands = [*jax.typeof(tile).sharding.spec.unreduced, *target.spec.unreduced]
    if not _same_mesh(target.mesh, mesh) or not explicit or summands or memory_limit is not None or padding is not None:
        raise error
    result: jax.Array = jax.sharding.reshard(tile, target)
    return result


def _ends(
    array: jax.Array, source: NamedSharding, target: NamedSharding, padding: Padding | None
) -> tuple[tuple[DistType, Mesh], tuple[DistType, Mesh]]:
    """Types and meshes of a traced array before and after."""
    source_type, source_mesh = from_named_sharding(source, array.shape)
    target_type, target_mesh = from_named_sharding(target, array.shape if padding is None else padding.target)
    source_type, target_type = padded_types(source_type, target_type, padding)
    return (source_type, source_mesh), (target_type, target_mesh)


def _bare(
    array: jax.Array,
    source: NamedSharding,
    target: NamedSharding,
    padding: Padding | None,
    planner: Planner,
    memory_limit: int | None,
) -> jax.Array:
    """The same, on a target without reduced axes."""
    (source_type, source_mesh), (target_type, target_mesh) = _ends(array, source, target, padding)
    reduced = frozenset(getattr(source.spec, "reduced", None) or ())
    if 0 in array.shape:
        if reduced:
            source = NamedSharding(source.mesh, partition_spec(source_type))
            array = constrained(array, source.mesh, source.spec)
        return emptied(array, source, target)
    topology = topology_of_mesh(source.mesh) or topology_of_mesh(target.mesh)
    problem = SourceTarget(source_type, source_mesh, target_type, target_mesh, topology)
    # The cotangent of summands is the same for each of them; that of a reduced array is made of summands.
    before = DistType(source_type.dims, tuple(sorted(reduced)), "sum" if reduced else None)
    back = SourceTarget(DistType(target_type.dims), target_mesh, before, source_mesh, topology)
    platform, dtype = Platform.of(target.mesh).name, str(array.dtype)
    plan = planner.plan(problem, dtype, platform, memory_limit)

    def reverse() -> Plan:
        return planner.plan(back, dtype, platform, memory_limit)

    if source_type.partial and AxisType.Explicit not in jax.typeof(array).sharding.mesh.axis_types:
        return CrossMeshRedistribution(plan, with_auto_axes(source.mesh), target.mesh, reverse)(array)
    if not reduced and _same_mesh(source.mesh, target.mesh) and isinstance(target.mesh, jax.sharding.Mesh):
        result: jax.Array = to_jax(plan, target.mesh, reverse=reverse)(array)
        return result
    return CrossMeshRedistribution(plan, source.mesh, target.mesh, reverse, reduced)(array)


def known_source(array: Any) -> Any:
    """The sharding of a traced array, where it is known for certain.

    Outside `jit`, a differentiated array has its value inside, with its sharding. Under `jit` the type has it on
    Explicit axes, and nothing has it on Auto axes.

    Raises:
        TracedError: if it is unknown.
    """
    value = private.value_inside(array)
    if not isinstance(value, jax.core.Tracer):
        return value.sharding
    sharding = jax.typeof(array).sharding
    if sharding.mesh.empty or AxisType.Explicit not in sharding.mesh.axis_types:
        raise TracedError("unknown source")
    return sharding


def _check_order(source: Any, target: Any) -> None:
    """Refuse several device orders under one `jit`; an abstract mesh has any order."""
    if isinstance(source, jax.sharding.Mesh) and isinstance(target, jax.sharding.Mesh):
        orders = [[device.id for device in mesh.devices.flat] for mesh in (source, target)]
        if orders[0] != orders[1]:
            raise traced_order_error(*orders)
    elif Mesh.of(source).size != Mesh.of(target).size:
        raise traced_order_error(list(range(Mesh.of(source).size)), list(range(Mesh.of(target).size)))


def _same_mesh(source: Any, target: Any) -> bool:
    def parts(mesh: Any) -> Any:
        return mesh.axis_names, Mesh.of(mesh).shape, mesh.axis_types

    return bool(parts(source) == parts(target))
