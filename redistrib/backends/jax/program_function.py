"""A program as a function of global `jax.Array`s."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax.context import LoweringContext, Schedule
from redistrib.backends.jax.execute import described, other_spec
from redistrib.backends.jax.numpy_arrays import traced
from redistrib.backends.jax.program import mapped, require_tiles_apart
from redistrib.backends.jax.sharding import constrained, named_sharding
from redistrib.backends.refusals import require_bodies
from redistrib.errors import ForeignMeshError, ProgramError
from redistrib.errors.base import cut, shown
from redistrib.plans.dtypes import dtype_of
from redistrib.programs.check import check
from redistrib.programs.inline import with_steps
from redistrib.programs.nest import Nest
from redistrib.programs.program import Compute, Place, Program, Value
from redistrib.programs.reference import points_of
from redistrib.theory.placement import placement_of

_COMBINED: dict[str, Callable[..., jax.Array]] = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


def program_to_jax(program: Program, mesh: jax.sharding.Mesh, *, schedule: Schedule | None = None) -> ProgramFunction:
    """The function of a program: from a global array for each input to a global array for each output.

    It is a single `shard_map`, and may be called eagerly and under `jax.jit`.

    Bodies of nests are traced. They may use `jax.numpy`, operators, or functions of NumPy that `jax.numpy` has under
    the same name. The result of a body is converted to the value's element type, as under MPI. A body that needs the
    start of its part is traced once for each start, and every device runs the trace of its start.

    Args:
        program: a program with all values and operations on one place, as from `rd.partition` without `root=`.
        mesh: a JAX mesh with the axes of the place's mesh; its devices get the device numbers of the place. For a
            place of one device, any mesh of one device.
        schedule: of the plans of moves, see `to_jax`.

    Raises:
        ProgramError: if the program is invalid, is on several places, begins or ends with partial sums, has tiles that
            overlap or a nest without a body, or needs 64 bits without `jax_enable_x64`.
        ForeignMeshError: if the mesh has other axes than the program's.
    """
    return ProgramFunction(program, mesh, schedule)


class ProgramFunction:
    """A program on a JAX mesh, as a function; the result of `program_to_jax`.

    Attributes:
        program: the program.
        mesh: the JAX mesh.
        in_shardings, out_shardings: shardings of the inputs and outputs, in order.
    """

    def __init__(self, program: Program, mesh: jax.sharding.Mesh, schedule: Schedule | None = None) -> None:
        self.program, self.mesh = program, mesh
        place = require_program(program)
        outputs = [program.values[name] for name in program.outputs]
        self.in_shardings, self.out_shardings = (
            tuple(_sharding(value, place, mesh) for value in side) for side in (program.inputs, outputs)
        )
        self._run = mapped(program, mesh, schedule, compute=_compute)
        self._compiled = jax.jit(self._run, inline=True)

    def __repr__(self) -> str:
        return f"ProgramFunction({self.program.name} on {dict(self.mesh.shape)})"

    def __call__(self, *arrays: jax.Array) -> list[jax.Array]:
        """An array for each output, with its sharding of `out_shardings`.

        Raises:
            ProgramError: if there are too few arrays or too many, or one differs from its input in shape, element type
                or sharding, or is no `jax.Array`. Under `jit`, on Auto axes, XLA moves it there first.
            TracedError: inside a `shard_map` over axes of the mesh.
        """
        inputs = self.program.inputs
        if len(arrays) != len(inputs):
            names = ", ".join(value.name for value in inputs) or "none"
            why = f"it has the inputs {names}, and {len(arrays)} arrays are given"
            raise ProgramError(self.program.name, "", "Arguments", why)
        checked = list(map(self._checked, range(len(inputs)), arrays))
        results: list[jax.Array] = self._compiled(*checked)
        return results

    def _checked(self, number: int, array: Any) -> jax.Array:
        value, sharding = self.program.inputs[number], self.in_shardings[number]
        expected = f"{value.dtype}{list(value.shape)}"
        remedy = f"place it with jax.device_put(array, f.in_shardings[{number}])"
        if not isinstance(array, jax.Array):
            raise self._refused(value, f"it is {shown(array)}, and no jax.Array; {remedy}")
        if (array.shape, str(array.dtype)) != (value.shape, value.dtype):
            raise self._refused(value, f"it is {array.dtype}{list(array.shape)}, and the program takes {expected}")
        if not isinstance(array, jax.core.Tracer):
            if not array.sharding.is_equivalent_to(sharding, array.ndim):
                placed, needed = described(array.sharding), described(sharding)
                raise self._refused(value, f"it is placed as {placed}, and the program takes {needed}; {remedy}")
            return array
        spec = other_spec(array, sharding)
        if spec is not None:
            raise self._refused(
                value, f"it is placed as {spec}, and the program takes {sharding.spec}; reshard it first"
            )
        return array if AxisType.Explicit in self.mesh.axis_types else constrained(array, self.mesh, sharding.spec)

    def _refused(self, value: Value, why: str) -> ProgramError:
        return ProgramError(self.program.name, value.name, "Arguments", why)


def require_program(program: Program) -> Place:
    """Refuse a program that no JAX mesh can run, and return its place.

    Raises:
        ProgramError: as `program_to_jax` says.
    """
    place = _place(check(program))
    for value in (*program.inputs, *(program.values[name] for name in program.outputs)):
        if value.type.partial:
            raise ProgramError(
                "", value.name, "Place", f"it is {value.form}, and programs in JAX begin and end with whole arrays; "
                f"move it to a type without partial sums",
            )  # fmt: skip
    require_tiles_apart(program)
    return place


def _place(program: Program) -> Place:
    """The one place of a program that JAX can run.

    Raises:
        ProgramError: names the first value or operation that JAX cannot run.
    """
    programs = [*with_steps(program)]
    values = [value for inner in programs for value in inner.values.values()]
    work = [op for inner in programs for op in inner.ops if isinstance(op, Compute)]
    ends = [("", value.name, value.place) for value in values]
    ends += [(op.name, "", op.place) for op in work]
    if not ends:
        raise ProgramError(program.name, "", "Place", "it has no values and no operations; there is nothing to run")
    place = ends[0][2]
    for operation, value, other in ends:
        if other != place:
            raise ProgramError(
                operation, value, "Place", f"it is on {other}, and others are on {place}; in JAX a program runs on one "
                f"place: leave root= out and give all grids as many devices, or run it by rd.to_mpi",
            )  # fmt: skip
    for result in values:
        if not _is_enabled(result.dtype):
            raise ProgramError(
                "", result.name, "Place", f"it is of {result.dtype}, and JAX has none unless jax_enable_x64 is set; do "
                f"so, or take another element type",
            )  # fmt: skip
    require_bodies(program)
    return place


def _is_enabled(dtype: str) -> bool:
    return dtype.startswith("key<") or jax.dtypes.canonicalize_dtype(dtype) == dtype_of(dtype)


def _sharding(value: Value, place: Place, mesh: jax.sharding.Mesh) -> NamedSharding:
    if place.mesh.names:
        return named_sharding(value.type, place.mesh, mesh)
    if mesh.size != 1:
        sizes = {"size": 1, "given_size": mesh.size}
        raise ForeignMeshError("foreign mesh", mesh=str(place.mesh), given=str(dict(mesh.shape)), **sizes)
    return NamedSharding(mesh, PartitionSpec())


# ------------------------------------------------------------------------------------------------ operations


def _compute(op: Compute, tiles: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The results of an operation on the running device."""
    env = {array: tiles[name] for array, name in op.ins}
    for part in op.parts:
        nest, operands = part.nest, [env[access.array] for access in part.nest.reads]
        points = placement_of(part.cut, op.place.mesh)
        places: dict[tuple[range, ...], int] = {}
        table = [
            places.setdefault(tuple(points_of(nest, points, device).values()), len(places))
            for device in range(op.place.mesh.size)
        ]
        branches = [partial(_results, op, nest, dict(zip(nest.position, ranges, strict=True))) for ranges in places]
        mesh = op.place.mesh
        if len(branches) == 1:
            results = branches[0](*operands)
        else:
            where = LoweringContext(mesh.names, mesh.shape, mesh.devices)
            results = lax.switch(where.lookup(np.array(table, np.int32)), branches, *operands)
        for access, result in zip(nest.writes, results, strict=True):
            combine = _COMBINED[nest.combine[0][1]] if access.array in env else None  # written twice inside a group
            env[access.array] = result if combine is None else combine(env[access.array], result)
    return {value.name: _as(value, env[array], op) for array, value in op.outs}


