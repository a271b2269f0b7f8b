"""A JAX function as a program over a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax.context import Platform
from redistrib.backends.jax.program import mapped, shardings
from redistrib.backends.jax.sharding import JaxMesh
from redistrib.backends.jax.trace.inline import Traced, trace
from redistrib.cost.model import CostModel
from redistrib.cost.presets import preset_of
from redistrib.distribution.arguments import forms_of, leaf_names, leaves_like
from redistrib.distribution.regions import LOOPS
from redistrib.distribution.regions import RULES as REGIONS
from redistrib.errors import MemoryLimitError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_named_sharding, from_partition_spec
from redistrib.lang.types import DistType, require_even
from redistrib.partitioning.build import build
from redistrib.partitioning.conflicts import replicated_operations, reshard_instead
from redistrib.partitioning.propagate import Choice, Propagation
from redistrib.partitioning.schedule import Schedule
from redistrib.partitioning.tactics import apply, matching
from redistrib.partitioning.versions import LayoutBuilder
from redistrib.programs.buffers import compiled_peak_bytes
from redistrib.programs.graph import Array
from redistrib.programs.live import peak_bytes
from redistrib.programs.program import Program
from redistrib.simulator.entry import simulate


def distributed(
    given: Prepared,
    mesh: JaxMesh,
    axes: Mesh,
    schedule: Any,
    cost_model: CostModel | str | None,
    *,
    donate: Sequence[str],
    memory_limit: int | None,
) -> Distributed:
    """A traced function, cut by a schedule; `redistrib.api.distribute` says what the arguments are.

    Args:
        given: the function, with types over the axes of the mesh.
        mesh, axes: the devices, as JAX has them and as ours.
        schedule: tactics, or what a search has found.
        cost_model: what the plans of moves minimise; None: the preset of the devices' platform.
        donate: arguments, by name.
        memory_limit: bytes on a device.

    Raises:
        CutError, ProgramError, MemoryLimitError: as `redistrib.api.distribute` does.
    """
    found = Propagation(given.traced.graph, axes)
    for array, form in given.starts.items():
        _pin(found, array, form)
    for number, form in given.ends.items():
        _pin(found, given.traced.graph.outputs[number], form)
    starts, ends, sources = given.starts, given.ends, None
    if isinstance(schedule, Schedule):
        schedule.decide(found)
        starts, ends, sources = schedule.starts | starts, schedule.ends | ends, schedule.sources
    else:
        apply(schedule, found)
        for axis in axes.names:
            reshard_instead(found, axis)
    model = cost_model or platform_of(mesh)
    donated = donated_by(donate, given.traced.graph.inputs)

    def built(keep: int | None) -> Program:
        builder = LayoutBuilder(model, keep, name=given.name, sources=sources)
        return build(found, builder, starts, ends, donated)

    program = built(None)
    tight = False
    if memory_limit is not None and (needed := peak(program)) > memory_limit:
        tight = True
        program = built(KEPT)
        if (least := peak(program)) > memory_limit:
            raise MemoryLimitError(
                memory_limit,
                min(least, needed),
                f"{given.name} distributed so takes {min(least, needed):,} bytes on a device at the least, more than "
                f"the limit of {memory_limit:,}; cut more arrays, or cut them further",
            )
    return Distributed(program, given, found, mesh, in_order=tight)


@dataclass(frozen=True)
class Prepared:
    """A function before anything is cut.

    Attributes:
        name: of the function.
        traced: the function as a graph.
        args: its arguments.
        starts: types of inputs that are given, by name.
        ends: types of outputs that are given, by number.
    """

    name: str
    traced: Traced
    args: tuple[Any, ...]
    starts: dict[str, DistType]
    ends: dict[int, DistType]


def prepare(
    function: Callable[..., Any], args: Any, mesh: Mesh, in_shardings: Any, out_shardings: Any,
    rules: Mapping[str, Any] | None, *, exact: bool = False, opens_loops: bool = False, platform: str = "",
    trip_count: int = 1,
) -> Prepared:  # fmt: skip
    """Trace a function, and read what is asked of its arguments and results."""
    args = tuple(args) if isinstance(args, tuple | list) else (args,)
    if not isinstance(exact, bool):
        raise ProgramError("", "", "Arguments", f"exact is {exact!r}; give True or False")
    require_trip_count(trip_count)
    known = {kind: rule for kind, rule in REGIONS.items() if not (opens_loops and kind in LOOPS)}
    names = leaf_names(function, args)
    how: dict[str, Any] = {"exact": exact, "opens_loops": opens_loops, "platform": platform, "trip_count": trip_count}
    traced = trace(function, args, names, {**known, **(rules or {})}, **how)
    arrays, graph = traced.graph.arrays(), traced.graph
    inputs = _types(in_shardings, args, [array.shape for array in graph.inputs], mesh)
    tree = jax.tree_util.tree_unflatten(traced.out_tree, traced.outputs)
    outputs = _types(out_shardings, tree, [arrays[name].shape for name in graph.outputs], mesh)
    starts = {graph.inputs[number].name: form for number, form in inputs.items()}
    return Prepared(getattr(function, "__name__", "main"), traced, args, starts, outputs)


def require_trip_count(count: Any) -> None:
    """Refuse what is no number of steps.

    Raises:
        ProgramError: if it is no integer from 0 on.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ProgramError("", "", "Arguments", f"trip_count is {count!r}; give the steps of a while, an integer")


