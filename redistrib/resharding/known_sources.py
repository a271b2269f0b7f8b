"""Where a traced array lies: on Explicit axes its type says it, on Auto axes the operation that made it may."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from redistrib.backends.jax import private
from redistrib.backends.jax.names import REDISTRIBUTE


def known_source(array: Any, target: NamedSharding) -> Any:
    """The sharding of a traced array, where it is known for certain, or None.

    Outside `jit`, a differentiated array has its value inside, with its sharding. Under `jit` on Auto axes XLA chooses
    the sharding of what other operations make than those that ask for one.
    """
    value = private.value_inside(array)
    if not isinstance(value, jax.core.Tracer):
        return value.sharding
    sharding = jax.typeof(array).sharding
    if not sharding.mesh.empty and AxisType.Explicit in sharding.mesh.axis_types:
        return sharding
    return _asked_for(value, target)


def _asked_for(array: Any, target: NamedSharding) -> NamedSharding | None:
    """The sharding that an array's operation asks for; numbers made from nothing are everywhere at no cost."""
    operation = private.operation_of(array)
    if operation is None:
        return None
    name, params, number = operation
    found: Any = None
    if name == "sharding_constraint" and not params["unconstrained_dims"]:
        found = params["sharding"]
    elif name == REDISTRIBUTE:
        found = params["move"].target
    elif name == "device_put":
        found = params["devices"][number]
    elif name in ("jit", "pjit"):
        found = params["out_shardings"][number]
    elif name == "shard_map":
        mesh, manual = params["mesh"], params.get("newly_manual_axes", params.get("manual_axes"))
        found = NamedSharding(mesh, params["out_specs"][number]) if manual == {*mesh.axis_names} else None
    elif name == "iota" or (name == "broadcast_in_dim" and not params["broadcast_dimensions"]):
        found = NamedSharding(target.mesh, PartitionSpec())
    return found if isinstance(found, NamedSharding) else None
