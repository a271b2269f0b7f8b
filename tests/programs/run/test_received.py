"""The compiled text receives the bytes that `f.compiled_received_bytes` predicts, for floats of 16 bits too."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import redistrib as rd
from redistrib.backends.jax.platforms import Platform
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.run.received import compiled_received_bytes


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
def test_the_compiled_text_receives_the_bytes_that_are_predicted(function: Any, dtype: str) -> None:
    params = {"up": jnp.full((48, 16), 0.25, dtype), "down": jnp.full((16, 48), 0.5, dtype)}
    for cuts in CUTS.values():
        f = rd.distribute(function, (params, jnp.ones((16, 48), dtype)), {"d": 8}, schedule=cuts)
        assert inspect(f.lower().compile()).received_bytes == f.compiled_received_bytes


def test_only_cpus_widen_sums() -> None:
    args = (
        {"up": jnp.ones((48, 16), "bfloat16"), "down": jnp.ones((16, 48), "bfloat16")},
        jnp.ones((16, 48), "bfloat16"),
    )
    f = rd.distribute(step, args, {"d": 8}, schedule=CUTS["batch"])
    assert compiled_received_bytes(f.program, Platform("tpu")) == f.program.received_bytes
    assert compiled_received_bytes(f.program, Platform("cpu")) > f.program.received_bytes


def test_blocks_that_causal_attention_skips_move_nothing() -> None:
    """What the derivative of a branch passes on for later lies as its operand does, beside what the branch makes."""
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (
        jax.random.normal(key, shape) for key, shape in zip(keys, [(8, 6, 4), (3, 8, 6, 4), (3, 8, 6, 4)], strict=True)
    )

    def attention(q: Any, k: Any, v: Any, block: Any) -> Any:
        def attend(carry: Any, keys: Any, values: Any) -> Any:
            most, weight, out = carry
            score = jnp.einsum("bqd,bkd->bqk", q, keys)
            now = jnp.maximum(most, score.max(-1))
            share, kept = jnp.exp(score - now[..., None]), jnp.exp(most - now)
            out = out * kept[..., None] + jnp.einsum("bqk,bkd->bqd", share, values)
            return now, weight * kept + share.sum(-1), out

        @jax.checkpoint
        def step(carry: Any, x: Any) -> Any:
            number, keys, values = x
            return lax.cond(number <= block, attend, lambda carry, *_: carry, carry, keys, values), None

        begin = jnp.full(q.shape[:2], -1e30), jnp.zeros(q.shape[:2]), jnp.zeros_like(q)
        (_, weight, out), _ = lax.scan(step, begin, (jnp.arange(3), k, v), unroll=1)
        return out / weight[..., None]

    def gradients(q: Any, k: Any, v: Any, block: Any) -> Any:
        return jax.grad(lambda *qkv: (attention(*qkv, block) ** 2).sum(), argnums=(0, 1, 2))(q, k, v)

    args = (q, k, v, jnp.int32(1))
    f = rd.distribute(gradients, args, {"d": 8}, schedule=rd.along("d", {"q": 0, "k": 1, "v": 1}))
    assert f.program.received_bytes == 0
    for ours, theirs in zip(f(*args), jax.jit(gradients)(*args), strict=True):
        assert jnp.allclose(ours, theirs, atol=1e-5)
