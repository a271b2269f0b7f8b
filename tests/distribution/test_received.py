"""Bytes that the compiled text receives are those that `f.cost` predicts, for floats of 16 bits too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import redistrib as rd
from redistrib.backends.jax.platforms import Platform
from redistrib.distribution.received import compiled_received_bytes
from redistrib.explain.profiling.inspect import inspect


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ params["up"]) @ params["down"]).astype(jnp.float32) ** 2)

    return jax.tree.map(lambda a, b: a - b, params, jax.grad(loss)(params))


def scanned(params: Any, x: Any) -> Any:
    return lax.scan(lambda x, _: (jnp.tanh(x @ params["up"]) @ params["down"], None), x, length=3)[0]


def looked_up(params: Any, x: Any) -> Any:
    return params["up"][jnp.arange(24) * 2] @ params["down"]


def normed(params: Any, x: Any) -> Any:
    hidden = x @ params["up"]
    return hidden / hidden.max(0), hidden.sum(1)


CUTS = {
    "tensor": [rd.along("d", {"params/up": 1, "params/down": 0})],
    "batch": [rd.along("d", {"x": 0})],
    "weights": [rd.along("d", {"x": 0}), rd.along("d", {"params": "first"})],
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("function", [step, scanned, looked_up, normed])
def test_the_compiled_text_receives_the_bytes_of_the_cost(function: Any, dtype: str) -> None:
    params = {"up": jnp.full((48, 16), 0.25, dtype), "down": jnp.full((16, 48), 0.5, dtype)}
    for cuts in CUTS.values():
        f = rd.distribute(function, (params, jnp.ones((16, 48), dtype)), {"d": 8}, schedule=cuts)
        assert inspect(f.lower().compile()).received_bytes == f.cost.received_bytes


def test_only_cpus_widen_sums() -> None:
    args = (
        {"up": jnp.ones((48, 16), "bfloat16"), "down": jnp.ones((16, 48), "bfloat16")},
        jnp.ones((16, 48), "bfloat16"),
    )
    f = rd.distribute(step, args, {"d": 8}, schedule=CUTS["batch"])
    assert compiled_received_bytes(f.program, Platform("tpu")) == f.program.received_bytes
    assert compiled_received_bytes(f.program, Platform("cpu")) > f.program.received_bytes
