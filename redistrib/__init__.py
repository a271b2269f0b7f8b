"""Memory-efficient redistribution of distributed arrays by portable collectives.

Names are imported when first used, so `import redistrib` stays light: it loads neither JAX nor MPI nor SciPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Rooms of these names exist: importing them here, once, leaves the names to the functions.
from redistrib.partition import partition
from redistrib.search import search
from redistrib.simulate import simulate

if TYPE_CHECKING:
    from redistrib.api import (
        cache_info,
        clear_caches,
        diagnose,
        distribute,
        reshard,
        reshard_plan,
        synthesize,
        to_jax,
        to_mpi,
    )
    from redistrib.cost.latency import LatencyBandwidth
    from redistrib.cost.model import CostModel
    from redistrib.distribution.regions import proxy
    from redistrib.distribution.tactics import along, work
    from redistrib.errors import RedistribError
    from redistrib.lang.mesh import Axis, Mesh
    from redistrib.lang.types import DimType, DistType
    from redistrib.pipelines import pipeline
    from redistrib.pipelines.layout import Layout
    from redistrib.plans.plan import Plan
    from redistrib.plans.reference import tile_of
    from redistrib.plans.verify import verify
    from redistrib.programs.program import Program
    from redistrib.programs.spec import nest
    from redistrib.resharding.value import TreePlan
    from redistrib.theory.topology import Topology

__version__ = "0.1.0"

_HOME = {
    "Axis": "redistrib.lang.mesh",
    "CostModel": "redistrib.cost.model",
    "DimType": "redistrib.lang.types",
    "DistType": "redistrib.lang.types",
    "LatencyBandwidth": "redistrib.cost.latency",
    "Layout": "redistrib.pipelines.layout",
    "Mesh": "redistrib.lang.mesh",
    "Plan": "redistrib.plans.plan",
    "Program": "redistrib.programs.program",
    "RedistribError": "redistrib.errors",
    "Topology": "redistrib.theory.topology",
    "TreePlan": "redistrib.resharding.value",
    "along": "redistrib.distribution.tactics",
    "cache_info": "redistrib.api",
    "clear_caches": "redistrib.api",
    "diagnose": "redistrib.api",
    "distribute": "redistrib.api",
    "nest": "redistrib.programs.spec",
    "pipeline": "redistrib.pipelines",
    "proxy": "redistrib.distribution.regions",
    "reshard": "redistrib.api",
    "reshard_plan": "redistrib.api",
    "synthesize": "redistrib.api",
    "tile_of": "redistrib.plans.reference",
    "to_jax": "redistrib.api",
    "to_mpi": "redistrib.api",
    "verify": "redistrib.plans.verify",
    "work": "redistrib.distribution.tactics",
}

__all__ = [
    "Axis",
    "CostModel",
    "DimType",
    "DistType",
    "LatencyBandwidth",
    "Layout",
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
    "diagnose",
    "distribute",
    "nest",
    "partition",
    "pipeline",
    "proxy",
    "reshard",
    "reshard_plan",
    "search",
    "simulate",
    "synthesize",
    "tile_of",
    "to_jax",
    "to_mpi",
    "verify",
    "work",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redistrib' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
