"""The pages of reference: a list of public names on each. `python -m tests.docs.reference` writes them anew.

The page of each name is made from its docstring when the site is built.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import redistrib as rd

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
TOOLS = ("redistrib.explain", "redistrib.programs.ir.listing", "redistrib.testing")
_LISTED = re.compile(r"^(?:   ~|\.\. py:data:: )(\S+)$", re.MULTILINE)

# Read, not imported, since PyTorch need not be there.
TORCH = re.findall(r'"(\w+)"', (FOLDER.parents[1] / "redistrib" / "torch.py").read_text().partition("__all__ = ")[2])

MOVING = (
    *("reshard", "reshard_plan", "like", "TreePlan", "load", "load_plan", "LoadPlan", "save", "cache_info"),
    "clear_caches",
)
PROGRAMS = (
    *("distribute", "along", "work", "cut", "proxy", "rule", "search", "pipeline", "Layout", "diagnose", "nest"),
    *("partition", "Program", "simulate", "view", "to_jax", "to_mpi", "to_torch"),
)
VALUES = (
    *("synthesize", "verify", "Plan", "tile_of", "owners", "point_of", "subset", "Mesh", "Axis", "DistType"),
    *("DimType", "Topology", "CostModel", "LatencyBandwidth"),
)
# What functions return, and users do not make themselves.
RESULTS = {
    "moving": ("resharding.through.value.ThroughPlan",),
    "programs": (
        *("programs.run.distributed.Distributed", "programs.run.distributed.Cost"),
        *("programs.search.result.Searched", "programs.search.result.Candidate", "programs.search.staged.Staged"),
        *("programs.search.report.Decision", "programs.search.report.PinCost", "programs.search.found.Improvement"),
        *("programs.search.ranking.Ranking", "programs.search.timed.Measured", "programs.schedule.schedule.Schedule"),
        *("programs.time.result.Simulation", "programs.time.timeline.Event", "programs.time.machine.Machine"),
        *("programs.show.diagnosis.Diagnosis", "programs.show.diagnosis.Finding", "programs.show.entry.Page"),
        "programs.stages.pipelined.Pipelined",
    ),
}


def public_names() -> set[str]:
    """Every name that users are told of, with its module."""
    modules = ("redistrib.errors", "redistrib.ir", *TOOLS)
    listed = {f"{module}.{name}" for module in modules for name in import_module(module).__all__}
    own = {f"redistrib.{name}" for name in rd.__all__ if name != "__version__"}
    return (listed | own | {f"redistrib.torch.{name}" for name in TORCH}) - {"redistrib.errors.RedistribError"}


def result_names() -> set[str]:
    """The classes of results, with their modules."""
    return {f"redistrib.{name}" for names in RESULTS.values() for name in names}


def documented_names() -> list[str]:
    """The names on all pages."""
    return [name for path in sorted(FOLDER.glob("*.rst")) for name in _LISTED.findall(path.read_text())]


def _listed(names: list[str]) -> str:
    data = [name for name in names if not _is_called(name)]
    rows = "".join(f"   ~{name}\n" for name in names if name not in data)
    entries = "".join(f"\n.. py:data:: {name}\n" for name in data)
    return f".. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{rows}{entries}"


def _is_called(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return module == "redistrib.torch" or callable(getattr(import_module(module), attribute))


def _headed(title: str, mark: str, text: str) -> str:
    return f"{title}\n{mark * len(title)}\n\n{text}"


def _of(modules: tuple[str, ...], but: tuple[str, ...] = ()) -> list[str]:
    return [f"{module}.{name}" for module in modules for name in import_module(module).__all__ if name not in but]


def pages() -> dict[str, str]:
    """The text of each page."""

    def own(page: str, names: tuple[str, ...]) -> str:
        text = _listed([f"redistrib.{name}" for name in names])
        results = [f"redistrib.{name}" for name in RESULTS.get(page, ())]
        return text + (f"\n{_headed('Results', '-', _listed(results))}" if results else "")

    parts = {
        "moving": (
            "Moving arrays",
            "Functions that move arrays and trees of arrays, load and save checkpoints, and the plans of trees.",
            f"{own('moving', MOVING)}\n"
            + _headed(
                "PyTorch", "-", "FSDP, tensor parallelism and every ``DTensor``; see `PyTorch <../torch.html>`__.\n\n"
            )
            + _listed([f"redistrib.torch.{name}" for name in TORCH]),
        ),
        "programs": (
            "Functions over a mesh",
            "Functions that cut, search, run, time, diagnose, show and export JAX functions and programs.",
            own("programs", PROGRAMS),
        ),
        "values": (
            "Plans, types and meshes",
            "Plans between two types, and what types, meshes, topologies and cost models are.",
            own("values", VALUES),
        ),
        "errors": (
            "Errors",
            "Every error is a ``RedistribError``. Its message names the value, the rule and the way out.",
            _listed(["redistrib.RedistribError", *_of(("redistrib.errors",), ("RedistribError",))]),
        ),
        "ir": (
            "Programs as data",
            "The module ``redistrib.ir``: programs built by hand, interpreted, transformed, and seen rank by rank.",
            _listed(_of(("redistrib.ir",))),
        ),
        "tools": (
            "Pictures, events, and tools for tests",
            "Pictures need the extra ``plot``; strategies of Hypothesis need the extra ``testing``.",
            f"{_listed(_of(TOOLS))}\n{_headed('Events', '-', '.. automodule:: redistrib.resharding.events')}\n",
        ),
    }
    return {page: _headed(title, "=", f"{lead}\n\n{text}") for page, (title, lead, text) in parts.items()}


def main() -> None:
    """Write the pages."""
    for page, text in pages().items():
        (FOLDER / f"{page}.rst").write_text(text)


if __name__ == "__main__":
    main()
