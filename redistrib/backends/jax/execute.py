"""A plan as a function of one global `jax.Array`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, TypeAlias, get_args

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax.adding import require_dtypes_of_sums
from redistrib.backends.jax.context import LoweringContext, Platform, Schedule, context_of
from redistrib.backends.jax.memory_copies import loaded
from redistrib.backends.jax.memory_kinds import other_kind
from redistrib.backends.jax.padding import require_arrays, tile_program
from redistrib.backends.jax.rows import over_tiles, rows_shape, rows_spec
from redistrib.backends.jax.sharding import alone_on, constrained, named_sharding, partition_spec, stacked_type
from redistrib.backends.jax.values import as_integer_bits, differentiable, underivable
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.errors import ChoiceError, ForeignMeshError, SourceArrayError, TracedError
from redistrib.lang.specs import spec_entries
from redistrib.plans.plan import Plan

Reverse: TypeAlias = Plan | Callable[[], Plan] | None


def to_jax(
    plan: Plan,
    mesh: jax.sharding.Mesh,
    *,
    reverse: Reverse = None,
    schedule: Schedule | None = None,
    donate: bool = False,
    stacked: bool = False,
) -> Redistribution:
    """The function of a plan: from a global array to the same array under the target's sharding.

    It may be called eagerly, under `jax.jit`, and under forward and reverse differentiation. As a function of global
    arrays it is the identity, so its tangent runs the same plan, and its cotangent travels back by `reverse`.

    Eagerly, an array with another sharding than the plan's source is refused. Under `jit` on a mesh of Auto axes the
    sharding of a traced array is unknown: the function constrains it to the source's sharding, and XLA moves it there
    first if necessary. On a mesh of Explicit axes the sharding is part of the traced type, and another sharding is
    refused.

    Where a type has padding, arrays have its `padded_shape`. Padding is not read, and is zero in the result.

    Args:
        plan: from a type on the mesh to another type on the same mesh.
        mesh: a JAX mesh with the axes of the plan's mesh; its devices are numbered row by row.
        reverse: the plan back, or a function that returns it, called when a cotangent needs it; without one, XLA moves
            the cotangent.
        schedule: `"overlap"` lets rounds of permutes run at the same time, in at most two tiles of scratch;
            `"sequential"` runs one after the other in parts, in at most half a tile for a plan of one exchange.
            By default a plan with a memory limit runs in sequence, within the limit, and any other plan overlaps.
        donate: eagerly, release the source's buffer.
        stacked: where tiles are partial sums, take and return the array `[summands, *shape]` of all partial sums, whose
            first dimension is cut one by one along the partial axes. Such functions have no derivative.

    Raises:
        ForeignMeshError: if the mesh has other axes than the plan's, or source and target are on different meshes.
        ChoiceError: if `schedule` is neither of the two.
        SpecError: if JAX has no arrays of the plan's partial sums.
        UnevenTypeError: if JAX has no arrays of the plan's tiles.
        ReductionError: if partial sums are added in 64 bits without `jax_enable_x64`.
    """
    return Redistribution(plan, mesh, reverse=reverse, schedule=schedule, donate=donate, stacked=stacked)


def require_plan(plan: Plan) -> None:
    """Refuse a plan that no JAX mesh can carry out.

    Raises:
        ForeignMeshError, UnevenTypeError, ReductionError: as `to_jax` says.
    """
    require_mesh_and_arrays(plan)
    require_dtypes_of_sums(plan)


def require_mesh_and_arrays(plan: Plan) -> None:
    """Refuse a plan over other devices than all of one mesh, or over types of which JAX has no arrays.

    Raises:
        ForeignMeshError, UnevenTypeError: as `to_jax` says.
    """
    if plan.source_mesh != plan.target_mesh:
        meshes = {"source": _described(plan.source_mesh), "target": _described(plan.target_mesh)}
        raise ForeignMeshError("two meshes", **meshes)
    if not plan.source_mesh.is_whole:
        raise ForeignMeshError("some devices", mesh=_described(plan.source_mesh), devices=plan.devices)
    require_arrays(plan.source, plan.target)


class Redistribution:
    """A plan on a JAX mesh, as a function; the result of `to_jax`.

    Attributes:
        plan: the plan.
        mesh: the JAX mesh.
        source_sharding, target_sharding: shardings of the array before and after.
    """

    def __init__(
        self,
        plan: Plan,
        mesh: jax.sharding.Mesh,
        *,
        reverse: Reverse = None,
        schedule: Schedule | None = None,
        donate: bool = False,
        stacked: bool = False,
    ) -> None:
        if schedule is not None and schedule not in get_args(Schedule):
            raise ChoiceError("schedule", schedule=schedule)
        require_mesh_and_arrays(plan)
        self.plan, self.mesh = plan, mesh
        self._ends = [stacked_type(side, plan.source_mesh) if stacked else side for side in (plan.source, plan.target)]
        self.source_sharding, self.target_sharding = (
            named_sharding(side, plan.source_mesh, mesh) for side in self._ends
        )
        self._reverse, self._schedule, self._stacked, self._donates = reverse, schedule, stacked, donate
        self._compiled = jax.jit(self._run, donate_argnums=(0,) if donate else (), inline=True)

    def __repr__(self) -> str:
        return f"Redistribution({self.plan.source} -> {self.plan.target} on {self.plan.source_mesh})"

    def __call__(self, array: jax.Array) -> jax.Array:
        """The same global array, placed as the plan's target says.

        Raises:
            SourceArrayError: if the value is no `jax.Array`.
            SourceArrayError: if shape, dtype or sharding are not those of the plan's source.
        """
        if not isinstance(array, jax.Array):
            raise SourceArrayError("not an array", kind=type(array).__name__)
        self._check_value(array)
        if isinstance(array, jax.core.Tracer):
            array = self._placed(array)
        else:
            self._check_sharding(array)
            if any(end.partial for end in self._ends):
                return self._by_tiles(array)
        result: jax.Array = self._compiled(array)
        return result

    def _by_tiles(self, array: jax.Array) -> jax.Array:
        """As a call, on tiles as rows along the first dimension: some compilers take no partial sums as arguments."""
        rows = rows_shape(self.plan.devices, self.plan.before.tile)
        tiles = with_sharding(array, rows, NamedSharding(self.mesh, self._along_tiles), weak=False)
        with alone_on(self.mesh):
            moved = self._on_tiles(tiles)
        if self._donates and tiles.is_deleted():
            array.delete()
        weak = bool(array.aval.weak_type)
        return with_sharding(moved, self._ends[1].global_shape, self.target_sharding, weak=weak)

    @property
    def _along_tiles(self) -> PartitionSpec:
        return rows_spec(self.plan.before.rank, self.mesh.axis_names)

    @cached_property
    def _on_tiles(self) -> Any:
        run = partial(self._mapped, specs=(self._along_tiles, self._along_tiles))
        return jax.jit(run, donate_argnums=(0,) if self._donates else ())

    def _check_value(self, array: jax.Array) -> None:
        shape = self._ends[0].padded_shape
        if array.shape != shape:
            raise _refused("shape", shape, array.shape, "plan for this shape")
        if str(array.dtype) != self.plan.dtype:
            raise _refused("dtype", self.plan.dtype, array.dtype, "plan for this dtype, or convert the array")

    def _check_sharding(self, array: jax.Array) -> None:
        if not array.sharding.is_equivalent_to(self.source_sharding, array.ndim):
            place = "plan from where it is"
            if not self._ends[0].partial:
                place = f"place it with jax.device_put(array, f.source_sharding), or {place}"
            raise _refused("sharding", described(self.source_sharding), described(array.sharding), place)

    def _placed(self, array: jax.Array) -> jax.Array:
        """A traced array with the sharding of the source, in the default memory of the devices."""
        array = loaded(array)
        spec = other_spec(array, self.source_sharding)
        if spec is not None:
            expected = self.source_sharding.spec
            raise _refused("sharding", expected, spec, "move it with jax.sharding.reshard, or plan from where it is")
        if AxisType.Explicit in self.mesh.axis_types:
            return array
        return constrained(array, self.mesh, self.source_sharding.spec)

    @cached_property
    def _context(self) -> LoweringContext:
        mesh = self.plan.source_mesh
        return context_of(self.plan, mesh.names, mesh.shape, mesh.devices, self._schedule, Platform.of(self.mesh))

    def _mapped(self, array: jax.Array, specs: tuple[PartitionSpec, PartitionSpec] | None = None) -> jax.Array:
        """The `shard_map` of the plan, between its partition specs or others with the same tiles."""
        program = as_integer_bits(tile_program(self.plan, self._context))
        of_slabs, to_slabs = (
            end is not side for end, side in zip(self._ends, (self.plan.source, self.plan.target), strict=True)
        )

        def run(tile: jax.Array) -> jax.Array:
            moved = program(tile[0] if of_slabs else tile)
            return moved[None] if to_slabs else moved

        before, after = specs or (self.source_sharding.spec, self.target_sharding.spec)
        result: jax.Array = over_tiles(run, self.mesh, before, after)(array)
        return result

    def _run(self, array: jax.Array) -> jax.Array:
        kinds = {self.plan.source.reduction, self.plan.target.reduction} - {None}
        if kinds and (self._stacked or kinds != {"sum"}):
            subject = "a plan on stacked partial sums" if self._stacked else f"a {kinds.pop()} of partial sums"
            return underivable(self._mapped, subject)(array)
        return differentiable(self._mapped, self._back, bool(self.plan.target.partial))(array)

    def _back(self, cotangent: jax.Array) -> jax.Array:
        """A cotangent, moved from the target's sharding to the source's; all partial sums have the same cotangent."""
        before, after = (partition_spec(side, cotangent=True) for side in (self.plan.target, self.plan.source))
        if self._reverse is None and self.plan.source.padded_shape != self.plan.target.padded_shape:
            raise TracedError("no plan back", source=str(self.plan.source), target=str(self.plan.target))
        if self._reverse is None:
            return constrained(cotangent, self.mesh, after)
        return self._returning._mapped(self._returning._placed(cotangent), (before, after))

    @cached_property
    def _returning(self) -> Redistribution:
        plan = self._reverse if isinstance(self._reverse, Plan) else self._reverse() if self._reverse else self.plan
        plan.require_whole("a plan for cotangents")
        return Redistribution(plan, self.mesh, schedule=self._schedule)


def other_spec(array: jax.Array, expected: NamedSharding) -> PartitionSpec | None:
    """The partition spec of a traced array on Explicit axes, where it is not the expected one; else None.

    Raises:
        TracedError: inside a `shard_map` over axes of the mesh.
    """
    kinds = _axis_types(expected.mesh)
    sharding = jax.typeof(array).sharding
    manual = [name for name, kind in _axis_types(sharding.mesh).items() if kind == AxisType.Manual]
    if any(name in kinds for name in manual):
        raise TracedError("manual mesh", axes=tuple(manual))
    if AxisType.Explicit not in kinds.values():
        return None
    actual, spec = sharding.spec if not sharding.mesh.empty else PartitionSpec(), expected.spec
    same = _normal(actual, array.ndim) == _normal(spec, array.ndim) and actual.unreduced == spec.unreduced
    return None if same else actual


def _refused(subject: str, expected: object, actual: object, remedy: str) -> SourceArrayError:
    return SourceArrayError("source array", subject=subject, expected=expected, given=actual, remedy=remedy)


def _axis_types(mesh: Any) -> dict[str, AxisType]:
    return dict(zip(mesh.axis_names, mesh.axis_types, strict=True)) if not mesh.empty else {}


def _normal(spec: Any, rank: int) -> tuple[tuple[str, ...], ...]:
    entries = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec_entries(spec)]
    return tuple(entries + [()] * (rank - len(entries)))


def described(sharding: Any) -> str:
    """A sharding in the words of error messages."""
    if isinstance(sharding, NamedSharding):
        sizes = ", ".join(f"{name}:{size}" for name, size in sharding.mesh.shape.items())
        kind = other_kind(sharding)
        return f"{sharding.spec} on mesh {{{sizes}}}" + (f" in {kind}" if kind else "")
    return str(sharding)


def _described(mesh: Any) -> str:
    order = "" if mesh.devices == tuple(range(mesh.size)) else f" in device order {list(mesh.devices)}"
    return f"{mesh}{order}"
