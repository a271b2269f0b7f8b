"""A plan as a function of one global `jax.Array`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax import private
from redistrib.backends.jax.adding import require_dtypes_of_sums
from redistrib.backends.jax.context import context_of
from redistrib.backends.jax.contexts import own_context
from redistrib.backends.jax.host_values import host_form, is_free, placed
from redistrib.backends.jax.memory_copies import loaded
from redistrib.backends.jax.memory_kinds import other_kind
from redistrib.backends.jax.move import CompiledMove, rows
from redistrib.backends.jax.padding import require_arrays, tile_program
from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.primitive import GlobalMove, bind, moved_type, names_in, remarked
from redistrib.backends.jax.rows import AXIS, over_tiles
from redistrib.backends.jax.sharding import constrained, named_sharding, stacked_type
from redistrib.backends.jax.values import Program, as_integer_bits
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.errors import ChoiceError, ForeignMeshError, SourceArrayError, TracedError
from redistrib.lang.specs import spec_entries
from redistrib.lang.types import DistType
from redistrib.plans.data import Schedule
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

    Eagerly, values of NumPy and arrays that are not committed to a device are placed as the plan's source, as `jax.jit`
    does, and an array that is committed to another sharding is refused. Under `jit` on a mesh of Auto axes the
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
        self._donates = donate
        self._has_sums = any(end.partial for end in self._ends)
        specs = (self.source_sharding.spec, self.target_sharding.spec)
        self._move = PlanMove(plan, mesh, specs, schedule, reverse, stacked)
        self._dtype: Any = None  # that passed the check

    def __repr__(self) -> str:
        return f"Redistribution({self.plan.source} -> {self.plan.target} on {self.plan.source_mesh})"

    def __call__(self, array: Any) -> jax.Array:
        """The same global array, placed as the plan's target says.

        Raises:
            SourceArrayError: if the value is no array, or shape, dtype or sharding are not those of the plan's source.
        """
        if not isinstance(array, jax.Array):
            form = host_form(array)
            if form is None or self._ends[0].partial:
                raise SourceArrayError("not an array", kind=type(array).__name__)
            self._check_value(form)
            array = placed(array, self.source_sharding)
        else:
            self._check_value(array)
        if isinstance(array, jax.core.Tracer):
            array = loaded(array)
            self._check_type(array)
            return bind(array, self._move)
        if array.is_deleted():
            raise SourceArrayError("deleted")
        array = self._at_source(array)
        with own_context():
            result: jax.Array = self._run(array) if self._has_sums or private.is_outside() else self._traced(array)
        return result

    def _run(self, array: jax.Array) -> jax.Array:
        before, move = self._compiled
        weak = bool(array.aval.weak_type)
        if not weak and not self._has_sums:
            moved: jax.Array = move(array)
            return moved
        given = with_sharding(array, before.shape, before.sharding, weak=False)
        moved = move(given)
        if self._donates and given.is_deleted():
            array.delete()
        return with_sharding(moved, self._ends[1].padded_shape, self.target_sharding, weak=weak)

    @cached_property
    def _compiled(self) -> tuple[jax.ShapeDtypeStruct, CompiledMove]:
        """What the compiled move takes, and the move: tiles as rows for partial sums, which some compilers refuse."""
        plan, move, reused = self.plan, self._move, (0,) if self._donates else ()
        if self._has_sums:
            before, after = (
                rows(list(self.mesh.devices.flat), side.tile, plan.dtype) for side in (plan.before, plan.after)
            )
            run = move.of_tiles((AXIS,), (plan.devices,))
        else:
            run = move.of_shards()
            before, after = (
                jax.ShapeDtypeStruct(end.padded_shape, self._dtype, sharding=sharding)
                for end, sharding in zip(self._ends, (self.source_sharding, self.target_sharding), strict=True)
            )
        return before, CompiledMove(run, [before], after, reused).compile()

    @cached_property
    def _traced(self) -> Any:
        """The move of an array that is a constant of a traced function, of which it becomes a part."""
        return jax.jit(self._move.run, donate_argnums=(0,) if self._donates else ())

    def _check_value(self, array: jax.Array) -> None:
        shape = self._ends[0].padded_shape
        if array.shape != shape:
            raise _refused("shape", shape, array.shape, "plan for this shape")
        if array.dtype is not self._dtype and str(array.dtype) != self.plan.dtype:  # its text is slow to make
            raise _refused("dtype", self.plan.dtype, array.dtype, "plan for this dtype, or convert the array")
        self._dtype = array.dtype

    def _at_source(self, array: jax.Array) -> jax.Array:
        if array.sharding == self.source_sharding or array.sharding.is_equivalent_to(self.source_sharding, array.ndim):
            return array
        place = "plan from where it is"
        if not self._ends[0].partial:
            if is_free(array):
                return placed(array, self.source_sharding)
            place = f"place it with jax.device_put(array, f.source_sharding), or {place}"
        raise _refused("sharding", described(self.source_sharding), described(array.sharding), place)

    def _check_type(self, array: jax.Array) -> None:
        spec = other_spec(array, self.source_sharding)
        if spec is not None:
            expected = self.source_sharding.spec
            raise _refused("sharding", expected, spec, "move it with jax.sharding.reshard, or plan from where it is")


@dataclass(frozen=True, eq=False)
class PlanMove:
    """A plan on a JAX mesh as a move of traced arrays, which may have dimensions behind those of the plan.

    Attributes:
        plan, mesh: the plan, and a mesh with its axes.
        specs: partition specs before and after, without the dimensions behind.
        schedule, reverse: as for `to_jax`.
        stacked: whether before and after the array is the stack of partial sums.
        behind: the entries of partition specs for the dimensions behind, along which examples of batches lie.
    """

    plan: Plan
    mesh: Any
    specs: tuple[PartitionSpec, PartitionSpec]
    schedule: Schedule | None = None
    reverse: Reverse = None
    stacked: bool = False
    behind: tuple[tuple[str, ...], ...] = ()

    is_at_once = False

    @property
    def target(self) -> NamedSharding:
        """The sharding of the moved array, with all its dimensions."""
        return NamedSharding(self.mesh, self._whole(self.specs[1]))

    def run(self, array: jax.Array) -> jax.Array:
        """The moved array; XLA first moves it to the source's sharding, if it is elsewhere."""
        before, after = map(self._whole, self.specs)
        result: jax.Array = over_tiles(self.of_shards(), self.mesh, before, after)(
            constrained(array, self.mesh, before)
        )
        return result

    def of_shards(self) -> Program:
        """The program of the plan from shard to shard of the array, along the mesh's axes."""
        mesh = self.plan.source_mesh
        program = self.of_tiles(mesh.names, mesh.shape)
        of_slabs, to_slabs = (self.stacked and bool(end.partial) for end in (self.plan.source, self.plan.target))

        def run(tile: jax.Array) -> jax.Array:
            moved = program(tile[0] if of_slabs else tile)
            return moved[None] if to_slabs else moved

        return run

    def of_tiles(self, names: tuple[str, ...], sizes: tuple[int, ...]) -> Program:
        """The program of the plan from tile to tile, over its devices in mesh order along axes of these names."""
        order, platform = self.plan.source_mesh.devices, Platform.of(self.mesh)
        context = context_of(self.plan, names, sizes, order, self.schedule, platform)
        return as_integer_bits(tile_program(self.plan, context))

    def result(self, aval: Any) -> Any:
        """The abstract value of the moved array."""
        examples = aval.shape[len(aval.shape) - len(self.behind) :]
        shape = (*self._end(self.plan.target).padded_shape, *examples)
        return moved_type(aval, shape, self.mesh, self.target.spec)

    def cotangent(self, array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """A cotangent, moved from the target's sharding to the source's; all partial sums have the same cotangent."""
        after, before = (remarked(spec, spec_entries(spec), cotangent=True) for spec in self.specs)
        if self.reverse is None and self.plan.source.padded_shape != self.plan.target.padded_shape:
            raise TracedError("no plan back", source=str(self.plan.source), target=str(self.plan.target))
        if self.reverse is None:
            return constrained(array, self.mesh, self._whole(after))
        plan = self.reverse if isinstance(self.reverse, Plan) else self.reverse()
        plan.require_whole("a plan for cotangents")
        require_mesh_and_arrays(plan)
        return bind(array, replace(self, plan=plan, specs=(before, after), reverse=self.plan, stacked=False))

    def batched(self, array: jax.Array, dim: int, axes: tuple[str, ...]) -> tuple[jax.Array, GlobalMove, int]:
        """The same plan on a batch, whose examples lie behind all other dimensions.

        Raises:
            TracedError: if the batch is cut along axes that cut the array, or between whose devices the plan moves.
        """
        for spec in self.specs:
            if set(axes) & set(names_in(spec)):
                raise TracedError("batch axis", axes=axes, spec=str(spec))
        if axes and _moves_along(self.plan, axes):
            raise TracedError("plan across a batch", axes=axes)
        last = array.ndim - 1
        return jnp.moveaxis(array, dim, last), replace(self, behind=(*self.behind, axes)), last

    def require_derivative(self, array: jax.Array) -> None:
        """Refuse stacks, maxima and minima.

        Raises:
            TracedError: for such a move.
        """
        kinds = {self.plan.source.reduction, self.plan.target.reduction} - {None}
        if kinds and (self.stacked or kinds != {"sum"}):
            subject = "a plan on stacked partial sums" if self.stacked else f"a {kinds.pop()} of partial sums"
            raise TracedError("derivative", subject=subject)

    def _end(self, side: DistType) -> DistType:
        return stacked_type(side, self.plan.source_mesh) if self.stacked else side

    def _whole(self, spec: PartitionSpec) -> PartitionSpec:
        return remarked(spec, (*spec_entries(spec), *(axes or None for axes in self.behind)))


def _moves_along(plan: Plan, axes: Sequence[str]) -> bool:
    """Whether elements travel, or may, between devices at different places along mesh axes."""
    mesh = plan.source_mesh
    places = np.indices(mesh.shape).reshape(len(mesh.names), -1)
    strides = np.cumprod([1, *(mesh.axis(name).size for name in axes[:-1])])
    side = np.empty(mesh.size, np.int64)
    side[list(mesh.devices)] = strides @ places[[mesh.names.index(name) for name in axes]]
    return any(step.reduces or step.crossing(side) for step in plan.steps)


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
