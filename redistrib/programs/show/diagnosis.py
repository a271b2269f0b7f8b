"""The communication that a compiler chose for a jitted function, beside plans for the same reshards."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
from jax.sharding import NamedSharding

from redistrib.backends.jax.sharding import partition_spec
from redistrib.backends.jax.virtual import over_virtual_devices, virtual_mesh
from redistrib.cost.model import CostModel
from redistrib.cost.presets import MachineLike, cost_model, preset_of
from redistrib.errors import ProgramError, RedistribError
from redistrib.explain.profiling.hlo import HloModule, Instruction, parse_module
from redistrib.explain.profiling.inspect import HloCollective, inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.run.annotations import Lines, dtype_of, label, mesh_named, sharded
from redistrib.programs.run.source_names import name_of
from redistrib.renamed import renamed
from redistrib.report import ShownInNotebooks, bytes_text, counted, rendered
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.inverse import type_of
from redistrib.theory.placement import placement_of

_Key: TypeAlias = tuple[str, str]  # source line and operation
_Reshard: TypeAlias = tuple[Plan, str]  # of an array with a name, which is empty if unknown
_SAME = {  # copies, and element-wise operations
    "copy", "custom-call", "add", "subtract", "multiply", "divide", "maximum", "minimum", "sine", "cosine", "tanh",
    "exponential", "log", "negate", "abs", "convert", "select", "power", "sqrt", "rsqrt", "logistic", "erf", "and",
    "or", "xor", "not", "floor", "ceil", "sign", "clamp", "compare", "optimization-barrier",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """Collectives of one operation of the user's, on one line.

    Attributes:
        source: the line, `file:line`; empty where the compiler does not tell.
        operation: its name in JAX, `jit(step)/dot_general`.
        collectives: how often each kind runs.
        received: bytes that all devices together receive.
        largest: bytes on one device of the largest array that one of them reads or leaves.
        reshards: for every array that only changes its sharding here, the plan for that.
        involuntary: whether a device gathers more of an array than its old tile or its new one has.
        arrays: the names of these arrays in the source, empty where it does not tell.

    >>> import jax
    >>> import redistrib as rd
    >>> rd.diagnose(jax.jit(lambda x: x + 1), jax.numpy.ones(8)).findings  # on one device nothing is sent
    ()
    """

    source: str
    operation: str
    collectives: dict[str, int]
    received: int
    largest: int
    reshards: tuple[Plan, ...]
    involuntary: bool
    arrays: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """The move to write before the line, and the bytes that it saves, over all devices."""
        names = self.arrays or ("",) * len(self.reshards)
        moves = dict.fromkeys(_move(name, plan.target) for name, plan in zip(names, self.reshards, strict=True))
        saved = self.received - (self.planned or 0)
        where = os.path.basename(self.source).replace(":", " line ") or "the compiler's own reshard"
        return f"{where}: {' and '.join(moves)} before it with rd.reshard: {bytes_text(saved)} less"

    @property
    def planned(self) -> int | None:
        """Bytes that our plans for the reshards receive in all; None where there is none."""
        return sum(sum(plan.received) * plan.itemsize for plan in self.reshards) if self.reshards else None

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        return {
            "source": self.source,
            "operation": self.operation,
            "collectives": self.collectives,
            "received_bytes": self.received,
            "largest_bytes": self.largest,
            "involuntary": self.involuntary,
            "reshards": [
                {"source": f"{plan.source} on {plan.source_mesh}", "target": f"{plan.target} on {plan.target_mesh}",
                 "dtype": plan.dtype, "steps": [step.kind for step in plan.steps],
                 "received_bytes": sum(plan.received) * plan.itemsize}
                for plan in self.reshards
            ],
            "planned_bytes": self.planned,
        }  # fmt: skip


@dataclass(frozen=True)
class Diagnosis(ShownInNotebooks):
    """The communication of a compiled function.

    Attributes:
        name: of the function.
        devices: that run it.
        findings: the involuntary gathers first, then by bytes received.
        scratch: bytes of temporaries on a device, as the compiler reports them; None where it does not.
        annotated: whether the compiler told how arrays are sharded; without that no reshard is known.

    >>> import jax
    >>> found = diagnose(jax.jit(lambda x: x + 1), jax.numpy.ones(8))
    >>> found.received, found.findings
    (0, ())
    """

    name: str
    devices: int
    findings: tuple[Finding, ...]
    scratch: int | None
    annotated: bool

    @property
    def received(self) -> int:
        """Bytes that all devices together receive."""
        return sum(finding.received for finding in self.findings)

    @property
    def advice(self) -> list[str]:
        """A line for each finding whose reshards receive fewer bytes by our plans, the most saved first.

        On one device nothing is communicated, and the line says how to have more.
        """
        if self.devices == 1:
            return [
                "on 1 device nothing is communicated: place the arguments over a mesh, jax.device_put(args, "
                "NamedSharding(mesh, spec)), or get virtual devices, redistrib diagnose --devices 8"
            ]
        planned = [(finding, finding.planned) for finding in self.findings]
        saving = [(row.received - ours, row) for row, ours in planned if ours is not None and ours < row.received]
        return [finding.advice for _, finding in sorted(saving, key=lambda pair: -pair[0])]

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        return {
            "name": self.name,
            "devices": self.devices,
            "received_bytes": self.received,
            "scratch_bytes": self.scratch,
            "annotated": self.annotated,
            "findings": [finding.as_dict() for finding in self.findings],
        }

    def _text(self) -> str:
        rows = []
        for finding in self.findings:
            kinds = " + ".join(f"{n} {kind}" if n > 1 else kind for kind, n in finding.collectives.items())
            what = "\n".join(f"{plan.source} -> {plan.target}" for plan in dict.fromkeys(finding.reshards))
            rows.append(
                [
                    os.path.basename(finding.source) + ("  INVOLUNTARY" if finding.involuntary else ""),
                    _short(finding.operation),
                    kinds,
                    f"{finding.received:,}",
                    f"{finding.largest:,}",
                    what,
                    "" if finding.planned is None else f"{finding.planned:,}",
                ]
            )
        columns = ["line", "operation", "collectives", "received", "largest", "a reshard of", "our plan"]
        with_plan = [finding for finding in self.findings if finding.planned is not None]
        ours = sum(finding.planned or 0 for finding in with_plan)
        theirs = sum(finding.received for finding in with_plan)
        scratch = "" if self.scratch is None else f"; {self.scratch:,} bytes of temporaries on a device"
        caveat = "" if self.annotated else "\nThe compiler does not tell how arrays are sharded: no reshard is known."
        title = f"{self.name} on {counted(self.devices, 'device', 'devices')}"
        return (
            f"{rendered(title, columns, rows)}\n"
            f"{self.received:,} bytes received in all{scratch}\n"
            f"{counted(sum(len(f.reshards) for f in with_plan), 'reshard', 'reshards')} of one array: "
            f"{theirs:,} bytes by XLA, {ours:,} by our plans{caveat}" + "".join(f"\n{line}" for line in self.advice)
        )


def _move(name: str, target: DistType) -> str:
    array = f"`{name}`" if name else "the array"
    spec = str(partition_spec(target)).replace("PartitionSpec", "P")
    return f"cut {array} by {spec}" if target.axes else f"gather {array}"


def _short(operation: str) -> str:
    """The last part of a name; of several operations that the compiler has put together, how many."""
    count = operation.count(":") + 1
    return operation.rpartition("/")[2] if count == 1 else f"{count} together"


@renamed("cost_model", "machine")
def diagnose(fn: Callable[..., Any], *args: Any, machine: MachineLike | None = None) -> Diagnosis:
    """The collectives of a jitted function, as compiled, by source line, beside the bytes that our plans would receive.

    Args:
        fn: a result of `jax.jit`, or of its `.lower(...)` or `.compile()`.
        args: its arguments, placed as they are when it runs: arrays, or `jax.ShapeDtypeStruct` with shardings. Those
            over an `AbstractMesh` need no devices: the function is compiled for as many virtual CPU devices. The same
            where `in_shardings`, or constraints inside, name an `AbstractMesh` of Auto axes, and arguments nothing.
        machine: the machine of our plans, see `rd.synthesize`; by default the preset of the devices' platform.

    Returns:
        Every collective with its source line, bytes received and largest temporary, the involuntary gathers first.
        Print it for a table; `as_dict()` is for JSON.

    >>> import jax.numpy as jnp
    >>> diagnose(jax.jit(lambda x: x + 1), jnp.ones(8)).received
    0
    """
    (args,) = over_virtual_devices(args)
    compiled, before, lowered = _compiled(fn, args)
    text = compiled.as_text() or ""
    module, seen, lines = parse_module(text), inspect(compiled), Lines.read(text)
    by_name = {
        name: instruction
        for computation in module.computations.values()
        for name, instruction in computation.instructions.items()
    }
    chosen = cost_model(machine or preset_of(jax.default_backend()))
    groups: dict[tuple[str, str], list[HloCollective]] = defaultdict(list)
    for collective in seen.collectives:
        instruction = by_name[collective.name]
        groups[lines.of(instruction), label(instruction)].append(collective)
    plans = _reshards(before, chosen, _mesh_of(args, lowered), groups) if before else {}
    findings = [_finding(key, collectives, plans.get(key, ())) for key, collectives in groups.items()]
    findings.sort(key=lambda finding: (not finding.involuntary, -finding.received))
    name = str(getattr(fn, "__name__", "") or "function")
    return Diagnosis(name, module.devices, tuple(findings), seen.scratch, bool(before))


def _compiled(function: Any, args: Sequence[Any]) -> tuple[Any, str, Any]:
    """The compiled function, the text of the module before it was partitioned, where the compiler writes it, and the
    lowered function; None for one that comes compiled."""
    if hasattr(function, "as_text") and not hasattr(function, "compile"):
        return function, "", None
    if hasattr(function, "compile"):
        lowered = function
    elif callable(function):
        _require_devices(args)
        lowered = _lowered(function if hasattr(function, "lower") else jax.jit(function), args)
    else:
        raise ProgramError("", "", "Arguments", f"a jitted function is diagnosed, not a {type(function).__name__}")
    with tempfile.TemporaryDirectory() as folder:
        options = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": "spmd.*", "xla_dump_hlo_as_text": True}
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # a compiler without this option
            compiled = lowered.compile(compiler_options=options)
            texts = sorted(Path(folder).glob("*before_spmd-partitioning*.txt"))
            return compiled, texts[0].read_text() if texts else "", lowered
    return lowered.compile(), "", lowered


def _lowered(jitted: Any, args: Sequence[Any]) -> Any:
    """The function lowered; over virtual devices where it names an `AbstractMesh`, in `in_shardings` or inside."""
    try:
        return jitted.lower(*args)
    except ValueError:
        plain = jax.tree.map(_without_sharding, args)
        with contextlib.suppress(Exception):  # of what else is wrong the first error speaks
            text = jitted.trace(*plain).lower(lowering_platforms=(jax.default_backend(),)).as_text()
            named = mesh_named(str(text))
            mesh = None if named is None else virtual_mesh(named)
            if mesh is not None:
                with jax.set_mesh(mesh):
                    return jitted.lower(*plain)
        raise


def _without_sharding(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf


def _require_devices(args: Sequence[Any]) -> None:
    """Refuse arguments over a mesh without devices, for which nothing can be compiled.

    Raises:
        ProgramError: says how many devices are missing.
    """
    for leaf in jax.tree.leaves(args):
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        if isinstance(mesh, jax.sharding.AbstractMesh):
            count = len(jax.devices())
            raise ProgramError(
                "", "", "Place", f"a diagnosis compiles, for the {mesh.size} devices of {Mesh.of(mesh)}, and "
                f"an AbstractMesh names none; JAX has {count}: give shardings over a jax.sharding.Mesh, virtual or of "
                f"jax.experimental.topologies",
            )  # fmt: skip


def _mesh_of(args: Sequence[Any], lowered: Any) -> Mesh | None:
    """The mesh of the arguments, or else that of the lowered function's shardings, if they name a single one."""
    for leaf in jax.tree.leaves(args):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1:
            return Mesh.of(sharding.mesh)
    return mesh_named(str(lowered.as_text()))


