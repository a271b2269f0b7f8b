"""Plans between two meshes with the same device order, inside a `jit`.

A `shard_map` over the source's mesh turns tiles into rows that are cut over all devices. The target's mesh cuts the
same rows in the same way, so they change meshes without moving. A second `shard_map` runs the plan.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax import private
from redistrib.backends.jax.context import context_of
from redistrib.backends.jax.contexts import abstract
from redistrib.backends.jax.padding import tile_program
from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.rows import over_tiles
from redistrib.backends.jax.sharding import constrained, with_axes
from redistrib.backends.jax.values import Program, as_integer_bits
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import spec_entries
from redistrib.plans.plan import Plan


def moved_across(
    array: jax.Array, plan: Plan, source: Any, target: Any, specs: tuple[PartitionSpec, PartitionSpec]
) -> jax.Array:
    """A traced array under the plan's target, between meshes with the same device order.

    JAX has no type for partial sums on a mesh of Auto axes. There they are an array whose replicas differ.

    Args:
        array: its sharding before is not checked.
        plan: device numbers are row-major positions in both meshes.
        source, target: meshes, concrete or abstract.
        specs: partition specs before and after.
    """
    before, after = specs
    where = _mesh_of_collectives(source, target)
    mesh = Mesh.of(where)
    context = context_of(plan, mesh.names, mesh.shape, mesh.devices, None, Platform.of(where))
    program = as_integer_bits(tile_program(plan, context))
    moved = _across(constrained(array, source, before), source, before, target, after, program, where)
    return constrained(moved, target, after)


def _mesh_of_collectives(source: Any, target: Any) -> Any:
    """The mesh on which collectives run: JAX lowers those on an abstract mesh by the axes of the mesh that is set."""
    given = private.mesh_while_lowering()

    def has_axes(mesh: Any) -> bool:
        if isinstance(mesh, jax.sharding.Mesh):
            return True
        if given is None:
            return abstract(mesh) == jax.sharding.get_abstract_mesh()
        return (mesh.axis_names, mesh.axis_sizes) == (given.axis_names, given.axis_sizes)

    if has_axes(target):
        return target
    return source if given is None or has_axes(source) else given


def emptied(array: jax.Array, source: NamedSharding, target: NamedSharding) -> jax.Array:
    """A traced array without elements, on the target.

    XLA of JAX 0.12 ends the process at partial sums along some axes that become partial sums along others.
    """
    if source.spec.unreduced:
        source = NamedSharding(source.mesh, PartitionSpec(*spec_entries(source.spec)))
        array = constrained(array, source.mesh, source.spec)
    if AxisType.Explicit not in source.mesh.axis_types or abstract(source.mesh) == abstract(target.mesh):
        return constrained(array, target.mesh, target.spec)
    tile = target.shard_shape(array.shape)
    return _across(
        array, source.mesh, source.spec, target.mesh, target.spec, lambda empty: empty.reshape(tile), target.mesh
    )


def _across(
    array: jax.Array,
    source: Any,
    source_spec: PartitionSpec,
    target: Any,
    target_spec: PartitionSpec,
    program: Program,
    where: Any,
) -> jax.Array:
    """Bring an array to another mesh as rows, one for each tile, and run a program on each tile, on one of the meshes.

    Args:
        array: the array.
        source, target: meshes before and after.
        source_spec, target_spec: partition specs before and after.
        program: of tiles.
        where: the mesh on which the program runs; source, target, or another one over the devices.
    """
    at_target, at_source = where is target, where is source and where is not target
    first: Program = (lambda tile: program(tile)[None]) if at_source else (lambda tile: tile[None])
    last: Program = (lambda row: program(row[0])) if at_target else (lambda row: row[0])
    rows, mesh = over_tiles(first, source, source_spec, _over_all(source))(array), source
    if not (at_source or at_target):
        over = _over_all(where)
        rows = over_tiles(lambda row: program(row[0])[None], where, over, over)(_brought(rows, source, where))
        mesh = where
    rows = _brought(_named_finely(rows, source, target), mesh, target)
    moved: jax.Array = over_tiles(last, target, _over_all(target), target_spec)(rows)
    return moved


def _over_all(mesh: Any) -> PartitionSpec:
    """Rows that all axes of a mesh cut."""
    return PartitionSpec(tuple(mesh.axis_names))


def _brought(rows: jax.Array, source: Any, target: Any) -> jax.Array:
    """Rows cut over all devices of one mesh, over those of another."""
    if AxisType.Explicit in source.axis_types and AxisType.Explicit not in target.axis_types:
        # JAX constrains an array of Explicit axes only to axes of these names.
        rows = constrained(rows, with_axes(target, AxisType.Explicit), _over_all(target))
    return constrained(rows, target, _over_all(target))


def _named_finely(rows: jax.Array, source: Any, target: Any) -> jax.Array:
    """Rows cut over all devices, constrained once to the coarsest mesh that refines both, if it is neither.

    Shardy expresses all meshes of Auto axes by the axes of the largest mesh. Where an output takes a part of an axis,
    it gathers, and JAX may fail to name the output's sharding. The finer mesh has every axis needed.
    """
    finer = _common_refinement(Mesh.of(source).shape, Mesh.of(target).shape)
    if not finer or AxisType.Explicit in (*source.axis_types, *target.axis_types):
        return rows
    names = tuple(f"part{i}" for i in range(len(finer)))
    concrete = next((mesh for mesh in (source, target) if isinstance(mesh, jax.sharding.Mesh)), None)
    mesh: Any = jax.sharding.AbstractMesh(finer, names)
    if concrete is not None:
        mesh = jax.sharding.Mesh(concrete.devices.reshape(finer), names)
    return constrained(rows, mesh, PartitionSpec(names))


def _common_refinement(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of the axes of the coarsest mesh that refines both; () if there is none, or it is one of them.

    >>> _common_refinement((2, 6), (6, 2)), _common_refinement((8,), (2, 4)), _common_refinement((2, 6), (3, 4))
    ((2, 3, 2), (), ())
    """
    strides = [{math.prod(shape[:i]) for i in range(len(shape) + 1)} for shape in (source, target)]
    both = sorted(strides[0] | strides[1])
    if set(both) in strides or any(fine % coarse for coarse, fine in pairwise(both)):
        return ()
    return tuple(fine // coarse for coarse, fine in pairwise(both))
