"""The mesh that JAX's context has where the library traces."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
from jax.sharding import use_abstract_mesh


def abstract(mesh: Any) -> Any:
    """The mesh without its devices."""
    return mesh.abstract_mesh if isinstance(mesh, jax.sharding.Mesh) else mesh


def entered(mesh: Any) -> AbstractContextManager[Any]:
    """A context in which this mesh is current, concrete or abstract, whatever mesh the caller has set.

    `jax.shard_map` and `jax.sharding.reshard` refuse meshes that differ from the current one.
    """
    context: AbstractContextManager[Any] = use_abstract_mesh(abstract(mesh))
    return context
