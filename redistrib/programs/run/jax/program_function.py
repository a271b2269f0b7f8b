"""A program on one place as a function of global `jax.Array`s, a single `shard_map`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.arguments import in_order
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.contexts import own_context
from redistrib.backends.jax.execute import described, other_spec
from redistrib.backends.jax.host_values import host_form, is_free, placed
from redistrib.backends.jax.sharding import constrained, named_sharding, partition_spec
from redistrib.errors import ForeignMeshError, ProgramError
from redistrib.errors.base import cut, shown
from redistrib.lang.types import DimType, DistType
from redistrib.plans.data import Schedule
from redistrib.plans.dtypes import dtype_of
from redistrib.programs.ir.check import check
from redistrib.programs.ir.check_calls import require_bodies
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import with_steps
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Place, Program, Value
from redistrib.programs.ir.reference import cropped, points_of
from redistrib.programs.ir.trimmed import Trimmed
from redistrib.programs.run.jax.numpy_arrays import traced
from redistrib.programs.run.jax.program import mapped, require_tiles_apart
from redistrib.theory.placement import placement_of

_COMBINED: dict[str, Callable[..., jax.Array]] = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


class ProgramFunction:
    """A program on one place of a JAX mesh, as a function; the result of `program_to_jax` for such a program.

    Attributes:
        program: the program.
        mesh: the JAX mesh.
        in_shardings, out_shardings: shardings of the inputs and outputs, in order.
    """

    def __init__(self, program: Program, mesh: jax.sharding.Mesh, schedule: Schedule | None = None) -> None:
        self.program, self.mesh = program, mesh
        require_values(program)
        (place,) = places_of(program)
        outputs = [program.values[name] for name in program.outputs]
        self.in_shardings, self.out_shardings = (
            tuple(_sharding(value, place, mesh) for value in side) for side in (program.inputs, outputs)
        )
        self._run = mapped(program, mesh, schedule, compute=compute)
        self._compiled = jax.jit(self._whole, inline=True)

    def __repr__(self) -> str:
        return f"ProgramFunction({self.program.name} on {dict(self.mesh.shape)})"

    def __call__(self, *arrays: Any, **named: Any) -> list[jax.Array]:
        """An array for each output, with its sharding of `out_shardings`.

        Values of NumPy and arrays that are not committed to a device are placed, as `jax.jit` does.

        Args:
            arrays, named: an array for each input, by place or by name.

        Raises:
            ProgramError: if there are too few arrays or too many, or one differs from its input in shape, element type
                or sharding, or is no array. Under `jit`, on Auto axes, XLA moves it there first.
            TracedError: inside a `shard_map` over axes of the mesh.
        """
        checked = accepted(self.program, self.in_shardings, arrays, named)
        with own_context(computes=True):
            results: list[jax.Array] = self._compiled(*map(self._constrained, range(len(checked)), checked))
        return results

    def _whole(self, *arrays: jax.Array) -> list[jax.Array]:
        """The outputs without padding from the inputs without padding."""
        tiled = [
            constrained(with_zeros(array, value), self.mesh, partition_spec(value.type))
            if any(value.padding)
            else array
            for array, value in zip(arrays, self.program.inputs, strict=True)
        ]
        outputs = (self.program.values[name] for name in self.program.outputs)
        return [
            self._cropped(array, value, sharding.spec) if any(value.padding) else array
            for array, value, sharding in zip(self._run(*tiled), outputs, self.out_shardings, strict=True)
        ]

    def _cropped(self, array: jax.Array, value: Value, spec: PartitionSpec) -> jax.Array:
        """An output without padding: whole along it first, since tiles would be of unequal size."""
        whole = constrained(array, self.mesh, spec)
        return constrained(cropped(whole, value), self.mesh, spec)

    def _constrained(self, number: int, array: jax.Array) -> jax.Array:
        """An argument that is traced, in its sharding; others are there already."""
        if not isinstance(array, jax.core.Tracer):
            return array
        value, sharding = self.program.inputs[number], self.in_shardings[number]
        spec = other_spec(array, sharding)
        if spec is not None:
            raise _refused(
                self.program, value, f"it is placed as {spec}, and the program takes {sharding.spec}; reshard it first"
            )
        return array if AxisType.Explicit in self.mesh.axis_types else constrained(array, self.mesh, sharding.spec)


def accepted(
    program: Program, shardings: Sequence[NamedSharding], arrays: tuple[Any, ...], named: Mapping[str, Any]
) -> list[jax.Array]:
    """Arguments of a program, each of its input's shape and element type and, unless traced, in its sharding.

    Raises:
        ProgramError: if there are too few arrays or too many, or for the first that differs.
    """
    inputs, result = program.inputs, []
    arrays = in_order(program.name, arrays, named, [value.name for value in inputs])
    if len(arrays) != len(inputs):
        names = ", ".join(value.name for value in inputs) or "none"
        why = f"it has the inputs {names}, and {len(arrays)} arrays are given"
        raise ProgramError(program.name, "", "Arguments", why)
    for number, (value, sharding, array) in enumerate(zip(inputs, shardings, arrays, strict=True)):
        remedy = f"place it with jax.device_put(array, f.in_shardings[{number}])"
        form = array if isinstance(array, jax.Array) else host_form(array)
        if form is None:
            raise _refused(program, value, f"it is {shown(array)}, and no array; {remedy}")
        if (form.shape, str(form.dtype)) != (value.array_shape, value.dtype):
            expected = f"{value.dtype}{list(value.array_shape)}"
            why = f"it is {form.dtype}{list(form.shape)}, and the program takes {expected}"
            raise _refused(program, value, why)
        if not isinstance(array, jax.core.Tracer) and not _is_at(array, sharding):
            if not is_free(array):
                there, needed = described(array.sharding), described(sharding)
                raise _refused(program, value, f"it is placed as {there}, and the program takes {needed}; {remedy}")
            array = placed(array, sharding)
        result.append(array)
    return result


def _is_at(array: Any, sharding: NamedSharding) -> bool:
    return isinstance(array, jax.Array) and array.sharding.is_equivalent_to(sharding, array.ndim)


def _refused(program: Program, value: Value, why: str) -> ProgramError:
    return ProgramError(program.name, value.name, "Arguments", why)


def require_values(program: Program) -> None:
    """Refuse a program with values or bodies that JAX has not, on any place.

    Raises:
        ProgramError: as `program_to_jax` says.
    """
    places_of(check(program))
    for result in (value for inner in with_steps(program) for value in inner.values.values()):
        if not _is_enabled(result.dtype):
            raise ProgramError(
                "", result.name, "Place", f"it is of {result.dtype}, and JAX has none unless jax_enable_x64 is set; do "
                f"so, or take another element type",
            )  # fmt: skip
    require_bodies(program)
    for value in (*program.inputs, *(program.values[name] for name in program.outputs)):
        if value.type.partial:
            raise ProgramError(
                "", value.name, "Place", f"it is {value.form}, and programs in JAX begin and end with whole arrays; "
                f"move it to a type without partial sums",
            )  # fmt: skip
    require_tiles_apart(program)


def places_of(program: ProgramData) -> tuple[Place, ...]:
    """The places of a program's values and operations, those of loops and calls included, in order.

    Raises:
        ProgramError: if there are none.
    """
    programs = [*with_steps(program)]
    places = [value.place for inner in programs for value in inner.values.values()]
    places += [op.place for inner in programs for op in inner.ops if isinstance(op, Compute)]
    if not places:
        raise ProgramError(program.name, "", "Place", "it has no values and no operations; there is nothing to run")
    return tuple(dict.fromkeys(places))


def _is_enabled(dtype: str) -> bool:
    return dtype.startswith("key<") or jax.dtypes.canonicalize_dtype(dtype) == dtype_of(dtype)


def with_zeros(array: jax.Array, value: Value) -> jax.Array:
    """An array with zeros as the padding of its value."""
    return jnp.pad(array, [(0, more) for more in value.padding])


def at_the_edge(value: Value) -> DistType:
    """The type of an input or output without its padding: whole where it has some."""
    if not any(value.padding):
        return value.type
    dims = zip(value.type.dims, value.array_shape, value.padding, strict=True)
    return replace(value.type, dims=tuple(DimType(size, (), size) if more else dim for dim, size, more in dims))


def _sharding(value: Value, place: Place, mesh: jax.sharding.Mesh) -> NamedSharding:
    if place.mesh.names:
        return named_sharding(at_the_edge(value), place.mesh, mesh)
    if mesh.size != 1:
        sizes = {"size": 1, "given_size": mesh.size}
        raise ForeignMeshError("foreign mesh", mesh=str(place.mesh), given=str(dict(mesh.shape)), **sizes)
    return NamedSharding(mesh, PartitionSpec())


# ------------------------------------------------------------------------------------------------ operations


def compute(op: Compute, tiles: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The results of an operation on the running device."""
    env = {array: tiles[name] for array, name in op.ins}
    for part in op.parts:
        nest, operands = part.nest, [env[access.array] for access in part.nest.reads]
        points = placement_of(part.cut, op.place.mesh)
        ranges = [points_of(nest, points, device) for device in range(op.place.mesh.size)]
        places: dict[Any, int] = {}
        table = [places.setdefault(_traced_once(nest, at), len(places)) for at in ranges]
        branches = [partial(_results, op, nest, ranges[table.index(number)]) for number in range(len(places))]
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


def _traced_once(nest: Nest, at: Mapping[str, range]) -> Any:
    """Equal for the parts of a nest that run one trace of its body."""
    return nest.body.points(at) if isinstance(nest.body, Trimmed) else tuple(at.values())


def _results(op: Compute, nest: Nest, at: Mapping[str, range], *tiles: jax.Array) -> list[jax.Array]:
    """The results of the body of a nest on the points `at`."""
    assert nest.body is not None
    try:
        returned = traced(partial(nest.body, at), tiles)
        results = [jnp.asarray(result) for result in (returned if isinstance(returned, tuple) else (returned,))]
    except (jax.errors.JAXTypeError, TypeError, NotImplementedError, OverflowError) as error:
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
