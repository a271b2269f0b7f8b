"""A training step of a small transformer in plain JAX, with its optimizer: what the bench runs in stages."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LAYERS, WIDTH, HEADS, WORDS, TOKENS = 4, 128, 8, 512, 32


def init() -> Any:
    """Parameters and the state of AdamW, as NumPy arrays."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return (random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    def layer() -> Any:
        own = {name: weight(WIDTH, HEADS, WIDTH // HEADS) for name in ("wq", "wk", "wv")}
        own |= {"wo": weight(HEADS, WIDTH // HEADS, WIDTH), "up": weight(WIDTH, 4 * WIDTH)}
        ones = {name: np.ones(WIDTH, np.float32) for name in ("scale", "norm")}
        return own | {"down": weight(4 * WIDTH, WIDTH)} | ones

    params = {"embed": weight(WORDS, WIDTH), "layers": [layer() for _ in range(LAYERS)], "out": weight(WIDTH, WORDS)}
    return params, {name: jax.tree.map(np.zeros_like, params) for name in ("m", "v")}


def batch(examples: int) -> tuple[Any, Any]:
    """Tokens and targets."""
    text = np.random.default_rng(1).integers(0, WORDS, (examples, TOKENS + 1)).astype(np.int32)
    return text[:, :-1], text[:, 1:]


def _normed(x: Any, scale: Any) -> Any:
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def loss(params: Any, tokens: Any, targets: Any) -> Any:
    """Mean cross-entropy of the next token."""
    x = params["embed"][tokens]
    later = jnp.tril(jnp.ones((tokens.shape[1],) * 2, bool))
    for layer in params["layers"]:
        h = _normed(x, layer["scale"])
        q, k, v = (jnp.einsum("bse,ehd->bhsd", h, layer[name]) for name in ("wq", "wk", "wv"))
        scores = jnp.where(later, jnp.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(WIDTH // HEADS), -1e9)
        attended = jnp.einsum("bhst,bhtd->bshd", jax.nn.softmax(scores), v)
        x = x + jnp.einsum("bshd,hde->bse", attended, layer["wo"])
        x = x + jax.nn.gelu(_normed(x, layer["norm"]) @ layer["up"]) @ layer["down"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(x @ params["out"]), targets[..., None], axis=-1)
    return -jnp.mean(picked)


def step(params: Any, state: Any, tokens: Any, targets: Any) -> Any:
    """New parameters, new state, and the loss."""
    value, grads = jax.value_and_grad(loss)(params, tokens, targets)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], grads)
    new = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (jnp.sqrt(v) + 1e-6) + 0.01 * p), params, m, v)
    return new, {"m": m, "v": v}, value
