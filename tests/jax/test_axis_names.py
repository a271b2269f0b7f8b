"""Mesh axes by names that the compiler cannot read: refused before it ends the process."""

from __future__ import annotations

import os
import subprocess
import sys

# The source of a process of its own, since what is refused here ends the process where it is not.
IN_JAX = """
import jax, numpy as np, redistrib as rd
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from redistrib.errors import ForeignMeshError

values = np.arange(16.0).reshape(4, 4)
def placed(name, kind, devices=(0, 1, 2, 3)):
    mesh = Mesh(np.array(jax.devices())[list(devices)].reshape(2, 2), (name, "y"), axis_types=(kind,) * 2)
    return [NamedSharding(mesh, P(*spec)) for spec in ((name, "y"), ("y", name))]

def said(error, do):
    try:
        do()
    except error as caught:
        return str(caught)
    raise AssertionError("accepted")

for kind in (AxisType.Auto, AxisType.Explicit):
    for odd in ("データ", "\\\\"):
        source, target = placed(odd, kind)
        array = jax.device_put(values, source)
        plan = rd.synthesize(source, target, shape=values.shape)
        expected = (
            f"XLA ends the process when it compiles for a mesh with an axis named {odd!r}; name axes in ASCII without "
            "backslashes, or move arrays by redistrib.reshard outside jit, which compiles for a mesh of its own"
        )
        asked = [lambda: rd.to_jax(plan, source.mesh)]
        asked += [lambda: jax.make_jaxpr(lambda a: rd.reshard(a, target, source=source))(values)]
        if kind == AxisType.Explicit:
            asked += [lambda: jax.make_jaxpr(lambda a: rd.reshard(a, target))(array)]
        for do in asked:
            assert said(ForeignMeshError, do) == expected
        for to in (target, placed(odd, kind, [4, 5, 6, 7])[1], placed(odd, kind, [3, 2, 1, 0])[1]):
            moved = rd.reshard(array, to)
            assert moved.sharding == to and np.array_equal(moved, values)
    for name in ("a b", '"', "{x}", "\\n", "sum"):
        source, target = placed(name, kind)
        plan = rd.synthesize(source, target, shape=values.shape, dtype="float32")
        moved = rd.to_jax(plan, source.mesh)(jax.device_put(values.astype(np.float32), source))
        assert moved.sharding == target and np.array_equal(moved, values)
"""


def test_names_that_xla_cannot_read_are_refused_and_others_work() -> None:
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", IN_JAX], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