def _reshards(
    text: str, model: CostModel | str, mesh: Mesh | None = None, groups: Collection[_Key] = ()
) -> dict[_Key, tuple[_Reshard, ...]]:
    """Plans for all arrays that only change their sharding, with the arrays' names, by source line and operation.

    Compilers name a reshard after the operation that reads the array, and since JAX 0.12 some after the one that makes
    it: that name is taken where only it is among the `groups` of collectives.
    """
    module, lines = parse_module(text), Lines.read(text)
    by_key: dict[_Key, list[_Reshard]] = defaultdict(list)
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            if instruction.opcode not in _SAME:
                continue
            for operand in dict.fromkeys(instruction.operands):
                operand_instruction = computation.instructions.get(operand)
                if operand_instruction is None:
                    continue
                plan = _plan(operand_instruction, instruction, module, model, mesh)
                if plan is not None and any(plan.received):
                    reader, maker = ((lines.of(end), label(end)) for end in (instruction, operand_instruction))
                    by_key[maker if reader not in groups and maker in groups else reader].append(
                        (plan, name_of(operand_instruction, lines))
                    )
    return {key: tuple(reshards) for key, reshards in by_key.items()}


def _plan(
    operand: Instruction, result: Instruction, module: HloModule, model: CostModel | str, mesh: Mesh | None
) -> Plan | None:
    """The plan from the sharding of an operand to that of the result; None if they are equal, or either is unknown.

    Types are written with the axes of the user's mesh where these can express the compiler's placement.
    """
    if len(operand.results) != 1 or len(result.results) != 1 or operand.results[0].shape != result.results[0].shape:
        return None
    dtype = dtype_of(operand.results[0].dtype)
    before, after = sharded(operand, module.devices), sharded(result, module.devices)
    if dtype is None or before is None or after is None:
        return None
    with contextlib.suppress(RedistribError):
        source, target = _renamed(before, mesh), _renamed(after, mesh)
        return synthesize(source[0], source[1], target[0], target[1], dtype=dtype, model=model)
    return None