def platform_of(mesh: JaxMesh) -> str:
    """The platform of the devices, as presets are called; of an abstract mesh that of the default backend."""
    return preset_of(Platform.of(mesh).name)


def donated_by(names: Sequence[str], inputs: Sequence[Array]) -> tuple[str, ...]:
    """The inputs that are given up, each once.

    Raises:
        CutError: if a name is that of no argument.
    """
    return tuple(dict.fromkeys(array.name for name in names for array in matching(name, inputs)))


KEPT = 16  # operations for which a moved array is kept, where memory is short


def peak(program: Program) -> int:
    """Bytes that the fullest device holds at the worst moment."""
    return max(peak_bytes(program).values(), default=0)


class Cost(NamedTuple):
    """What a call takes.

    Attributes:
        flops: floating-point operations of one device, of the operations that have some.
        received_bytes: bytes that all devices together receive from others.
        seconds: on devices and links as the preset of the platform has them.
    """

    flops: int
    received_bytes: int
    seconds: float


class Distributed:
    """A function of arrays, distributed: what `rd.distribute` returns.

    Attributes:
        program: what every device computes and moves; print it for a table.
        mesh: the JAX mesh; abstract where there are too few devices to run it.
        choices: where propagation had to choose, and why it took what it did; and where a cut ends.
        opaque: operations that every device runs whole, since nothing is known of them.
    """

    def __init__(
        self,
        program: Program,
        given: Prepared,
        found: Propagation,
        mesh: JaxMesh,
        *,
        in_order: bool,
    ) -> None:
        self.program, self.mesh, self._in_order = program, mesh, in_order
        traced = given.traced
        self.choices: tuple[Choice, ...] = (*found.choices, *replicated_operations(found))
        self.opaque = tuple((op.name, op.source, op.opaque) for op in traced.graph.operations if op.opaque)
        self._traced = traced
        leaves, self._tree = jax.tree_util.tree_flatten(given.args)
        self._forms = forms_of(leaves)
        values = [program.values[name] for name in program.outputs]
        self._ins, self._outs = shardings(program.inputs, mesh), shardings(values, mesh)

    def __repr__(self) -> str:
        return f"Distributed({self.program.name} on {Mesh.of(self.mesh)})"

    def __str__(self) -> str:
        """The table of the program, then what was chosen and what every device runs whole."""
        chosen = [f"{choice.operation}, axis {choice.axis!r}: {choice.why}" for choice in self.choices]
        whole = [f"{name} ({source}) is run whole by every device: {why}" for name, source, why in self.opaque]
        return "\n".join([str(self.program), *chosen, *whole])

    @property
    def in_shardings(self) -> Any:
        """How the arguments begin, as a tree like them."""
        known = self._traced.in_keys
        ends = [_of_keys(each) if k in known else each for k, each in enumerate(self._ins[: len(self._forms)])]
        return jax.tree_util.tree_unflatten(self._tree, ends)

    @property
    def out_shardings(self) -> Any:
        """How the results end, as a tree like them."""
        known = self._traced.out_keys
        ends = [_of_keys(each) if k in known else each for k, each in enumerate(self._outs)]
        return jax.tree_util.tree_unflatten(self._traced.out_tree, ends)

    def __call__(self, *args: Any) -> Any:
        """The results of the function, each placed as `out_shardings` says.

        Arguments that lie elsewhere are put where the program needs them first.
        """
        require_devices(self.program.name, self.mesh)
        leaves = self._leaves(args)
        placed = [
            jax.device_put(self._data(k, leaf), to) for k, (leaf, to) in enumerate(zip(leaves, self._ins, strict=False))
        ]
        return self._compiled(*placed, *self._constants)

    def lower(self, *args: Any, platform: str | None = None) -> Any:
        """As `jax.jit(f).lower`: for arrays, or shapes, or the arguments that the function was distributed for.

        Args:
            args: see above.
            platform: to lower for, such as `"tpu"`; by default that of the devices. On an abstract mesh what is lowered
                has a text, and cannot be compiled here.
        """
        if args:
            self._leaves(args, shapes=True)
        forms = [
            jax.ShapeDtypeStruct(value.type.global_shape, value.dtype, sharding=to)
            for value, to in zip(self.program.inputs, self._ins, strict=True)
        ]
        if platform is None and isinstance(self.mesh, jax.sharding.Mesh):
            return self._compiled.lower(*forms)
        chosen = platform or Platform.of(self.mesh).name
        return self._compiled.trace(*forms).lower(lowering_platforms=(chosen,))

    @cached_property
    def cost(self) -> Cost:
        """What a call takes, as the program predicts."""
        return Cost(
            self.program.flops, self.program.received_bytes, simulate(self.program, platform_of(self.mesh)).seconds
        )

    @cached_property
    def memory(self) -> int:
        """Bytes that the fullest device holds at the worst moment, as the program predicts."""
        return peak(self.program)

    @cached_property
    def compiled_memory(self) -> int:
        """The same where the compiler fuses what works element by element, as those of XLA do."""
        return max(compiled_peak_bytes(self.program).values(), default=0)

    def picture(self, path: str | Path) -> Path:
        """Draw the program into a file; see `redistrib.explain.draw_program`."""
        from redistrib.explain import draw_program

        return draw_program(self.program, path)

    def _leaves(self, args: tuple[Any, ...], *, shapes: bool = False) -> list[Any]:
        names = [value.name for value in self.program.inputs]
        return leaves_like(self.program.name, args, self._tree, self._forms, names, shapes=shapes)

    def _data(self, number: int, leaf: Any) -> Any:
        return jax.random.key_data(leaf) if number in self._traced.in_keys else leaf

    @cached_property
    def _constants(self) -> list[Any]:
        places = self._ins[len(self._forms) :]
        first = len(self._forms)
        data = [self._data(first + k, constant) for k, constant in enumerate(self._traced.constants)]
        return [jax.device_put(array, to) for array, to in zip(data, places, strict=True)]

    @cached_property
    def _compiled(self) -> Any:
        run = mapped(self.program, self.mesh, in_order=self._in_order)

        def call(*arrays: Any) -> Any:
            found = run(*arrays)
            keys = self._traced.out_keys
            found = [
                jax.random.wrap_key_data(array, impl=keys[k]) if k in keys else array for k, array in enumerate(found)
            ]
            return jax.tree_util.tree_unflatten(self._traced.out_tree, found)

        call.__name__ = self.program.name
        names = [value.name for value in self.program.inputs]
        return jax.jit(call, donate_argnums=[names.index(name) for name in self.program.donated])


