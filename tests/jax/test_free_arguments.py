"""Plans, programs and distributed functions take arguments as `jax.jit` does: of the host, uncommitted, by name."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import ProgramError, SourceArrayError
from redistrib.programs.stages.layout import Layout

MESH = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4])
WHOLE = np.arange(64.0).reshape(8, 8)  # float64, which JAX takes as float32
FREE = [WHOLE, WHOLE.astype(np.float32), jnp.asarray(WHOLE, jnp.float32)]


def plan_function(**options: Any) -> Any:
    return rd.to_jax(rd.synthesize("[2{x}8, 8]", "[8, 2{x}8]", "x=4"), MESH, **options)


def program() -> Any:
    return rd.distribute(lambda x, w: x @ w, (FREE[1], FREE[1]), MESH, schedule=rd.along("x", {"x": 0})).program


@pytest.mark.parametrize("free", FREE)
def test_values_that_are_bound_to_no_device_are_placed(free: Any) -> None:
    f = plan_function()
    moved = f(free)
    np.testing.assert_array_equal(moved, WHOLE)
    assert moved.sharding == f.target_sharding and moved.dtype == jnp.float32
    np.testing.assert_array_equal(jax.jit(lambda: 2 * f(free))(), 2 * WHOLE)
    g = rd.to_jax(program(), MESH)
    np.testing.assert_array_equal(g(free, free)[0], WHOLE @ WHOLE)
    np.testing.assert_array_equal(g(w=free, x=np.eye(8))[0], WHOLE)
    h = rd.distribute(lambda x, w: x @ w, (free, free), MESH, schedule=rd.along("x", {"x": 0}))
    np.testing.assert_array_equal(h(free, w=np.eye(8)), WHOLE)


def test_numbers_and_copies_for_donation() -> None:
    scalar = rd.to_jax(rd.synthesize("[]", "[]", "x=4"), MESH)
    for number in (2.5, np.float32(2.5)):
        assert float(scalar(number)) == 2.5
    free = jnp.asarray(WHOLE, jnp.float32)
    np.testing.assert_array_equal(plan_function(donate=True)(free), WHOLE)
    assert not free.is_deleted()


def test_what_is_bound_elsewhere_or_no_array_is_refused() -> None:
    f, g = plan_function(), rd.to_jax(program(), MESH)
    bound = jax.device_put(FREE[1], NamedSharding(MESH, P(None, "x")))
    with pytest.raises(SourceArrayError, match=re.escape("P(None, 'x')") + ".*place it with jax.device_put"):
        f(bound)
    with pytest.raises(ProgramError, match="it is placed as"):
        g(bound, bound)
    for value in ([1.0] * 8, "text", np.array(["text"]), np.array([None]), np.ma.masked_array(WHOLE, WHOLE > 3)):
        with pytest.raises(SourceArrayError, match=r"a plan runs on a jax\.Array or a value of NumPy, got "):
            f(value)
        with pytest.raises(ProgramError, match="and no array; place it with"):
            g(value, value)
    with pytest.raises(SourceArrayError, match=re.escape("of shape (8, 8), got (8, 4); plan for this shape")):
        f(WHOLE[:, :4])
    with pytest.raises(SourceArrayError, match="of dtype float32, got int32"):
        f(WHOLE.astype(np.int64))
    with pytest.raises(ProgramError, match=re.escape("it is float32[8, 4], and the program takes float32[8, 8]")):
        g(WHOLE[:, :4], WHOLE)
    partial = rd.to_jax(rd.synthesize("[8, 8] sum{x}", "[8, 8]", "x=4", dtype="float32"), MESH)
    with pytest.raises(SourceArrayError, match="got ndarray"):
        partial(FREE[1])


def step(params: Any, batch: Any, rate: float = 0.5) -> Any:
    return {name: value - rate * batch.sum() for name, value in params.items()}


@pytest.mark.parametrize("make", [rd.distribute, rd.pipeline], ids=["distribute", "pipeline"])
def test_arguments_by_name(make: Any) -> None:
    params, batch = {"w": np.ones((8, 4), np.float32)}, np.ones((8, 2), np.float32)
    if make is rd.distribute:
        f = rd.distribute(step, (params, batch), MESH, schedule=rd.along("x", {"batch": 0}))
        assert f.lower(batch=batch, params=params).as_text() == f.lower().as_text()
    else:
        f = rd.pipeline(step, (params, batch), {"batch": 0}, Layout(2, 1, 1, 1))
    for call in (lambda: f(params, batch=batch), lambda: f(batch=batch, params=params)):
        np.testing.assert_array_equal(call()["w"], step(params, batch)["w"])
    for wrong, argument, why in (
        (lambda: f(params, bach=batch), "bach", "it is no argument of the function, which takes params, batch"),
        (lambda: f(params, batch, rate=1.0), "rate", "it is no argument of the function, which takes params, batch"),
        (lambda: f(params, params=params), "params", "it is given by position and by name; give it once"),
        (lambda: f(batch=batch), "params", "it is not given; the function was made for this argument"),
    ):
        with pytest.raises(ProgramError, match=why) as caught:
            wrong()
        assert (caught.value.operation, caught.value.array, caught.value.rule) == ("step", argument, "Arguments")