def _renamed(side: tuple[DistType, Mesh], mesh: Mesh | None) -> tuple[DistType, Mesh]:
    """A type on the user's mesh, or on its prime factors, where one of them says it."""
    for other in (mesh, None if mesh is None else mesh.prime().mesh):
        if other is not None and other.size == side[1].size and other.is_whole:
            dist_type = type_of(placement_of(*side), other)
            if dist_type is not None:
                return dist_type, other
    return side


def _finding(key: tuple[str, str], collectives: Sequence[HloCollective], reshards: tuple[_Reshard, ...]) -> Finding:
    plans = tuple(plan for plan, _ in reshards)
    kinds: Counter[str] = Counter()
    for collective in collectives:
        kinds[collective.kind] += collective.times
    arrays = [array for collective in collectives for array in (*collective.operands, *collective.results)]
    tile = max((max(plan.before.tile_size, plan.after.tile_size) * plan.itemsize for plan in plans), default=0)
    gathered = [
        array.bytes for collective in collectives if collective.kind == "all-gather" for array in collective.results
    ]
    return Finding(
        *key,
        collectives=dict(kinds),
        received=sum(collective.received_bytes for collective in collectives),
        largest=max((array.bytes for array in arrays), default=0),
        reshards=plans,
        involuntary=bool(plans) and max(gathered, default=0) > tile,
        arrays=tuple(name for _, name in reshards),
    )
