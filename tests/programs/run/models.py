"""Functions that tests distribute: an MLP, and a transformer with its optimizer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LAYERS, WIDTH, HEADS, WORDS = 2, 32, 8, 64
MEGATRON = {"wq": 1, "wk": 1, "wv": 1, "wo": 0, "up": 1, "down": 0}


def whole(*shape: int) -> Any:
    """Small integers, of which float32 sums are exact."""
    return (np.arange(np.prod(shape)).reshape(shape) * 5 % 7 - 3).astype(np.float32)


def mlp(params: Any, x: Any) -> Any:
    return jax.nn.relu(x @ params["w1"] + params["b1"]) @ params["w2"]


def sgd(params: Any, x: Any, y: Any) -> Any:
    loss, grads = jax.value_and_grad(lambda p: jnp.sum((mlp(p, x) - y) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 2 * g, params, grads), loss


MLP_PARAMS = {"w1": whole(8, 32), "b1": whole(32), "w2": whole(32, 16)}


def init(layers: int = LAYERS) -> Any:
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return (random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    size = WIDTH // HEADS
    one = lambda: {  # noqa: E731
        **{name: weight(WIDTH, HEADS, size) for name in ("wq", "wk", "wv")},
        "wo": weight(HEADS, size, WIDTH),
        "up": weight(WIDTH, 4 * WIDTH),
        "down": weight(4 * WIDTH, WIDTH),
        "scale": np.ones((2, WIDTH), np.float32),
    }
    return {"embed": weight(WORDS, WIDTH), "layers": [one() for _ in range(layers)]}


def normed(x: Any, scale: Any) -> Any:
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def block(layer: Any, x: Any) -> Any:
    time = x.shape[1]
    h = normed(x, layer["scale"][0])
    q, k, v = (jnp.einsum("bse,ehd->bhsd", h, layer[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e9)
    attended = jnp.einsum("bhst,bhtd->bshd", jax.nn.softmax(scores), v)
    return x + jnp.einsum("bshd,hde->bse", attended, layer["wo"])


def feed(layer: Any, x: Any) -> Any:
    return x + jax.nn.gelu(normed(x, layer["scale"][1]) @ layer["up"]) @ layer["down"]


def entropy(params: Any, x: Any, targets: Any) -> Any:
    picked = jnp.take_along_axis(jax.nn.log_softmax(x @ params["embed"].T), targets[..., None], axis=-1)
    return -jnp.mean(picked)


def loss(params: Any, tokens: Any, targets: Any) -> Any:
    x = params["embed"][tokens]
    for layer in params["layers"]:
        x = feed(layer, block(layer, x))
    return entropy(params, x, targets)


def loss_by_scan(params: Any, tokens: Any, targets: Any, key: Any) -> Any:
    """The same over stacked layers, recomputed in the backward pass, with dropout."""

    @jax.checkpoint
    def step(x: Any, given: Any) -> Any:
        layer, own = given
        x = block(layer, x)
        return feed(layer, jnp.where(jax.random.bernoulli(own, 0.9, x.shape), x / 0.9, 0)), None

    count = params["layers"]["up"].shape[0]
    x, _ = jax.lax.scan(step, params["embed"][tokens], (params["layers"], jax.random.split(key, count)))
    return entropy(params, x, targets)


def stacked(params: Any) -> Any:
    return {"embed": params["embed"], "layers": jax.tree.map(lambda *each: np.stack(each), *params["layers"])}


def adamw(params: Any, state: Any, grads: Any, clip: float | None = None) -> Any:
    if clip is not None:
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / norm), grads)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], grads)
    new = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (jnp.sqrt(v) + 1e-6) + 0.01 * p), params, m, v)
    return new, {"m": m, "v": v}


def step(params: Any, state: Any, tokens: Any, targets: Any) -> Any:
    value, grads = jax.value_and_grad(loss)(params, tokens, targets)
    return *adamw(params, state, grads), value


def step_by_scan(params: Any, state: Any, tokens: Any, targets: Any, key: Any) -> Any:
    value, grads = jax.value_and_grad(loss_by_scan)(params, tokens, targets, key)
    return *adamw(params, state, grads, clip=1.0), value


def state_of(params: Any) -> Any:
    return {"m": jax.tree.map(np.zeros_like, params), "v": jax.tree.map(lambda p: np.full_like(p, 0.01), params)}


TOKENS = (np.arange(8 * 17).reshape(8, 17) * 13 % WORDS).astype(np.int32)


def recurrent(params: Any, x: Any, unroll: int = 1) -> Any:
    def cell(state: Any, entry: Any) -> Any:
        state = jnp.tanh(entry @ params["w"] + state @ params["v"])
        return state, state

    start = jnp.zeros((x.shape[1], params["v"].shape[0]), x.dtype)
    return jnp.sum(lax.scan(cell, start, x, unroll=unroll)[1] ** 2)
