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
from tests.seams.cells import CALLS, outcome, under
from tests.seams.transformations import TRANSFORMATIONS, Function, composed, compositions

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
    if kind == AxisType.Auto:  # JAX cannot name some shardings of products of two meshes
        theirs = _there_and_back(lambda x: x, lambda x: x)
    else:
        theirs = _there_and_back(lambda x: jax.sharding.reshard(x, target), lambda x: jax.sharding.reshard(x, source))
    batches = (2,) * names.count("vmap")
    values = np.random.default_rng(0).normal(size=(*batches, 4, 4)).astype(np.float32)
    x = jax.device_put(values, NamedSharding(source.mesh, P(*(None for _ in batches), *source.spec)))
    with jax.set_mesh(source.mesh) if kind == AxisType.Explicit else nullcontext():
        result = composed(names, ours)(x)
        expected = composed(names, theirs)(x if kind == AxisType.Explicit else values)
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5, atol=1e-6)
    if kind == AxisType.Explicit:
        assert jax.typeof(result) == jax.typeof(expected)


def _there_and_back(there: Function, back: Function) -> Function:
    return lambda x: back(jnp.sin(there(x))) * 2


@pytest.mark.parametrize("names", SAMPLE, ids="-".join)
def test_derivatives_of_batches_and_batches_of_derivatives(names: tuple[str, ...]) -> None:
    check(AxisType.Auto, True, ("jit", *names))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "two_meshes"), [(AxisType.Auto, True), (AxisType.Explicit, False)], ids=str)
@pytest.mark.parametrize("first", TRANSFORMATIONS)
def test_compositions_of_three(kind: AxisType, two_meshes: bool, first: str) -> None:
    """All of two, and a part of those of three, another one for each mesh."""
    failed = {}
    for k, names in enumerate(names for names in compositions(3) if names[:1] == (first,)):
        if len(names) == 3 and k % 24 != 2 * two_meshes:
            continue
        try:
            check(kind, two_meshes, names)
        except Exception as error:
            failed[names] = repr(error)[:300]
    assert not failed


@pytest.mark.long
@pytest.mark.parametrize("call", [call for call in CALLS if call != "reshard"])
def test_calls_under_compositions_of_three(call: str) -> None:
    """All of two and a part of those of three: right, or refused as under one of them alone."""
    failed = {}
    alone = {name: outcome(call, under([name])).partition(":")[0] for name in TRANSFORMATIONS}
    for k, names in enumerate(compositions(3)):
        if len(names) < 2 or (len(names) == 3 and k % 60):
            continue
        try:
            found = outcome(call, under(names)).partition(":")[0]
        except Exception as error:
            found = repr(error)[:300]
        if found != "right" and found not in {alone[name] for name in names}:
            failed[names] = found
    assert not failed
