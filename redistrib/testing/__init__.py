"""Strategies and enumerations for tests: meshes, types, pairs of types to move between, and plans; checks of results.

Strategies need Hypothesis (the extra `testing`), and `check_replicas` JAX; both are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redistrib.extras import need
from redistrib.testing.cases import (
    RedistributionCase,
    all_cuts,
    all_partial_types,
    all_types,
    cut_type,
    is_exact,
    numbered,
)

if TYPE_CHECKING:
    from redistrib.resharding.replicas import check_replicas
    from redistrib.testing.strategies import (
        NAMES,
        cuts,
        meshes,
        plans,
        redistributions,
        tori,
        types,
        uneven_redistributions,
    )

__all__ = [
    "NAMES",
    "RedistributionCase",
    "all_cuts",
    "all_partial_types",
    "all_types",
    "check_replicas",
    "cut_type",
    "cuts",
    "is_exact",
    "meshes",
    "numbered",
    "plans",
    "redistributions",
    "tori",
    "types",
    "uneven_redistributions",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    package, home = ("jax", "resharding.replicas") if name == "check_replicas" else ("hypothesis", "testing.strategies")
    need(package)
    return getattr(import_module(f"redistrib.{home}"), name)