def _of_keys(sharding: NamedSharding) -> NamedSharding:
    """How keys lie whose integers lie so: these have one more dimension."""
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:-1]))


def meshes(mesh: Any) -> tuple[JaxMesh, Mesh]:
    """A mesh as JAX has it, over the first devices unless it says which, and as ours.

    Where JAX has too few devices, or the mesh names none, it is an abstract mesh: all can be planned on it.
    """
    own = Mesh.of(mesh)
    if isinstance(mesh, jax.sharding.Mesh):
        return mesh, own
    kinds = (AxisType.Auto,) * len(own.names)
    devices = np.array(jax.devices()[: own.size])
    if len(devices) < own.size:
        return jax.sharding.AbstractMesh(own.shape, own.names, axis_types=kinds), Mesh(own.axes)
    return jax.sharding.Mesh(devices.reshape(own.shape), own.names, axis_types=kinds), Mesh(own.axes)


def require_devices(name: str, mesh: JaxMesh) -> jax.sharding.Mesh:
    """The mesh, over devices.

    Raises:
        ProgramError: if it is abstract; says how many devices are missing.
    """
    if isinstance(mesh, jax.sharding.Mesh):
        return mesh
    own, count = Mesh.of(mesh), len(jax.devices())
    missing = own.size - count
    raise ProgramError(
        "", "", "Place", f"{name} on mesh {own} needs {own.size} devices to run, and JAX has {count}: {missing} "
        f"{'is' if missing == 1 else 'are'} missing; program, memory, cost and lower() need none",
    )  # fmt: skip


def _types(given: Any, tree: Any, shapes: Sequence[tuple[int, ...]], mesh: Mesh) -> dict[int, DistType]:
    """The types that a tree of shardings, or a prefix of one, asks for, by number of the leaf."""
    if given is None:
        return {}

    def is_leaf(value: Any) -> bool:
        return value is None or isinstance(value, PartitionSpec | NamedSharding | str | DistType)

    flat = jax.tree_util.tree_leaves(
        jax.tree.map(
            lambda spec, below: [_Asked(spec)] * len(jax.tree_util.tree_leaves(below)), given, tree, is_leaf=is_leaf
        ),
        is_leaf=lambda value: isinstance(value, _Asked),
    )
    return {k: _type(one.spec, shapes[k], mesh) for k, one in enumerate(flat) if one.spec is not None}


class _Asked:
    def __init__(self, spec: Any) -> None:
        self.spec = spec


def _type(spec: Any, shape: tuple[int, ...], mesh: Mesh) -> DistType:
    if isinstance(spec, str | DistType):
        form = DistType.of(spec)
        require_even("distribute", form)
        return form
    if isinstance(spec, NamedSharding):
        form, other = from_named_sharding(spec, shape)
        for axis in form.axes:
            if axis not in mesh.names or mesh.axis(axis).size != other.axis(axis).size:
                raise ProgramError(
                    "", "", "Place", f"a sharding of {form} is over the mesh {other}, and the function is distributed "
                    f"over {mesh}; give shardings over axes of that mesh",
                )  # fmt: skip
        return form
    return from_partition_spec(spec, shape, mesh)


def _pin(found: Propagation, name: str, form: DistType) -> None:
    for axis in found.mesh.names:
        dim = next((k for k, one in enumerate(form.dims) if axis in one.axes), None)
        found.cut_array(name, axis, dim)
