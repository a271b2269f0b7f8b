"""One mesh of Explicit and one of Auto axes, and shardings on them, for tests of partial sums."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

EXPLICIT, AUTO = (
    Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"), axis_types=(kind,) * 2)
    for kind in (AxisType.Explicit, AxisType.Auto)
)


def on(mesh: Mesh | AbstractMesh, *entries: Any, **axes: Any) -> NamedSharding:
    return NamedSharding(mesh, P(*entries, **axes))
