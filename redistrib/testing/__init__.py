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
    need("hypothesis")
    return getattr(import_module(f"{__name__}.strategies"), name)


def check_replicas(tree: Any) -> None:
    """Check that devices with the same tile of an array hold the same bits.

    `jax.shard_map(check_vma=False)` can make arrays that JAX calls replicated and that are not. Every tile with
    replicas is copied to the host. Each process checks its own devices. Leaves are skipped that are traced, are no
    `jax.Array`, or are partial sums along all axes that do not cut them.

    Raises:
        ReplicaError: for the first pair of devices that differ; names the leaf, the devices, and the first element.

    >>> import jax
    >>> from redistrib.errors import ReplicaError
    >>> mesh = jax.make_mesh((2,), ("x",))
    >>> f = jax.shard_map(lambda: jax.lax.axis_index("x"), mesh=mesh, out_specs=jax.P(), check_vma=False)
    >>> try:
    ...     check_replicas(f())
    ... except ReplicaError as error:
    ...     print(error.devices)
    (0, 1)
    """
    need("jax")
    from redistrib.resharding.replicas import check_replicas as check

    check(tree)
