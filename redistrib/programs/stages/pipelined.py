"""A JAX function that runs in stages, on one group of devices after the other: the result of `rd.pipeline`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from redistrib.arguments import in_order
from redistrib.backends.jax.contexts import in_own_context
from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.host_values import digest_of_host_value, from_host, is_of_host
from redistrib.backends.jax.meetings import Meeting, raised_in_all
from redistrib.backends.jax.platforms import quirks_of
from redistrib.digests import digest_of_parts
from redistrib.errors import ProgramError
from redistrib.errors.base import shown
from redistrib.lang.types import DimType, DistType
from redistrib.plans.dtypes import packed_bytes
from redistrib.programs.ir.launches import AnyLaunch, Launch, TransferLaunch, launches
from redistrib.programs.ir.program import Place, Program, Value
from redistrib.programs.run.arguments import forms_of, leaves_like
from redistrib.programs.run.jax.jitted import array_of, jitted, mesh_of, sharding_of
from redistrib.programs.run.prepared import Prepared
from redistrib.programs.stages.layout import Spread
from redistrib.programs.stages.parts import GraphInParts, Pieces
from redistrib.programs.stages.stacks import LayerRuns, joined, parted
from redistrib.report import Printed, counted
from redistrib.resharding.actions import route
from redistrib.resharding.checks import HostValue
from redistrib.resharding.entry import move_tree
from redistrib.resharding.planning import Planner

_FUNCTION = "pipeline"


class Transfer(NamedTuple):
    """A value that is sent from one group of devices to another.

    Attributes:
        value: its name in the program.
        source, target: numbers of the devices.
        bytes: of the value on all receivers together.
        by: `"plan"`, a plan of ours between the device sets, or `"device_put"`, where tiles go as they are inside one
            process, which `jax.device_put` does as well.
    """

    value: str
    source: tuple[int, ...]
    target: tuple[int, ...]
    bytes: int
    by: str


class Pipelined(Printed):
    """A function of arrays that runs in stages; the result of `rd.pipeline`.

    Attributes:
        program: the program of every device, in order; print it for a table, or simulate it.
        layout: how it is spread.
        devices: the JAX devices, by their numbers in the program.
        unrolled: a line for each loop whose steps are separate operations, though the function does not ask for that,
            with the reason; compiling takes longer then.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> step = lambda x, v, w: jnp.tanh(x @ v) @ w
    >>> args = jnp.ones((8, 4)), jnp.ones((4, 4)), jnp.ones((4, 2))
    >>> f = rd.pipeline(step, args, {"x": 0}, rd.Layout(pipeline=2, microbatches=4))
    >>> f
    Pipelined(<lambda> as pipeline 2, microbatches 4 on 2 devices)
    >>> {transfer.bytes for transfer in f.transfers}
    {32}
    """

    def __init__(
        self,
        prepared: Prepared,
        spread_program: Spread,
        devices: Sequence[Any],
        parts: GraphInParts | None = None,
        prologue: Program | None = None,
        unrolled: Sequence[str] = (),
    ) -> None:
        self.unrolled = tuple(unrolled)
        self.program, self.layout, self.devices = spread_program.program, spread_program.layout, tuple(devices)
        self._name, self._batch, self._traced = prepared.name, spread_program.batch, prepared.traced
        self._parameters = prepared.parameters
        leaves, self._tree = jax.tree_util.tree_flatten(prepared.args)
        self._forms = forms_of(leaves)
        graph = prepared.traced.graph
        self._inputs = parts.inputs if parts else tuple(Pieces((array.name,)) for array in graph.inputs)
        self._outputs = parts.outputs if parts else tuple(Pieces((name,)) for name in self._batch.outputs)
        self._prologue = prologue
        self._meshes: dict[Place, jax.sharding.Mesh] = {}
        self._compiled: dict[int, Callable[..., list[jax.Array]]] = {}
        self._items: list[AnyLaunch] = launches(self.program)
        self._in_turn = quirks_of(devices[0].platform).one_at_a_time

    def __repr__(self) -> str:
        return f"Pipelined({self._name} as {self.layout.in_words} on {len(self.devices)} devices)"

    def _text(self) -> str:
        """The table of the program, the number of launches, and how values are sent between groups of devices."""
        runs = counted(sum(isinstance(item, Launch) for item in self._items), "launch", "launches")
        ways = [transfer.by for transfer in self.transfers]
        sent = ", ".join(f"{ways.count(way)} by {way}" for way in dict.fromkeys(ways)) or "none"
        lines = [str(self.program), f"{runs}; values sent between groups of devices: {sent}", *self.unrolled]
        return "\n".join(lines)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """The values that are sent from one group of devices to another, in order."""
        return tuple(
            self._transfer(self.program.values[name], out)
            for item in self._items
            if isinstance(item, TransferLaunch)
            for name, out in zip(item.ins, item.outs, strict=True)
        )

    def _transfer(self, value: Value, out: Value) -> Transfer:
        before, after = self._array(value), self._array(out)
        by = "plan" if route(before.shape, before.sharding, after.sharding).action == "move" else "device_put"
        size = packed_bytes(out.type.local_size, out.dtype) * len(out.place.devices)
        return Transfer(value.name, value.place.devices, out.place.devices, size, by)

    # ------------------------------------------------------------------------------------------- running

    @in_own_context(computes=True)
    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results of the function.

        A result without examples stays in its layout, on the devices of its stage, so that new parameters are the
        next call's arguments as they are. Microbatches of a result with examples are joined, on the devices of its
        stage. Arguments, by place or by name, are moved to the layouts of the program's inputs. All processes call it
        with the same arguments, in the same order; a result on devices of other processes alone has no shards here.
        """
        with self._traced.mode():
            return self._run(args, named)

    def _run(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        names = [array.name for array in self._traced.graph.inputs]
        processes = {device.process_index for device in self.devices}
        with raised_in_all(_FUNCTION, lambda: processes):
            args = in_order(self._name, args, named, self._parameters)
            leaves = leaves_like(self._name, args, self._tree, self._forms, names, shapes=True)
            for name, leaf in zip(names, leaves, strict=False):  # constants are no arguments
                self._check_values(name, leaf)
            data = [*leaves, *self._traced.constants]
            for k in self._traced.in_keys:
                data[k] = jax.random.key_data(data[k])
            arrays = self._placed([*data, *self._before(data)])
        # Once for all values that the call sends: a message waits behind the arrays on the same links.
        meeting = Meeting(processes, _FUNCTION, "programs, layouts, devices or values of the host")
        if meeting.is_between:
            # An array that is committed to devices lies there alone, and other processes have none of its values.
            free = (v for v in leaves if isinstance(v, jax.Array) and is_of_host(v) and not v.committed)
            values = [*(v for v in leaves if isinstance(v, HostValue)), *free]
            meeting.require_equal(digest_of_parts([self._digest, *map(digest_of_host_value, values)]))
        with meeting.moving():
            self._run_items(arrays)
        return jax.tree_util.tree_unflatten(self._traced.out_tree, list(self._results(arrays)))

    def _check_values(self, name: str, leaf: Any) -> None:
        """Refuse an argument that has no elements here."""
        if isinstance(leaf, jax.core.Tracer):
            why = "it is traced, and each stage is a compiled function of its own; call it outside of jit"
            raise ProgramError(self._name, name, "Arguments", why)
        if isinstance(leaf, jax.ShapeDtypeStruct) and (leaf.sharding is None or leaf.sharding.addressable_devices):
            why = f"it is {shown(leaf)}, which has no elements here; give an array"
            raise ProgramError(self._name, name, "Arguments", why)

    def _run_items(self, arrays: dict[str, jax.Array]) -> None:
        """Launch every part of the program in turn."""
        for item in self._items:
            if isinstance(item, Launch):
                self._launch(item, arrays)
            else:
                self._send(item, arrays)
            for name in item.drops:
                arrays.pop(name, None)

    @cached_property
    def _digest(self) -> str:
        sent = [(out.name, out.form, out.place.devices) for item in self._items for out in item.outs]
        return digest_of_parts(
            [self._name, str(self.layout), [device.id for device in self.devices], sent, self._traced.digest]
        )

    def _launch(self, item: Launch, arrays: dict[str, jax.Array]) -> None:
        mesh = self._mesh(item.place)
        if not _is_local(mesh):
            return
        if id(item.program) not in self._compiled:
            self._compiled[id(item.program)] = jitted(item.program, mesh)
        results = self._compiled[id(item.program)](*(arrays[name] for name in item.ins))
        arrays |= {value.name: array for value, array in zip(item.outs, results, strict=True)}
        if self._in_turn and mesh.size > 1:
            jax.block_until_ready(results)

    def _send(self, item: TransferLaunch, arrays: dict[str, jax.Array]) -> None:
        values = [self.program.values[name] for name in item.ins]
        source, target = (self._mesh(side[0].place) for side in (values, item.outs))
        if not (_is_local(source) or _is_local(target)):
            return
        moving = [arrays[value.name] if value.name in arrays else self._array(value) for value in values]
        moved = resharded(moving, [self._array(out).sharding for out in item.outs], agreed=True)
        arrays |= {out.name: array for out, array in zip(item.outs, moved, strict=True) if _is_local(target)}

    def _mesh(self, place: Place) -> jax.sharding.Mesh:
        if place not in self._meshes:
            self._meshes[place] = mesh_of(place, self.devices)
        return self._meshes[place]

    def _array(self, value: Value) -> jax.ShapeDtypeStruct:
        return array_of(value, self._mesh(value.place))

    # ------------------------------------------------------------------------------------------- arguments

    def _before(self, leaves: Sequence[Any]) -> Sequence[jax.Array]:
        """The results of the prologue. Every process has the whole batch, and computes them for itself."""
        if self._prologue is None:
            return ()
        given = {array.name: leaf for array, leaf in zip(self._traced.graph.inputs, leaves, strict=True)}
        (place,) = {value.place for value in self._prologue.values.values()}
        mesh = mesh_of(
            place,
            [device for device in self.devices if device.process_index == jax.process_index()] or jax.local_devices(),
        )
        if id(self._prologue) not in self._compiled:
            self._compiled[id(self._prologue)] = jitted(self._prologue, mesh)
        arrays = []
        for value in self._prologue.inputs:
            self._require_whole(value.name, given[value.name])
            arrays.append(jax.device_put(given[value.name], sharding_of(value, mesh)))
        return self._compiled[id(self._prologue)](*arrays)

    def _placed(self, leaves: Sequence[Any]) -> dict[str, jax.Array]:
        """The inputs of the program, microbatch by microbatch."""
        values = iter(self.program.inputs)
        arrays: dict[str, jax.Array] = {}
        moving: list[tuple[Value, jax.Array]] = []
        for pieces, leaf in zip(self._inputs, leaves, strict=True):
            for part in self._parts(pieces, leaf):
                value = next(values)
                to = self._array(value)
                if _must_move(part, to.sharding):
                    moving.append((value, part))
                elif isinstance(part, jax.Array) and _has_sharding(part, to.sharding):
                    arrays[value.name] = part
                else:
                    arrays[value.name] = from_host(np.asarray(part, to.dtype), to.sharding)
        moved = resharded([part for _, part in moving], [self._array(value).sharding for value, _ in moving])
        return arrays | {value.name: array for (value, _), array in zip(moving, moved, strict=True)}

    def _parts(self, pieces: Pieces, whole: Any) -> Sequence[Any]:
        """An argument as the inputs of the program: one, one for each microbatch, or one for each run of layers."""
        if len(pieces.names) == 1:
            return self._microbatches(pieces.names[0], whole)
        to = [self._array(self.program.values[name]).sharding for name in pieces.names]
        return parted(pieces.names[0], whole, pieces, to)

    def _microbatches(self, name: str, whole: Any) -> Sequence[Any]:
        role, count = self._batch.roles[name], self.layout.microbatches
        if role.kind != "batched" or count == 1:
            return [whole]
        if not isinstance(whole, jax.Array):
            return np.split(np.asarray(whole), count, role.dim)
        self._require_whole(name, whole)
        return jnp.split(whole, count, role.dim)

    def _require_whole(self, name: str, array: Any) -> None:
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            raise ProgramError(
                self._name, name, "Arguments", "an array of several processes is not cut into microbatches; give every "
                "process the whole of it, as a NumPy array",
            )  # fmt: skip

    # ------------------------------------------------------------------------------------------- results

    def _results(self, arrays: Mapping[str, jax.Array]) -> Iterator[jax.Array | LayerRuns]:
        outputs = iter(self.program.outputs)
        for k, pieces in enumerate(self._outputs):
            parts = [self._result(name, outputs, arrays) for name in pieces.names]
            if len(parts) > 1:
                yield joined(parts, pieces.dim)
            else:
                yield self._as_keys(parts[0], k) if k in self._traced.out_keys else parts[0]

    def _as_keys(self, array: jax.Array, number: int) -> jax.Array:
        """A result that is keys of random numbers, from their integers."""
        if array.addressable_shards:
            keys: jax.Array = jax.random.wrap_key_data(array, impl=self._traced.out_keys[number])
            return keys
        form = self._traced.outputs[number]
        assert isinstance(array.sharding, NamedSharding)
        spec = PartitionSpec(*array.sharding.spec[: len(form.shape)])
        return without_shards(form.shape, form.dtype, NamedSharding(array.sharding.mesh, spec))

    def _result(self, name: str, outputs: Iterator[str], arrays: Mapping[str, jax.Array]) -> jax.Array:
        """A result of the program, its microbatches joined."""
        role = self._batch.roles[name]
        parts = [next(outputs) for _ in range(self.layout.microbatches if role.kind == "batched" else 1)]
        value, mesh = self.program.values[parts[0]], self._mesh(self.program.values[parts[0]].place)
        value = _joined(value, role.dim, len(parts))
        to = sharding_of(value, mesh)
        if not _is_local(mesh):
            shape = value.type.global_shape
            return without_shards(shape, value.dtype, NamedSharding(mesh, PartitionSpec(*to.spec[: len(shape)])))
        if len(parts) == 1:
            return arrays[parts[0]]
        whole: jax.Array = _join(role.dim, to)(*(arrays[part] for part in parts))
        return whole


def _is_local(mesh: jax.sharding.Mesh) -> bool:
    return any(device.process_index == jax.process_index() for device in mesh.devices.flat)


def _must_move(array: Any, to: NamedSharding) -> bool:
    """Whether an array lies on devices in another layout, and must be moved."""
    if not isinstance(array, jax.Array) or _has_sharding(array, to):
        return False
    return jax.process_count() == 1 or not array.is_fully_addressable


def _has_sharding(array: jax.Array, to: NamedSharding) -> bool:
    if array.sharding == to:  # the quickest to see, and the most frequent
        return array.committed
    same = array.sharding.device_set == to.device_set and array.sharding.is_equivalent_to(to, array.ndim)
    return same and array.committed


def resharded(arrays: Sequence[Any], shardings: Sequence[Any], agreed: bool = False) -> Sequence[jax.Array]:
    """Arrays on other shardings; `agreed` if all processes have agreed on the call."""
    if not arrays:
        return []
    planner = Planner(None, None, None)
    moved: list[jax.Array] = move_tree(list(arrays), list(shardings), planner, progress=False, agreed=agreed)
    return moved


def _joined(value: Value, dim: int, count: int) -> Value:
    """The value of `count` microbatches together."""
    dims = list(value.type.dims)
    if count > 1:
        dims[dim] = DimType(dims[dim].tile * count, dims[dim].axes, dims[dim].size * count)
    return replace(value, type=DistType(tuple(dims)))


def _join(dim: int, to: NamedSharding) -> Callable[..., jax.Array]:
    return jax.jit(lambda *parts: jnp.concatenate(parts, dim), out_shardings=to)
