"""The move of a traced array from one sharding to another, as JAX's transformations see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax.cross_mesh import emptied, moved_across
from redistrib.backends.jax.execute import PlanMove
from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.primitive import GlobalMove, bind, moved_type, names_in, remarked
from redistrib.backends.jax.sharding import constrained, with_axes
from redistrib.errors import TracedError
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_named_sharding, spec_entries
from redistrib.plans.plan import Plan
from redistrib.resharding.actions import SourceTarget
from redistrib.resharding.padding import Padding, padded_types
from redistrib.resharding.planning import Planner
from redistrib.theory.topology import topology_of_mesh


@dataclass(frozen=True)
class TracedMove:
    """A move between two shardings over the same devices in one order.

    As a function of global arrays it is the identity: its tangent moves as it does, its cotangent between the shardings
    of cotangents, by a plan of its own. A batch is one more dimension, for which it is planned anew: so batches cut
    along mesh axes stay where they are, and a memory limit holds for all examples together.

    Attributes:
        source, target: shardings before and after; their meshes may be abstract.
        padding: the shapes of arrays with padding; None without.
        planner: of the plan.
        plan_limit: bytes per device that source, target and scratch of the plan may take; None for no limit.
    """

    source: NamedSharding
    target: NamedSharding
    padding: Padding | None
    planner: Planner
    plan_limit: int | None

    is_at_once = False

    def run(self, array: jax.Array) -> jax.Array:
        """The moved array, by the steps of a plan."""
        source, target = self.source, self.target
        marks = frozenset(getattr(target.spec, "reduced", None) or ())
        if marks:  # JAX's own mark, which it puts on at no cost
            bare = replace(self, target=NamedSharding(target.mesh, _without_reduced(target.spec)))
            return constrained(bare.run(array), target.mesh, target.spec)
        if 0 in array.shape:
            if getattr(source.spec, "reduced", None):
                source = NamedSharding(source.mesh, _without_reduced(source.spec))
                array = constrained(array, source.mesh, source.spec)
            return emptied(array, source, target)
        plan = self.plan(array.shape, array.dtype)
        if self._has_replicas_of_sums(array):
            specs = PartitionSpec(*spec_entries(source.spec)), target.spec
            return moved_across(array, plan, with_axes(source.mesh, AxisType.Auto), target.mesh, specs)
        specs = source.spec, target.spec
        concrete = isinstance(target.mesh, jax.sharding.Mesh)
        if concrete and not getattr(source.spec, "reduced", None) and is_same_mesh(source.mesh, target.mesh):
            return PlanMove(plan, target.mesh, specs).run(array)
        return moved_across(array, plan, source.mesh, target.mesh, specs)

    def plan(self, shape: tuple[int, ...], dtype: Any) -> Plan:
        """The plan for an array of global `shape`.

        Raises:
            SpecError, TypeFormError: for a sharding that no type describes.
            MemoryLimitError: if no plan fits the limit.
        """
        source_type, source_mesh = from_named_sharding(self.source, shape)
        target_shape = shape if self.padding is None else self.padding.target
        target_type, target_mesh = from_named_sharding(self.target, target_shape)
        ends = padded_types(source_type, target_type, self.padding)
        topology = topology_of_mesh(self.source.mesh) or topology_of_mesh(self.target.mesh)
        problem = SourceTarget(ends[0], source_mesh, ends[1], target_mesh, topology)
        platform = Platform.of(self.target.mesh).name
        return self.planner.plan(problem, str(dtype), platform, self.plan_limit)

    def result(self, aval: Any) -> Any:
        """The abstract value of the moved array; a move that cannot be planned is refused here."""
        if 0 not in aval.shape:
            self.plan(aval.shape, aval.dtype)
        shape = aval.shape if self.padding is None else self.padding.target
        return moved_type(aval, shape, self.target.mesh, self.target.spec)

    def cotangent(self, array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """A cotangent, moved back. All partial sums have the same; of a reduced source, cotangents are partial sums."""
        source, target = of_cotangent(self.target), of_cotangent(self.source)
        padding = None if self.padding is None else Padding(self.padding.logical, shape)
        return bind(array, replace(self, source=source, target=target, padding=padding))

    def batched(self, array: jax.Array, dim: int, axes: tuple[str, ...]) -> tuple[jax.Array, GlobalMove, int]:
        """The move of a batch, whose dimension stays where it is.

        Raises:
            TracedError: if the batch is cut along axes that cut the array too.
        """
        source, target = (with_batch(side, array.ndim, dim, axes) for side in (self.source, self.target))
        padding = None if self.padding is None else self.padding.with_batch(dim, array.shape[dim])
        return array, replace(self, source=source, target=target, padding=padding), dim

    def require_derivative(self, array: jax.Array) -> None:
        """Refuse partial sums that JAX takes for replicas.

        Raises:
            TracedError: for such a source.
        """
        if self._has_replicas_of_sums(array):
            raise TracedError("derivative", subject="an array whose replicas are partial sums")

    def _has_replicas_of_sums(self, array: jax.Array) -> bool:
        return bool(self.source.spec.unreduced) and AxisType.Explicit not in jax.typeof(array).sharding.mesh.axis_types


def is_same_mesh(source: Any, target: Any) -> bool:
    """Whether two meshes have the same axes of the same kinds."""

    def parts(mesh: Any) -> Any:
        return mesh.axis_names, Mesh.of(mesh).shape, mesh.axis_types

    return bool(parts(source) == parts(target))


def _without_reduced(spec: PartitionSpec) -> PartitionSpec:
    unreduced = frozenset(spec.unreduced or ())
    return PartitionSpec(*spec_entries(spec), **({"unreduced": unreduced} if unreduced else {}))


def of_cotangent(sharding: NamedSharding) -> NamedSharding:
    """The sharding of the cotangents of arrays with a sharding."""
    return NamedSharding(sharding.mesh, remarked(sharding.spec, spec_entries(sharding.spec), cotangent=True))


def with_batch(sharding: NamedSharding, rank: int, dim: int, axes: tuple[str, ...]) -> NamedSharding:
    """The sharding of a batch of `rank` dimensions, cut along those of the axes that the mesh has."""
    if taken := set(axes) & set(names_in(sharding.spec)):
        raise TracedError("batch axis", axes=tuple(sorted(taken)), spec=str(sharding.spec))
    entries = [*spec_entries(sharding.spec)]
    entries += [None] * (rank - 1 - len(entries))
    entries.insert(dim, tuple(name for name in axes if name in sharding.mesh.axis_names) or None)
    return NamedSharding(sharding.mesh, remarked(sharding.spec, entries))
