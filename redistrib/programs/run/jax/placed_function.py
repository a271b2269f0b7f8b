"""A program on several places as a function of `jax.Array`s: a pipeline, or arrays that begin and end on one device.

Each stretch of operations on one place is a jitted function over the devices of the place. Values go from place to
place as they are, or cut anew, by `jax.device_put`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from redistrib.backends.jax.contexts import in_own_context
from redistrib.backends.jax.platforms import quirks_of
from redistrib.backends.refusals import refusal
from redistrib.errors import ForeignMeshError, ProgramError
from redistrib.plans.data import Schedule
from redistrib.programs.ir.check import check
from redistrib.programs.ir.data import ProgramData
from redistrib.programs.ir.inline import with_steps
from redistrib.programs.ir.launches import AnyLaunch, Launch, TransferLaunch, launches
from redistrib.programs.ir.program import Call, Compute, Loop, Place, Program, Value
from redistrib.programs.ir.reference import cropped
from redistrib.programs.run.jax.jitted import jitted, mesh_of, sharding_of
from redistrib.programs.run.jax.program_function import (
    ProgramFunction,
    accepted,
    at_the_edge,
    compute,
    places_of,
    require_values,
    with_zeros,
)

_REDUCED: dict[str | None, Callable[..., jax.Array]] = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min}


def program_to_jax(
    program: Program, mesh: jax.sharding.Mesh, *, schedule: Schedule | None = None
) -> ProgramFunction | PlacedFunction:
    """The function of a program: from a global array for each input to a global array for each output.

    A program on one place is a single `shard_map`, and may be called eagerly and under `jax.jit`. A program on several
    places, a pipeline or one from `rd.partition(root=True)`, is a jitted function for each stretch of operations on one
    place; `jax.device_put` moves values between places. It is called eagerly, in one process.

    JAX has no arrays with tiles of unequal size. An array that a cut does not divide is whole along it as an input and
    as an output.

    Bodies of nests are traced. They may use `jax.numpy`, operators, or functions of NumPy that `jax.numpy` has under
    the same name. The result of a body is converted to the value's element type, as under MPI. A body that needs the
    start of its part is traced once for each start, and every device runs the trace of its start.

    Args:
        program: the program.
        mesh: for one place a JAX mesh with the axes of the place's mesh, whose devices get the device numbers of the
            place; for a place of one device, any mesh of one device. For several places any mesh with enough devices:
            device number k of the program is device k of the mesh, in order.
        schedule: of the plans of moves, see `to_jax`; for one place.

    Raises:
        ProgramError: if the program is invalid, begins or ends with partial sums, has tiles that overlap, a nest
            without a body, or a loop whose step is on several places, or needs 64 bits without `jax_enable_x64`; if an
            operation reads a value on the same devices in another order; or if devices of several processes run a
            program on several places.
        ForeignMeshError: if the mesh has other axes than the program's, or too few devices.
    """
    if len(places_of(check(program))) == 1:
        return ProgramFunction(program, mesh, schedule)
    if schedule is not None:
        raise ProgramError(
            program.name, "", "Arguments", "a schedule is for the plans of one place; leave schedule= out"
        )
    return PlacedFunction(program, mesh)


class PlacedFunction:
    """A program on several places, as a function; the result of `program_to_jax` for such a program.

    Attributes:
        program: the program.
        mesh: the JAX mesh; its devices, in order, have the numbers of the program's devices.
        in_shardings, out_shardings: shardings of the inputs and outputs, in order, each over the devices of its place.
    """

    def __init__(self, program: Program, mesh: jax.sharding.Mesh) -> None:
        self._items = require_places(program)
        self.program, self.mesh = program, mesh
        self._devices = [*mesh.devices.flat]
        count = 1 + max(number for value in program.values.values() for number in value.place.devices)
        if len(self._devices) < count:
            sizes = {"size": count, "given_size": len(self._devices)}
            raise ForeignMeshError("foreign mesh", mesh=f"of {count} devices", given=str(dict(mesh.shape)), **sizes)
        if len({device.process_index for device in self._devices}) > 1:
            raise ProgramError(
                program.name, "", "Place", "it is on several places, and jax.device_put, which moves values between "
                "them, stays inside one process; run it by rd.to_mpi, or the JAX function by rd.pipeline",
            )  # fmt: skip
        inner = {value.name: value for item in self._items for value in item.outs}  # those of calls are there too
        self._values = {**program.values, **inner}
        self._meshes: dict[Place, jax.sharding.Mesh] = {}
        self._compiled: dict[int, Callable[..., list[jax.Array]]] = {}
        outputs = [program.values[name] for name in program.outputs]
        self.in_shardings, self.out_shardings = (
            tuple(map(self._edge_sharding, side)) for side in (program.inputs, outputs)
        )
        self._in_turn = quirks_of(self._devices[0].platform).one_at_a_time

    def __repr__(self) -> str:
        places = dict.fromkeys(value.place for value in self.program.values.values())
        return f"PlacedFunction({self.program.name} on {len(places)} places of {dict(self.mesh.shape)})"

    @in_own_context(computes=True)
    def __call__(self, *arrays: Any, **named: Any) -> list[jax.Array]:
        """An array for each output, with its sharding of `out_shardings`.

        Values of NumPy and arrays that are not committed to a device are placed, as `jax.jit` does.

        Args:
            arrays, named: an array for each input, by place or by name.

        Raises:
            ProgramError: if there are too few arrays or too many, or one differs from its input in shape, element type
                or sharding, or is no array, or is traced.
        """
        values = self.program.inputs
        checked = accepted(self.program, self.in_shardings, arrays, named)
        for value, array in zip(values, checked, strict=True):
            if isinstance(array, jax.core.Tracer):
                raise ProgramError(
                    self.program.name, value.name, "Arguments", "it is traced, and a program on several places is one "
                    "compiled function for each; call it outside of jit",
                )  # fmt: skip
        env = {value.name: self._padded(array, value) for value, array in zip(values, checked, strict=True)}
        for item in self._items:
            if isinstance(item, Launch):
                env |= self._launched(item, env)
            else:
                env |= self._sent(item, env)
            for name in item.drops:
                env.pop(name, None)
        return [self._cropped(env[name], self.program.values[name]) for name in self.program.outputs]

    def _padded(self, array: jax.Array, value: Value) -> jax.Array:
        return jax.device_put(with_zeros(array, value), self._sharding(value)) if any(value.padding) else array

    def _cropped(self, array: jax.Array, value: Value) -> jax.Array:
        if not any(value.padding):
            return array
        whole: jax.Array = cropped(jax.device_put(array, self._edge_sharding(value)), value)
        return whole

    def _launched(self, item: Launch, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        mesh = self._mesh(item.place)
        if id(item.program) not in self._compiled:
            self._compiled[id(item.program)] = jitted(item.program, mesh, compute)
        results = self._compiled[id(item.program)](*(env[name] for name in item.ins))
        if self._in_turn and mesh.size > 1:
            jax.block_until_ready(results)
        return {value.name: array for value, array in zip(item.outs, results, strict=True)}

    def _sent(self, item: TransferLaunch, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        values = [self._values[name] for name in item.ins]
        whole = [self._whole(value, env[value.name]) for value in values]
        moved = jax.device_put(whole, [self._sharding(out) for out in item.outs])
        return {out.name: array for out, array in zip(item.outs, moved, strict=True)}

    def _whole(self, value: Value, array: jax.Array) -> jax.Array:
        """A value that leaves its place: its partial sums, which are stacked, are added first."""
        if not value.type.partial:
            return array
        reduce = jax.jit(partial(_REDUCED[value.type.reduction], axis=0))
        reduced: jax.Array = reduce(array)
        return reduced

    def _mesh(self, place: Place) -> jax.sharding.Mesh:
        if place not in self._meshes:
            self._meshes[place] = mesh_of(place, self._devices)
        return self._meshes[place]

    def _sharding(self, value: Value) -> NamedSharding:
        return sharding_of(value, self._mesh(value.place))

    def _edge_sharding(self, value: Value) -> NamedSharding:
        return self._sharding(replace(value, type=at_the_edge(value)))


def can(program: Program) -> str | None:
    """The reason why no JAX mesh can carry out a program, in one line; None if one can."""
    return refusal(require_program, program)


def require_program(program: Program) -> None:
    """Refuse a program that JAX cannot run.

    Raises:
        ProgramError: as `program_to_jax` says.
    """
    require_values(program)
    if len(places_of(program)) > 1:
        require_places(program)


def _reads(program: ProgramData) -> Iterator[tuple[str, str, Place]]:
    """For everything that an operation or a called program reads: its name, that of the value, and where it is read."""
    for op in program.ops:
        if isinstance(op, Compute):
            yield from ((op.name, name, op.place) for _, name in op.ins)
        elif isinstance(op, Call):
            yield from ((op.program.name, name, at.place) for name, at in zip(op.ins, op.program.inputs, strict=True))


def require_places(program: Program) -> list[AnyLaunch]:
    """Refuse a program that JAX cannot run place by place, and return its launches.

    Raises:
        ProgramError: names the value or operation, and the way out.
    """
    require_values(check(program))
    for op in program.ops:
        if isinstance(op, Loop) and len({value.place for inner in op.programs for value in inner.values.values()}) > 1:
            raise ProgramError(
                op.name, "", "Place", "a loop with a step on several places is no function that JAX compiles; unroll "
                "it, or run the program by rd.to_mpi",
            )  # fmt: skip
    for inner in (program, *with_steps(program)):  # a called program may have no operation that reads
        for op_name, name, place in _reads(inner):
            if inner.values[name].place != place:
                where = f"it is on {inner.values[name].place}, and its reader on {place}"
                why = f"{where}; arrays of JAX have one order of devices: move it to the place of the operation"
                raise ProgramError(op_name, name, "Place", why)
    items = launches(program)
    for item in items:
        for value in item.outs:
            if value.windows:
                raise ProgramError(
                    "", value.name, "Window", "its tiles overlap where its place waits for another; run it by rd.to_mpi"
                )
    return items
