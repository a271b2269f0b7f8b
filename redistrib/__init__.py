"""Memory-efficient redistribution of distributed arrays by portable collectives.

Names are imported when first used, so `import redistrib` stays light: it loads neither JAX nor MPI nor SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redistrib.extras import lacks_programs, need
from redistrib.report import render_in_notebooks_with

if TYPE_CHECKING:
    from redistrib.api import (
        distribute,
        synthesize,
        to_jax,
        to_mpi,
        to_torch,
        verify,
    )
    from redistrib.autoshard.entry import search
    from redistrib.cache import clear_caches
    from redistrib.cost.latency import LatencyBandwidth
    from redistrib.cost.model import CostModel
    from redistrib.distribution.diagnosis import diagnose
    from redistrib.distribution.partition import partition
    from redistrib.distribution.regions import proxy
    from redistrib.distribution.rules import rule
    from redistrib.distribution.trace.constraints import cut
    from redistrib.errors import RedistribError
    from redistrib.lang.mesh import Axis, Mesh
    from redistrib.lang.types import DimType, DistType
    from redistrib.partitioning.tactics import along, work
    from redistrib.pipelines.entry import pipeline
    from redistrib.pipelines.layout import Layout
    from redistrib.plans.plan import Plan
    from redistrib.plans.points import owners, point_of
    from redistrib.plans.reference import tile_of
    from redistrib.programs.program import Program
    from redistrib.programs.spec import nest
    from redistrib.resharding.entry import reshard, reshard_plan
    from redistrib.resharding.paths import like
    from redistrib.resharding.planning import cache_info
    from redistrib.resharding.value import TreePlan
    from redistrib.simulator.entry import simulate
    from redistrib.theory.subsets import subset
    from redistrib.theory.topology import Topology
    from redistrib.viewer.entry import view
    from redistrib.weights.loading import load
    from redistrib.weights.planning import LoadPlan, load_plan
    from redistrib.weights.saving import save

__version__ = "0.1.0"

_HOME = {
    "Axis": "redistrib.lang.mesh",
    "CostModel": "redistrib.cost.model",
    "DimType": "redistrib.lang.types",
    "DistType": "redistrib.lang.types",
    "LatencyBandwidth": "redistrib.cost.latency",
    "Layout": "redistrib.pipelines.layout",
    "LoadPlan": "redistrib.weights.planning",
    "Mesh": "redistrib.lang.mesh",
    "Plan": "redistrib.plans.plan",
    "Program": "redistrib.programs.program",
    "RedistribError": "redistrib.errors",
    "Topology": "redistrib.theory.topology",
    "TreePlan": "redistrib.resharding.value",
    "along": "redistrib.partitioning.tactics",
    "cache_info": "redistrib.resharding.planning",
    "clear_caches": "redistrib.cache",
    "cut": "redistrib.distribution.trace.constraints",
    "diagnose": "redistrib.distribution.diagnosis",
    "distribute": "redistrib.api",
    "like": "redistrib.resharding.paths",
    "load": "redistrib.weights.loading",
    "load_plan": "redistrib.weights.planning",
    "nest": "redistrib.programs.spec",
    "owners": "redistrib.plans.points",
    "partition": "redistrib.distribution.partition",
    "pipeline": "redistrib.pipelines.entry",
    "point_of": "redistrib.plans.points",
    "proxy": "redistrib.distribution.regions",
    "rule": "redistrib.distribution.rules",
    "reshard": "redistrib.resharding.entry",
    "reshard_plan": "redistrib.resharding.entry",
    "save": "redistrib.weights.saving",
    "search": "redistrib.autoshard.entry",
    "simulate": "redistrib.simulator.entry",
    "subset": "redistrib.theory.subsets",
    "synthesize": "redistrib.api",
    "tile_of": "redistrib.plans.reference",
    "to_jax": "redistrib.api",
    "to_mpi": "redistrib.api",
    "to_torch": "redistrib.api",
    "verify": "redistrib.api",
    "view": "redistrib.viewer.entry",
    "work": "redistrib.partitioning.tactics",
}

__all__ = [
    "Axis",
    "CostModel",
    "DimType",
    "DistType",
    "LatencyBandwidth",
    "Layout",
    "LoadPlan",
    "Mesh",
    "Plan",
    "Program",
    "RedistribError",
    "Topology",
    "TreePlan",
    "__version__",
    "along",
    "cache_info",
    "clear_caches",
    "cut",
    "diagnose",
    "distribute",
    "like",
    "load",
    "load_plan",
    "nest",
    "owners",
    "partition",
    "pipeline",
    "point_of",
    "proxy",
    "reshard",
    "reshard_plan",
    "rule",
    "save",
    "search",
    "simulate",
    "subset",
    "synthesize",
    "tile_of",
    "to_jax",
    "to_mpi",
    "to_torch",
    "verify",
    "view",
    "work",
]


def __getattr__(name: str) -> Any:
    if name == "torch":  # a module, so that `rd.torch.redistribute` needs no import of its own
        need("torch")
        return import_module("redistrib.torch")
    if name == "ir":  # likewise
        need("redistrib.ir", "rd.ir")
        return import_module("redistrib.ir")
    if name not in _HOME:
        raise AttributeError(f"module 'redistrib' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if error.name is not None:
            need(error.name, f"rd.{name}" if lacks_programs(error.name) else "this")
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _notebook_html(value: object) -> str | None:
    try:
        from redistrib.viewer.entry import html_of
    except ModuleNotFoundError as error:
        if lacks_programs(error.name):
            return None  # the notebook shows the text
        raise
    return html_of(value)


render_in_notebooks_with(_notebook_html)
