"""The pages of reference: a directive for every public name. `python -m tests.docs.reference` writes them anew."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import redistrib as rd

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
TOOLS = ("redistrib.explain", "redistrib.programs.ir.listing", "redistrib.testing")
_DIRECTIVE = re.compile(r"^\.\. (?:py:data::|auto(?:function|class|exception)::) (\S+)$", re.MULTILINE)

# Title, first sentence and names of each page about names of `redistrib` itself.
PAGES = {
    "moving": (
        "Moving arrays",
        "Functions that move arrays and trees of arrays, and the plans of trees.",
        (
            "reshard",
            "reshard_plan",
            "like",
            "TreePlan",
            "load",
            "load_plan",
            "LoadPlan",
            "save",
            "cache_info",
            "clear_caches",
        ),
    ),
    "programs": (
        "Functions over a mesh",
        "Functions that cut, search, run, time, diagnose and show JAX functions and programs.",
        (
            *(
                "distribute",
                "along",
                "work",
                "cut",
                "proxy",
                "rule",
                "search",
                "pipeline",
                "Layout",
                "diagnose",
                "nest",
                "partition",
            ),
            *("Program", "simulate", "view", "to_jax", "to_mpi", "to_torch"),
        ),
    ),
    "values": (
        "Plans, types and meshes",
        "Plans between two types, and what types, meshes, topologies and cost models are.",
        (
            *("synthesize", "verify", "Plan", "tile_of", "owners", "point_of", "subset", "Mesh", "Axis", "DistType"),
            *("DimType", "Topology", "CostModel", "LatencyBandwidth"),
        ),
    ),
}


def public_names() -> set[str]:
    """Every name that users are told of, with its module."""
    modules = ("redistrib.errors", "redistrib.ir", *TOOLS)
    listed = {f"{module}.{name}" for module in modules for name in import_module(module).__all__}
    own = {f"redistrib.{name}" for name in rd.__all__ if name != "__version__"}
    return (listed | own) - {"redistrib.errors.RedistribError"}


def documented_names() -> list[str]:
    """The names of all directives."""
    return [name for path in sorted(FOLDER.glob("*.rst")) for name in _DIRECTIVE.findall(path.read_text())]


def _directive(name: str) -> str:
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    if not callable(value):
        return f".. py:data:: {name}\n"
    if not inspect.isclass(value):
        return f".. autofunction:: {name}\n"
    if issubclass(value, BaseException):
        return f".. autoexception:: {name}\n"
    # The fields of a dataclass or a named tuple stand among its attributes already.
    fields = ", ".join(getattr(value, "__dataclass_fields__", getattr(value, "_fields", ())))
    left_out = f"   :exclude-members: {fields}\n" if fields else ""
    return f".. autoclass:: {name}\n   :members:\n   :inherited-members:\n{left_out}"


def _page(title: str, lead: str, names: list[str], foot: str = "") -> str:
    return "\n".join([f"{title}\n{'=' * len(title)}\n\n{lead}\n", *map(_directive, names)]) + foot


def main() -> None:
    """Write the pages."""
    for page, (title, lead, names) in PAGES.items():
        (FOLDER / f"{page}.rst").write_text(_page(title, lead, [f"redistrib.{name}" for name in names]))
    errors = import_module("redistrib.errors").__all__
    lead = "Every error is a :class:`redistrib.RedistribError`. Its message names the value, the rule and the way out."
    names = [f"redistrib.errors.{name}" for name in errors if name != "RedistribError"]
    (FOLDER / "errors.rst").write_text(_page("Errors", lead, ["redistrib.RedistribError", *names]))
    tools = [f"{m}.{name}" for m in TOOLS for name in import_module(m).__all__]
    ir = [f"redistrib.ir.{name}" for name in import_module("redistrib.ir").__all__]
    lead = "The module ``redistrib.ir``: programs built by hand, interpreted, transformed, and seen rank by rank."
    (FOLDER / "ir.rst").write_text(_page("Programs as data", lead, ir))
    lead = "Pictures need the extra ``plot``; strategies of Hypothesis need the extra ``testing``."
    foot = "\nEvents\n------\n\n.. automodule:: redistrib.resharding.events\n"
    (FOLDER / "tools.rst").write_text(_page("Pictures, events, and tools for tests", lead, tools, foot))


if __name__ == "__main__":
    main()
