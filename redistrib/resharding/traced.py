"""`reshard` inside `jit` and under differentiation: leaves are traced, and say where they are only on Explicit axes."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding

from redistrib.backends.jax import private
from redistrib.backends.jax.context import Platform
from redistrib.backends.jax.cross_mesh import CrossMeshRedistribution, emptied
from redistrib.backends.jax.execute import to_jax
from redistrib.backends.jax.sharding import check_names, constrained, partition_spec, with_auto_axes
from redistrib.errors import SpecError, TracedError
from redistrib.errors.backends import traced_order_error
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_named_sharding
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.resharding.actions import SourceTarget
from redistrib.resharding.checks import placing
from redistrib.resharding.leaves import Leaf
from redistrib.resharding.padding import Padding, padded_types
from redistrib.resharding.planning import Planner
from redistrib.theory.topology import topology_of_mesh


def is_traced(value: Any) -> bool:
    """Whether a leaf is a tracer."""
    return isinstance(value, jax.core.Tracer)


def moved(leaf: Leaf, planner: Planner, memory_limit: int | None) -> jax.Array:
    """A traced leaf on its target.

    Raises:
        LeafError: naming the leaf's path, from the error that says what is wrong.
    """
    with placing(leaf):
        result = _moved(leaf, planner, memory_limit)
        if leaf.value.aval.weak_type and not result.aval.weak_type:
            result = private.weakly_typed(result)
        return result


def _moved(leaf: Leaf, planner: Planner, memory_limit: int | None) -> jax.Array:
    target, array = leaf.target, leaf.value
    if not isinstance(target, NamedSharding):
        raise SpecError("sharding form", value=target)
    source = leaf.source if leaf.source is not None else known_source(array)
    if not isinstance(source, NamedSharding):
        raise SpecError("sharding form", value=source)
    for side in (source, target):
        check_names(side.mesh)
    _check_order(source.mesh, target.mesh)
    source_type, target_type = (end for end, _ in _ends(array, source, target, leaf.padding))
    if getattr(source.spec, "reduced", None):  # JAX's own mark is taken off and put on by JAX, at no cost
        source = NamedSharding(source.mesh, partition_spec(source_type))
        array = constrained(array, source.mesh, source.spec)
    if getattr(target.spec, "reduced", None):
        bare = NamedSharding(target.mesh, partition_spec(target_type))
        return constrained(_bare(array, source, bare, leaf.padding, planner, memory_limit), target.mesh, target.spec)
    return _bare(array, source, target, leaf.padding, planner, memory_limit)


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
    """The same, of shardings without reduced axes."""
    (source_type, source_mesh), (target_type, target_mesh) = _ends(array, source, target, padding)
    if 0 in array.shape:
        return emptied(array, source, target)
    topology = topology_of_mesh(source.mesh) or topology_of_mesh(target.mesh)
    there = SourceTarget(source_type, source_mesh, target_type, target_mesh, topology)
    back = SourceTarget(DistType(target_type.dims), target_mesh, DistType(source_type.dims), source_mesh, topology)
    platform, dtype = Platform.of(target.mesh).name, str(array.dtype)
    plan = planner.plan(there, dtype, platform, memory_limit)

    def reverse() -> Plan:
        return planner.plan(back, dtype, platform, memory_limit)

    if source_type.partial and AxisType.Explicit not in jax.typeof(array).sharding.mesh.axis_types:
        return CrossMeshRedistribution(plan, with_auto_axes(source.mesh), target.mesh, reverse)(array)
    if _same_mesh(source.mesh, target.mesh) and isinstance(target.mesh, jax.sharding.Mesh):
        result: jax.Array = to_jax(plan, target.mesh, reverse=reverse)(array)
        return result
    return CrossMeshRedistribution(plan, source.mesh, target.mesh, reverse)(array)


def known_source(array: Any) -> Any:
    """The sharding of a traced array, where something tells the truth about it.

    Outside `jit`, a differentiated array still has its value inside, and that has its sharding. Under `jit` the type
    tells on Explicit axes, and nothing on Auto axes.

    Raises:
        TracedError: if nothing does.
    """
    value = private.value_inside(array)
    if not isinstance(value, jax.core.Tracer):
        return value.sharding
    sharding = jax.typeof(array).sharding
    if sharding.mesh.empty or AxisType.Explicit not in sharding.mesh.axis_types:
        raise TracedError("unknown source")
    return sharding


def _check_order(source: Any, target: Any) -> None:
    """Under one `jit` devices come in one order; an abstract mesh has whatever order that is."""
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
