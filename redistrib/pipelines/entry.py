"""`pipeline`: a JAX function as a program in stages, run on one group of devices after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.staged import array_of, mesh_of, sharding_of, staged
from redistrib.backends.jax.xla_cpu.quirks import quirks_of
from redistrib.cost.model import CostModel
from redistrib.cost.presets import preset_of
from redistrib.distribution.arguments import forms_of, leaves_like
from redistrib.distribution.prepared import Prepared, prepare
from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.partitioning.build import build
from redistrib.partitioning.propagate import Propagation
from redistrib.partitioning.tactics import matching
from redistrib.partitioning.versions import LayoutBuilder
from redistrib.pipelines.layout import Layout, Spread
from redistrib.pipelines.spreading import spread
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.graph import Array
from redistrib.programs.launches import Item, Launch, TransferLaunch, launches
from redistrib.programs.program import Place, Program, Value
from redistrib.report import counted
from redistrib.resharding import agreement
from redistrib.resharding.actions import route
from redistrib.resharding.entry import move_tree
from redistrib.resharding.planning import Planner


def pipeline(
    fn: Callable[..., Any],
    args: Sequence[Any],
    batch: Mapping[str, int],
    layout: Layout,
    *,
    devices: Any = None,
    cost_model: CostModel | str | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Pipelined:
    """Run a JAX function in stages: replicas, tensor parts, groups of devices, microbatch by microbatch.

    The function, a training step differentiated inside or a forward pass, is traced as `distribute` does and spread as
    `spread` does. Each stage is one `jax.jit` over the devices of its group, called for each
    microbatch in the order that the layout names; `reshard` moves values between groups. The results are those of the
    function. See docs/simulate.md.

    Args:
        fn: a function of arrays and trees of them. Only a loss, gradients and an update, at its end, may read sums over
            examples; no other operation may mix examples, as a norm over the batch does.
        args: its arguments, as arrays or as `jax.ShapeDtypeStruct`.
        batch: for arguments with examples, by the name of the parameter, the path of a leaf or a pattern, the
            dimension that runs over them.
        layout: how many replicas, tensor parts, groups of devices and microbatches, in which order; `tensor_dims` by
            names as in `batch`.
        devices: of JAX, as many as the layout takes, or a mesh of them; by default the first that JAX has.
        cost_model: the objective of plans inside a group; by default the preset of the devices' platform.
        rules: of primitives, as `distribute` takes them.

    Returns:
        A function of the same arguments, with `program` to print or to simulate, and `transfers`, the values that
        go between groups, with a plan or by `jax.device_put`.

    Raises:
        ProgramError: if examples meet before the end, numbers do not divide, devices are too few, or the order cannot
            run.

    >>> import jax.numpy as jnp
    >>> from redistrib.pipelines.layout import Layout
    >>> x, w = jnp.ones((8, 4)), jnp.ones((4, 2))
    >>> f = pipeline(lambda x, w: x @ w, (x, w), {"x": 0}, Layout(microbatches=2))
    >>> f(x, w).shape
    (8, 2)
    """
    chosen = devices_of(devices, layout)
    prepared = prepare(fn, args, Mesh(()), None, None, rules, opens_loops=False)
    cuts = {array: dim for array, dim, _ in _named(layout.tensor_dims, prepared.traced.graph.inputs)}
    model = cost_model or preset_of(chosen[0].platform)
    spread_program = spread(*on_one_device(prepared, batch), replace(layout, tensor_dims=cuts), cost_model=model)
    return Pipelined(prepared, spread_program, chosen)


def on_one_device(prepared: Prepared, batch: Mapping[str, int]) -> tuple[Program, dict[str, int]]:
    """A traced function as a program on one device, and for its inputs with examples the dimension of these.

    Raises:
        ProgramError: if the batch names no argument.
    """
    graph = prepared.traced.graph
    examples = {array: dim % max(len(shape), 1) for array, dim, shape in _named(batch, graph.inputs)}
    return build(Propagation(graph, Mesh(())), LayoutBuilder("exact", name=prepared.name)), examples


def devices_of(chosen: Any, layout: Layout) -> list[Any]:
    """The JAX devices that a layout takes, by default the first.

    Raises:
        ProgramError: if there are too few, or others are given than it takes.
    """
    devices = list(chosen.devices.flat if isinstance(chosen, jax.sharding.Mesh) else chosen or jax.devices())
    if len(devices) < layout.devices or (chosen is not None and len(devices) > layout.devices):
        raise ProgramError(
            "", "", "Place", f"layout {layout} takes {layout.devices} devices, and {len(devices)} are given"
        )
    return devices[: layout.devices]


def _named(by_name: Mapping[str, Any], inputs: Sequence[Array]) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    for pattern, dim in by_name.items():
        arrays = matching(pattern, inputs)
        if not arrays:
            raise ProgramError(
                "", pattern, "Batch", "no argument is called so; give a parameter's name, or a leaf's path"
            )
        yield from ((array.name, dim, array.shape) for array in arrays)


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


class Pipelined:
    """A function of arrays that runs in stages; the result of `rd.pipeline`.

    Attributes:
        program: the program of every device, in order; print it for a table, or simulate it.
        layout: how it is spread.
        devices: the JAX devices, by their numbers in the program.
    """

    def __init__(self, prepared: Prepared, spread_program: Spread, devices: Sequence[Any]) -> None:
        self.program, self.layout, self.devices = spread_program.program, spread_program.layout, tuple(devices)
        self._name, self._batch, self._traced = prepared.name, spread_program.batch, prepared.traced
        leaves, self._tree = jax.tree_util.tree_flatten(prepared.args)
        self._forms = forms_of(leaves)
        self._meshes: dict[Place, jax.sharding.Mesh] = {}
        self._compiled: dict[int, Callable[..., list[jax.Array]]] = {}
        self._items: list[Item] = launches(self.program)
        self._in_turn = quirks_of(devices[0].platform).one_at_a_time

    def __repr__(self) -> str:
        return f"Pipelined({self._name} as {self.layout} on {len(self.devices)} devices)"

    def __str__(self) -> str:
        """The table of the program, the number of launches, and how values are sent between groups of devices."""
        runs = counted(sum(isinstance(item, Launch) for item in self._items), "launch", "launches")
        ways = [transfer.by for transfer in self.transfers]
        sent = ", ".join(f"{ways.count(way)} by {way}" for way in dict.fromkeys(ways)) or "none"
        return f"{self.program}\n{runs}; values sent between groups of devices: {sent}"

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
        size = out.type.local_size * itemsize_of(out.dtype) * len(out.place.devices)
        return Transfer(value.name, value.place.devices, out.place.devices, size, by)

    # ------------------------------------------------------------------------------------------- running

    def __call__(self, *args: Any) -> Any:
        """The results of the function.

        A result without examples stays in its layout, on the devices of its stage, so that new parameters are the
        next call's arguments as they are. Microbatches of a result with examples are joined, on the devices of its
        stage. Arguments are moved to the layouts of the program's inputs. All processes call it with the same
        arguments, in the same order; a result on devices of other processes alone has no shards here.
        """
        names = [value.name for value in self._batch.inputs]
        leaves = leaves_like(self._name, args, self._tree, self._forms, names, shapes=True)
        arrays = self._placed([*leaves, *self._traced.constants])
        self._agree()
        for item in self._items:
            if isinstance(item, Launch):
                self._launch(item, arrays)
            else:
                self._send(item, arrays)
            for name in item.drops:
                arrays.pop(name, None)
        return jax.tree_util.tree_unflatten(self._traced.out_tree, list(self._results(arrays)))

    def _agree(self) -> None:
        """Agree once on all values that the call sends: a message waits behind the arrays on the same links."""
        processes = sorted({device.process_index for device in self.devices})
        if len(processes) > 1 and jax.process_index() in processes:
            agreement.agree(processes, self._digest)

    @cached_property
    def _digest(self) -> str:
        sent = [(out.name, out.form, out.place.devices) for item in self._items for out in item.outs]
        return agreement.digest_of([self._name, str(self.layout), [device.id for device in self.devices], sent])

    def _launch(self, item: Launch, arrays: dict[str, jax.Array]) -> None:
        mesh = self._mesh(item.place)
        if not _is_local(mesh):
            return
        if id(item.program) not in self._compiled:
            self._compiled[id(item.program)] = staged(item.program, mesh)
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

    def _placed(self, leaves: Sequence[Any]) -> dict[str, jax.Array]:
        """The inputs of the program, microbatch by microbatch."""
        values = iter(self.program.inputs)
        arrays: dict[str, jax.Array] = {}
        moving: list[tuple[Value, jax.Array]] = []
        for k, (original, leaf) in enumerate(zip(self._batch.inputs, leaves, strict=True)):
            data = jax.random.key_data(leaf) if k in self._traced.in_keys else leaf
            for part in self._microbatches(original.name, data):
                value = next(values)
                to = self._array(value)
                if _must_move(part, to.sharding):
                    moving.append((value, part))
                elif isinstance(part, jax.Array) and _has_sharding(part, to.sharding):
                    arrays[value.name] = part
                else:
                    arrays[value.name] = _from_host(part, to)
        moved = resharded([part for _, part in moving], [self._array(value).sharding for value, _ in moving])
        return arrays | {value.name: array for (value, _), array in zip(moving, moved, strict=True)}

    def _microbatches(self, name: str, whole: Any) -> Sequence[Any]:
        role, count = self._batch.roles[name], self.layout.microbatches
        if role.kind != "batched" or count == 1:
            return [whole]
        if not isinstance(whole, jax.Array):
            return np.split(np.asarray(whole), count, role.dim)
        if not whole.is_fully_addressable:
            raise ProgramError(
                self._name, name, "Arguments", "an array of several processes is not cut into microbatches; give every "
                "process the whole of it, as a NumPy array",
            )  # fmt: skip
        return jnp.split(whole, count, role.dim)

    # ------------------------------------------------------------------------------------------- results

    def _results(self, arrays: Mapping[str, jax.Array]) -> Iterator[jax.Array]:
        outputs = iter(self.program.outputs)
        for k, (name, form) in enumerate(zip(self._batch.outputs, self._traced.outputs, strict=True)):
            role = self._batch.roles[name]
            parts = [next(outputs) for _ in range(self.layout.microbatches if role.kind == "batched" else 1)]
            value, mesh = self.program.values[parts[0]], self._mesh(self.program.values[parts[0]].place)
            to = sharding_of(_joined(value, role.dim, len(parts)), mesh)
            key = self._traced.out_keys.get(k)
            if not _is_local(mesh):
                to = NamedSharding(mesh, PartitionSpec(*to.spec[: len(form.shape)]))
                yield without_shards(form.shape, form.dtype, to)
                continue
            array = arrays[parts[0]]
            if len(parts) > 1:
                array = _join(role.dim, to)(*(arrays[part] for part in parts))
            yield array if key is None else jax.random.wrap_key_data(array, impl=key)


def _is_local(mesh: jax.sharding.Mesh) -> bool:
    return any(device.process_index == jax.process_index() for device in mesh.devices.flat)


def _must_move(array: Any, to: NamedSharding) -> bool:
    """Whether an array lies on devices in another layout, and must be moved."""
    if not isinstance(array, jax.Array) or _has_sharding(array, to):
        return False
    return jax.process_count() == 1 or not array.is_fully_addressable


def _has_sharding(array: jax.Array, to: NamedSharding) -> bool:
    same = array.sharding.device_set == to.device_set and array.sharding.is_equivalent_to(to, array.ndim)
    return same and array.committed


def _from_host(array: Any, to: jax.ShapeDtypeStruct) -> jax.Array:
    whole = np.asarray(array, to.dtype)
    placed: jax.Array = jax.make_array_from_callback(to.shape, to.sharding, lambda index: whole[index], dtype=to.dtype)
    return placed


def resharded(arrays: Sequence[Any], shardings: Sequence[Any], agreed: bool = False) -> Sequence[jax.Array]:
    """Arrays on other shardings; `agreed` if all processes have agreed on the call."""
    if not arrays:
        return []
    planner = Planner(None, None, None)
    moved: list[jax.Array] = move_tree(
        list(arrays), list(shardings), None, None, planner, progress=False, agreed=agreed
    )
    return moved


def _joined(value: Value, dim: int, count: int) -> Value:
    """The value of `count` microbatches together."""
    dims = list(value.type.dims)
    if count > 1:
        dims[dim] = DimType(dims[dim].tile * count, dims[dim].axes, dims[dim].size * count)
    return replace(value, type=DistType(tuple(dims)))


def _join(dim: int, to: NamedSharding) -> Callable[..., jax.Array]:
    return jax.jit(lambda *parts: jnp.concatenate(parts, dim), out_shardings=to)
