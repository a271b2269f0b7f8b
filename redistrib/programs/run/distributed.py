"""A distributed function: its program, its cost, and calls of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec

from redistrib.arguments import in_order
from redistrib.backends.jax.contexts import in_own_context
from redistrib.backends.jax.host_values import digest_of_host_value, is_of_host
from redistrib.backends.jax.meetings import Meeting, processes_of, raised_in_all
from redistrib.backends.jax.memory_copies import loaded
from redistrib.backends.jax.platforms import Platform
from redistrib.backends.jax.sharding import JaxMesh, text_of
from redistrib.digests import digest_of_parts
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.text import digest_of
from redistrib.programs.rules.shard_maps import REGION
from redistrib.programs.run.arguments import forms_of, leaves_like, lies_at, put
from redistrib.programs.run.devices import require_devices
from redistrib.programs.run.jax.program import mapped, shardings
from redistrib.programs.run.prepared import Prepared
from redistrib.programs.run.received import compiled_received_bytes
from redistrib.programs.schedule.conflicts import replicated_operations
from redistrib.programs.schedule.graph_cuts import Choice
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.time.entry import simulated_with
from redistrib.programs.time.kernels.buffers import compiled_peak_bytes
from redistrib.programs.time.machine import Machine
from redistrib.programs.time.result import Simulation
from redistrib.report import Printed

_FUNCTION = "distribute"


class Cost(NamedTuple):
    """Time and memory of a call.

    Attributes:
        flops: floating-point operations of one device, of the operations that have some.
        received_bytes: bytes that all devices together receive from others, elements as they are.
        seconds: on the machine of `Distributed.machine`.

    >>> import jax.numpy as jnp
    >>> import redistrib as rd
    >>> args = jnp.ones((8, 4)), jnp.ones((4, 2))
    >>> f = rd.distribute(lambda x, w: x @ w, args, {"d": 4}, schedule=[rd.along("d", {"x": 0})])
    >>> f.cost.received_bytes, f.cost.flops
    (0, 32)
    """

    flops: int
    received_bytes: int
    seconds: float


class Distributed(Printed):
    """A function of arrays, distributed: the result of `rd.distribute`.

    Attributes:
        program: the program of every device; print it for a table.
        mesh: the JAX mesh; abstract where there are too few devices to run it.
        machine: on which `cost` and `memory` are predicted: as it was given, or the preset of the devices' platform.
        choices: where propagation had to choose, and the reason for its choice; and where a cut ends.
        opaque: operations that every device runs whole, since nothing is known of them.

    >>> import jax.numpy as jnp
    >>> from redistrib import along, distribute
    >>> doubled = distribute(lambda x: 2 * x, (jnp.ones((8, 8)),), "d=4", schedule=[along("d", {"x": 0})])
    >>> doubled, doubled.program.received_bytes, float(doubled(jnp.ones((8, 8)))[0, 0])
    (Distributed(<lambda> on {d:4}), 0, 2.0)
    """

    def __init__(
        self,
        program: Program,
        prepared: Prepared,
        propagation: Propagation,
        mesh: JaxMesh,
        machine: Machine,
        *,
        overlap: Overlap | None = None,
    ) -> None:
        """A function of a program.

        Args:
            program: of every device.
            prepared: the function.
            propagation: its cuts.
            mesh: its devices.
            machine: on which `cost` and `memory` are predicted.
            overlap: how far its moves run beside computations; None where they do not.
        """
        self.program, self.mesh, self.machine = program, mesh, machine
        self._in_order, self._overlap = propagation.keep is not None, overlap
        self._is_agreed = False  # all processes have compared the program
        traced = prepared.traced
        self.choices: tuple[Choice, ...] = (*propagation.choices, *replicated_operations(propagation))
        self.opaque = tuple((op.name, op.source, op.opaque) for op in traced.graph.operations if op.opaque)
        self._traced = traced
        self._parameters = prepared.parameters
        leaves, self._tree = jax.tree_util.tree_flatten(prepared.args)
        self._forms = forms_of(leaves)
        values = [program.values[name] for name in program.outputs]
        self._ins, self._outs = shardings(program.inputs, mesh), shardings(values, mesh)
        self._names = [value.name for value in program.inputs]

    def __repr__(self) -> str:
        return f"Distributed({self.program.name} on {Mesh.of(self.mesh)})"

    def _text(self) -> str:
        """The table of the program, the choices, the operations that every device runs whole, and the regions."""
        chosen = [f"{choice.operation}, axis {choice.axis!r}: {choice.why}" for choice in self.choices]
        whole = [f"{name} ({source}) is run whole by every device: {why}" for name, source, why in self.opaque]
        regions = [
            f"{op.name} ({op.source}) runs as it is written: what it moves by itself is not counted"
            for op in self._traced.graph.operations
            if op.kind == REGION
        ]
        return "\n".join([str(self.program), *chosen, *whole, *regions])

    @property
    def in_shardings(self) -> Any:
        """How the arguments begin, as a tree like them."""
        keys_at = self._traced.in_keys
        ends = [
            _of_keys(sharding) if k in keys_at else sharding for k, sharding in enumerate(self._ins[: len(self._forms)])
        ]
        return jax.tree_util.tree_unflatten(self._tree, ends)

    @property
    def out_shardings(self) -> Any:
        """How the results end, as a tree like them."""
        keys_at = self._traced.out_keys
        ends = [_of_keys(sharding) if k in keys_at else sharding for k, sharding in enumerate(self._outs)]
        return jax.tree_util.tree_unflatten(self._traced.out_tree, ends)

    @in_own_context(computes=True)
    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results of the function, each placed as `out_shardings` says.

        Arguments may be given by name. Those that lie elsewhere are put where the program needs them first. Where the
        mesh has devices of several processes, they compare their programs, and the values of arguments that are not on
        devices of several of them, in every call that is not traced.

        Raises:
            CommunicatorError: in all processes, if their programs or values differ, or one of them does not call.
        """
        require_devices(self.program.name, self.mesh)
        with self._traced.mode():
            return self._run(args, named)

    def _run(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        with raised_in_all(_FUNCTION, lambda: self._processes):
            leaves = self._leaves(args, named)
            placed = [loaded(leaf) if isinstance(leaf, jax.core.Tracer) else leaf for leaf in leaves]
            for k in self._traced.in_keys:
                if k < len(placed):
                    placed[k] = self._data(k, placed[k])
        # A call of `jax.device_put` takes longer for an array that is there than `jax.jit` takes for an argument.
        away = [k for k, leaf in enumerate(placed) if not lies_at(leaf, self._ins[k])]
        if len(self._processes) > 1:
            self._meet(placed, away)
        if away:
            moved = put([placed[k] for k in away], [self._ins[k] for k in away])
            for k, array in zip(away, moved, strict=True):
                placed[k] = array
        # A traced call holds what it captures as values of the host: JAX has no constants on several processes.
        captured = self._captured() if len(self._processes) > 1 and _is_traced(placed) else self._constants
        return self._compiled(*placed, *captured)

    @in_own_context(computes=True)
    def lower(self, *args: Any, platform: str | None = None, **named: Any) -> Any:
        """As `jax.jit(f).lower`: for arrays, or shapes, or the arguments that the function was distributed for.

        Args:
            args, named: see above.
            platform: the platform to lower for, `"tpu"` for instance; by default that of the devices. A program that is
                lowered for an abstract mesh has a text, and cannot be compiled here.
        """
        if args or named:
            self._leaves(args, named, shapes=True)
        forms = [
            jax.ShapeDtypeStruct(value.type.global_shape, value.dtype, sharding=to)
            for value, to in zip(self.program.inputs, self._ins, strict=True)
        ]
        with self._traced.mode():
            if platform is None and isinstance(self.mesh, jax.sharding.Mesh):
                return self._compiled.lower(*forms)
            chosen = platform or Platform.of(self.mesh).name
            return self._compiled.trace(*forms).lower(lowering_platforms=(chosen,))

    @cached_property
    def cost(self) -> Cost:
        """Time and memory of a call, as the program predicts."""
        return Cost(self.program.flops, self.program.received_bytes, self._simulation.seconds)

    @cached_property
    def memory(self) -> int:
        """Bytes that the fullest device holds at the worst moment, as the program predicts for its machine."""
        return max(self._simulation.peak_bytes.values(), default=0)

    @cached_property
    def _simulation(self) -> Simulation:
        return simulated_with(self._overlap, self.program, self.machine)

    @cached_property
    def compiled_memory(self) -> int:
        """The same where the compiler fuses element-wise operations, as XLA does."""
        return max(compiled_peak_bytes(self.program).values(), default=0)

    @cached_property
    def compiled_received_bytes(self) -> int:
        """`cost.received_bytes` as the compiler of the devices moves them: XLA for CPUs adds bfloat16 in float32."""
        return compiled_received_bytes(self.program, Platform.of(self.mesh))

    def picture(self, path: str | Path) -> Path:
        """Draw the program into a file; see `redistrib.programs.ir.listing.draw_program`."""
        from redistrib.programs.ir.listing import draw_program

        return draw_program(self.program, path)

    @cached_property
    def _processes(self) -> tuple[int, ...]:
        return tuple(sorted(processes_of(self.mesh)))

    @cached_property
    def _digest(self) -> str:
        """Of the program and of the function, with the values that it captures."""
        assert isinstance(self.mesh, jax.sharding.Mesh)
        devices = [device.id for device in self.mesh.devices.flat]
        return digest_of_parts([digest_of(self.program), devices, self._in_order, self._traced.digest])

    def _meet(self, leaves: list[Any], away: list[int]) -> None:
        """Return when all processes are about to run the same program with the same values of the host.

        Programs that differ between processes wait for each other for ever, or send each other the wrong arrays. A
        traced call is compared once: JAX traces a function as often as a process needs, and compiles it for all.
        """
        is_inside = _is_traced(leaves)
        if is_inside and self._is_agreed:
            return
        differing, way_out = "functions, schedules, options or values of the host", "move arrays of one process first"
        meeting = Meeting(self._processes, _FUNCTION, differing, f"{way_out}, with redistrib.reshard")
        if meeting.is_between:
            moved = ((k, leaves[k]) for k in away if not isinstance(leaves[k], jax.core.Tracer))
            moves = [(k, digest_of_host_value(v) if is_of_host(v) else text_of(v.sharding)) for k, v in moved]
            meeting.require_equal(digest_of_parts([self._digest, is_inside, *moves]))
        self._is_agreed = True

    def _leaves(self, args: tuple[Any, ...], named: Mapping[str, Any], *, shapes: bool = False) -> list[Any]:
        args = in_order(self.program.name, args, named, self._parameters)
        return leaves_like(self.program.name, args, self._tree, self._forms, self._names, shapes=shapes)

    def _data(self, number: int, leaf: Any) -> Any:
        return jax.random.key_data(leaf) if number in self._traced.in_keys else leaf

    @cached_property
    def _constants(self) -> list[Any]:
        with jax.ensure_compile_time_eval():  # else the first call under jit would keep values of its trace
            return put(self._captured(), self._ins[len(self._forms) :])

    def _captured(self) -> list[Any]:
        """What the function captures, as it is; of keys their integers."""
        return [self._data(k, constant) for k, constant in enumerate(self._traced.constants, len(self._forms))]

    @cached_property
    def _compiled(self) -> Any:
        run = mapped(self.program, self.mesh, in_order=self._in_order)

        def call(*arrays: Any) -> Any:
            results = run(*arrays)
            keys = self._traced.out_keys
            results = [
                jax.random.wrap_key_data(array, impl=keys[k]) if k in keys else array for k, array in enumerate(results)
            ]
            return jax.tree_util.tree_unflatten(self._traced.out_tree, results)

        call.__name__ = self.program.name
        names = [value.name for value in self.program.inputs]
        return jax.jit(call, donate_argnums=[names.index(name) for name in self.program.donated])


def _is_traced(leaves: Iterable[Any]) -> bool:
    """Whether a call stands inside a transformation."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _of_keys(sharding: NamedSharding) -> NamedSharding:
    """How keys lie whose integers lie so: these have one more dimension."""
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:-1]))
