"""Plans between two meshes over one device order, inside one `jit`.

A `shard_map` over the source's mesh turns tiles into rows cut over all devices; over the target's mesh the same rows
are cut the same way, so they change meshes without moving, and a second `shard_map` carries out the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import linear_call
from jax.sharding import AxisType, NamedSharding, PartitionSpec, use_abstract_mesh

from redistrib.backends.jax.execute import carried
from redistrib.backends.jax.lowering import frame_of, local_program
from redistrib.backends.jax.sharding import partition_spec
from redistrib.plans.plan import Plan


class Within:
    """A plan as a function of one traced array, between meshes whose devices come in one order.

    As a function of global arrays it is the identity: its tangent runs the same plan, its cotangent the plan back.

    Attributes:
        plan: the plan; device numbers are row-major positions in both meshes.
        source, target: meshes, concrete or abstract.
        reverse: makes the plan back when a cotangent needs it.
    """

    def __init__(self, plan: Plan, source: Any, target: Any, reverse: Callable[[], Plan]) -> None:
        self.plan, self.source, self.target, self.reverse = plan, source, target, reverse

    def __call__(self, array: jax.Array) -> jax.Array:
        """The same global array, placed as the plan's target says; how it is placed before is not checked."""
        if not jnp.issubdtype(array.dtype, jnp.inexact):
            return self._mapped(array)

        @jax.custom_jvp
        def move(value: jax.Array) -> jax.Array:
            return self._mapped(value)

        @move.defjvp
        def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
            moved = linear_call(lambda _, t: self._mapped(t), lambda _, ct: self._back._mapped(ct), (), tangents[0])
            return move(primals[0]), moved

        result: jax.Array = move(array)
        return result

    @cached_property
    def _back(self) -> Within:
        return Within(self.reverse(), self.target, self.source, lambda: self.plan)

    def _mapped(self, array: jax.Array) -> jax.Array:
        array = constrained(array, self.source, partition_spec(self.plan.source))
        rows = _mapping(
            lambda tile: tile[None],
            self.source,
            partition_spec(self.plan.source),
            PartitionSpec(tuple(self.source.axis_names)),
        )(array)
        rows = constrained(rows, self.target, PartitionSpec(tuple(self.target.axis_names)))
        mesh = self.plan.target_mesh
        frame = frame_of(self.plan, mesh.names, mesh.shape, mesh.devices, None, platform_of(self.target))
        program = carried(local_program(self.plan.steps, frame))
        spec = partition_spec(self.plan.target)
        moved = _mapping(lambda row: program(row[0]), self.target, PartitionSpec(tuple(self.target.axis_names)), spec)(
            rows
        )
        return constrained(moved, self.target, spec)


def emptied(array: jax.Array, source: NamedSharding, target: NamedSharding) -> jax.Array:
    """A traced array without elements, on the target."""
    if AxisType.Explicit not in source.mesh.axis_types or _abstract(source.mesh) == _abstract(target.mesh):
        return constrained(array, target.mesh, target.spec)
    rows = _mapping(lambda tile: tile[None], source.mesh, source.spec, PartitionSpec(tuple(source.mesh.axis_names)))(
        array
    )
    rows = constrained(rows, target.mesh, PartitionSpec(tuple(target.mesh.axis_names)))
    tile = target.shard_shape(array.shape)
    return _mapping(
        lambda row: row[0].reshape(tile), target.mesh, PartitionSpec(tuple(target.mesh.axis_names)), target.spec
    )(rows)


def constrained(array: jax.Array, mesh: Any, spec: PartitionSpec) -> jax.Array:
    """A traced array, known to be placed by a spec over a mesh; XLA moves it there if it is not."""
    if AxisType.Explicit in mesh.axis_types:
        with use_abstract_mesh(_abstract(mesh)):
            moved: jax.Array = jax.sharding.reshard(array, NamedSharding(mesh, spec))
    else:
        moved = lax.with_sharding_constraint(array, NamedSharding(mesh, spec))
    return moved


def platform_of(mesh: Any) -> str:
    """Platform of the devices of a mesh; that of the default backend where the mesh is abstract."""
    if isinstance(mesh, jax.sharding.Mesh):
        return str(mesh.devices.flat[0].platform)
    return str(jax.default_backend())


def _abstract(mesh: Any) -> Any:
    return mesh.abstract_mesh if isinstance(mesh, jax.sharding.Mesh) else mesh


def _mapping(
    function: Any, mesh: Any, source: PartitionSpec, target: PartitionSpec
) -> Callable[[jax.Array], jax.Array]:
    def run(array: jax.Array) -> jax.Array:
        with use_abstract_mesh(_abstract(mesh)):
            result: jax.Array = jax.shard_map(function, mesh=mesh, in_specs=source, out_specs=target, check_vma=False)(
                array
            )
        return result

    return run
