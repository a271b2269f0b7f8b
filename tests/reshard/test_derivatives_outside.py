"""Derivatives of `reshard` outside `jit`, between any places, held against those of `jax.device_put`."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import RedistribError
from tests.reshard.meshes import AUTO, on

NUMBERS = np.arange(64, dtype=np.float32).reshape(8, 8)
LINE = Mesh(np.array(jax.devices()[8:12]), ("p",), axis_types=(AxisType.Auto,))
PLACES: dict[str, Any] = {
    "a mesh of Auto axes": on(AUTO, None, "y"),
    "the same devices in another order": NamedSharding(Mesh(AUTO.devices[::-1], ("x", "y")), P("y")),
    "other devices": NamedSharding(LINE, P("p")),
    "a device": SingleDeviceSharding(jax.devices()[9]),
}
DERIVATIVES: dict[str, Any] = {
    "grad of grad": lambda f: jax.grad(lambda x: jax.grad(lambda y: (f(y) ** 3).sum())(x).sum()),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](3 * x),
    "jacrev": lambda f: jax.jacrev(lambda x: f(x).sum(0)),
}


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize(("here", "there"), [*itertools.permutations(PLACES, 2)], ids=str)
def test_derivatives_outside_jit_between_any_places(here: str, there: str, name: str) -> None:
    """As those of `jax.device_put`, of stages on devices of their own."""
    array, target = jax.device_put(NUMBERS / 64, PLACES[here]), PLACES[there]
    ours, theirs = (
        DERIVATIVES[name](lambda x, move=move: move(x, target))(array) for move in (rd.reshard, jax.device_put)
    )
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)
    if ours.ndim == 2:  # JAX cuts batches where examples should be cut
        assert ours.sharding.is_equivalent_to(theirs.sharding, 2)


def test_a_derivative_outside_jit_is_not_moved_inside() -> None:
    array = jax.device_put(NUMBERS, PLACES["other devices"])
    for place, error in (("a mesh of Auto axes", "call redistrib.reshard outside jit"), ("a device", "has no mesh")):
        back = jax.vjp(lambda x, place=place: rd.reshard(x, PLACES[place]), array)[1]
        with pytest.raises(RedistribError, match=error):
            jax.jit(back)(NUMBERS)