def _results(op: Compute, nest: Nest, at: Mapping[str, range], *tiles: jax.Array) -> list[jax.Array]:
    """The results of the body of a nest on the points `at`."""
    assert nest.body is not None
    try:
        returned = traced(partial(nest.body, at), tiles)
        results = [jnp.asarray(result) for result in (returned if isinstance(returned, tuple) else (returned,))]
    except (jax.errors.JAXTypeError, TypeError, NotImplementedError) as error:
        why = cut(str(error).strip().split("\n")[0], 300)
        raise ProgramError(
            op.name, "", "Nest", f"JAX cannot trace the body of nest {nest.name!r}: {why}; write it with jax.numpy, or "
            f"run the program by rd.to_mpi",
        ) from error  # fmt: skip
    if len(results) != len(nest.writes):
        raise nest.error("Nest", f"the body gives {len(results)} arrays, and the nest writes {len(nest.writes)}")
    for access, result in zip(nest.writes, results, strict=True):
        extents = iter(access.extents)
        shape = tuple(math.prod(len(at[name]) for name in dim) if dim else next(extents) for dim in access.dims)
        if result.shape != shape:
            raise nest.error("Nest", f"the body gives shape {result.shape}, not {shape}", access.array)
    return results


def _as(value: Value, array: jax.Array, op: Compute) -> jax.Array:
    """The result of a body in the element type of the value."""
    if str(array.dtype) == value.dtype:
        return array
    if not np.can_cast(array.dtype, dtype_of(value.dtype), "same_kind"):
        why = f"the body makes {array.dtype}, and the value is of {value.dtype}"
        raise ProgramError(op.name, value.name, "Nest", why)
    return array.astype(value.dtype)
