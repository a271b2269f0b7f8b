"""Memory-efficient redistribution of distributed arrays by portable collectives.

Names are imported when first used, so `import redistrib` stays light: it loads neither JAX nor MPI nor SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redistrib.collection import uncollected
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
    from redistrib.cache import clear_caches
    from redistrib.cost.latency import LatencyBandwidth
    from redistrib.cost.model import CostModel
    from redistrib.errors import RedistribError
    from redistrib.lang.mesh import Axis, Mesh
    from redistrib.lang.types import DimType, DistType
    from redistrib.plans.plan import Plan
    from redistrib.plans.points import owners, point_of
    from redistrib.plans.reference import tile_of
    from redistrib.programs.ir.program import Program
    from redistrib.programs.ir.spec import nest
    from redistrib.programs.rules.constraints import cut
    from redistrib.programs.rules.public import rule
    from redistrib.programs.run.partition import partition
    from redistrib.programs.run.regions import proxy
    from redistrib.programs.schedule.tactics import along, work
    from redistrib.programs.search.entry import search
    from redistrib.programs.show.diagnosis import diagnose
    from redistrib.programs.show.entry import view
    from redistrib.programs.stages.entry import pipeline
    from redistrib.programs.stages.layout import Layout
    from redistrib.programs.time.entry import simulate
    from redistrib.resharding.entry import reshard, reshard_plan
    from redistrib.resharding.paths import like
    from redistrib.resharding.planning import cache_info
    from redistrib.resharding.value import TreePlan
    from redistrib.theory.subsets import subset
    from redistrib.theory.topology import Topology
    from redistrib.weights.loading import load
    from redistrib.weights.planning import LoadPlan, load_plan
    from redistrib.weights.saving import save

__version__ = "0.2.0"

_HOME = {
    "Axis": "redistrib.lang.mesh",
    "CostModel": "redistrib.cost.model",
    "DimType": "redistrib.lang.types",
    "DistType": "redistrib.lang.types",
    "LatencyBandwidth": "redistrib.cost.latency",
    "Layout": "redistrib.programs.stages.layout",
    "LoadPlan": "redistrib.weights.planning",
    "Mesh": "redistrib.lang.mesh",
    "Plan": "redistrib.plans.plan",
    "Program": "redistrib.programs.ir.program",
    "RedistribError": "redistrib.errors",
    "Topology": "redistrib.theory.topology",
    "TreePlan": "redistrib.resharding.value",
    "along": "redistrib.programs.schedule.tactics",
    "cache_info": "redistrib.resharding.planning",
    "clear_caches": "redistrib.cache",
    "cut": "redistrib.programs.rules.constraints",
    "diagnose": "redistrib.programs.show.diagnosis",
    "distribute": "redistrib.api",
    "like": "redistrib.resharding.paths",
    "load": "redistrib.weights.loading",
    "load_plan": "redistrib.weights.planning",
    "nest": "redistrib.programs.ir.spec",
    "owners": "redistrib.plans.points",
    "partition": "redistrib.programs.run.partition",
    "pipeline": "redistrib.programs.stages.entry",
    "point_of": "redistrib.plans.points",
    "proxy": "redistrib.programs.run.regions",
    "rule": "redistrib.programs.rules.public",
    "reshard": "redistrib.resharding.entry",
    "reshard_plan": "redistrib.resharding.entry",
    "save": "redistrib.weights.saving",
    "search": "redistrib.programs.search.entry",
    "simulate": "redistrib.programs.time.entry",
    "subset": "redistrib.theory.subsets",
    "synthesize": "redistrib.api",
    "tile_of": "redistrib.plans.reference",
    "to_jax": "redistrib.api",
    "to_mpi": "redistrib.api",
    "to_torch": "redistrib.api",
    "verify": "redistrib.api",
    "view": "redistrib.programs.show.entry",
    "work": "redistrib.programs.schedule.tactics",
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
        with uncollected(lasts=True):
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
        from redistrib.programs.show.entry import html_of
    except ModuleNotFoundError as error:
        if lacks_programs(error.name):
            return None  # the notebook shows the text
        raise
    return html_of(value)


render_in_notebooks_with(_notebook_html)
