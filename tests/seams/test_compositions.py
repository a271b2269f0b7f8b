"""`reshard` under compositions of JAX's transformations, held against JAX's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from tests.reshard.cases import jax_mesh
from tests.seams.transformations import Function, composed, compositions

GRID, LINE = (("a", 2), ("b", 2)), (("x", 4),)
SAMPLE = [
    ("vmap", "grad"),
    ("grad", "vmap"),
    ("vmap", "jvp"),
    ("jvp", "vmap"),
    ("vmap", "linearize"),
    ("vmap", "vjp", "vmap"),
    ("jvp", "grad", "vmap"),
    ("vmap", "jacfwd", "grad"),
    ("grad", "scan", "vmap"),
    ("vmap", "checkpoint", "grad"),
    ("grad", "vmap", "custom_vjp"),
    ("vmap", "grad", "jit"),
]


def check(kind: AxisType, two_meshes: bool, names: Sequence[str]) -> None:
    grid, line = (jax_mesh(axes, tuple(range(4)), kind) for axes in (GRID, LINE))
    source = NamedSharding(line, P("x")) if two_meshes else NamedSharding(grid, P("a", "b"))
    target = NamedSharding(grid, P("b", "a"))
    there, back = (partial(rd.reshard, shardings=b, source=a) for a, b in ((source, target), (target, source)))
    ours = _there_and_back(there, back)
    jaxs = jax.lax.with_sharding_constraint if kind == AxisType.Auto else jax.sharding.reshard
    theirs = _there_and_back(lambda x: jaxs(x, target), lambda x: jaxs(x, source))
    batches = (2,) * names.count("vmap")
    values = np.random.default_rng(0).normal(size=(*batches, 4, 4)).astype(np.float32)
    x = jax.device_put(values, NamedSharding(source.mesh, P(*(None for _ in batches), *source.spec)))
    with jax.set_mesh(source.mesh) if kind == AxisType.Explicit else nullcontext():
        result, expected = (composed(names, f)(x) for f in (ours, theirs))
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5, atol=1e-6)
    if kind == AxisType.Explicit:
        assert jax.typeof(result) == jax.typeof(expected)


def _there_and_back(there: Function, back: Function) -> Function:
    return lambda x: back(jnp.sin(there(x))) * 2


@pytest.mark.parametrize("names", SAMPLE, ids="-".join)
def test_derivatives_of_batches_and_batches_of_derivatives(names: tuple[str, ...]) -> None:
    check(AxisType.Auto, True, ("jit", *names))


@pytest.mark.long
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("two_meshes", [False, True])
@pytest.mark.parametrize("depth", [2])
def test_all_compositions(kind: AxisType, two_meshes: bool, depth: int) -> None:
    failed = {}
    for names in compositions(depth):
        try:
            check(kind, two_meshes, names)
        except Exception as error:
            failed[names] = repr(error)[:300]
    assert not failed
