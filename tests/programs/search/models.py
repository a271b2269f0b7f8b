"""Functions that tests search: a transformer block with its gradient and SGD, as shapes; and small exact ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def form(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def normed(x: Any, scale: Any) -> Any:
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer(p: Any, x: Any) -> Any:
    h = normed(x, p["g1"])
    q, k, v = (jnp.einsum("bse,ehd->bhsd", h, p[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / np.sqrt(p["wq"].shape[2])
    mixed = jnp.einsum("bhst,bhtd->bshd", jax.nn.softmax(scores), v)
    x = x + jnp.einsum("bshd,hde->bse", mixed, p["wo"])
    return x + jax.nn.relu(normed(x, p["g2"]) @ p["up"]) @ p["down"]


def params(layers: int, width: int, heads: int) -> Any:
    size = width // heads
    one = {
        "g1": form(width),
        "g2": form(width),
        **{name: form(width, heads, size) for name in ("wq", "wk", "wv")},
        "wo": form(heads, size, width),
        "up": form(width, 4 * width),
        "down": form(4 * width, width),
    }
    return [one] * layers


def block_step(params: Any, x: Any, y: Any) -> Any:
    """A step of SGD of a stack of layers."""

    def loss(p: Any) -> Any:
        h = x
        for own in p:
            h = layer(own, h)
        return jnp.sum((h - y) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.125 * g, params, grads), value


def block_args(layers: int, batch: int, time: int = 512, width: int = 1024, heads: int = 16) -> Any:
    return params(layers, width, heads), form(batch, time, width), form(batch, time, width)


def chain(params: Any, x: Any) -> Any:
    for w in params:
        x = jnp.tanh(x @ w)
    return x


def turned(params: Any, x: Any) -> Any:
    """What is rows to one layer is columns to the next."""
    for w in params:
        x = jnp.tanh(x.T @ w)
    return x


def mixture(params: Any, x: Any) -> Any:
    """A layer of experts, each of which takes at most so many of the tokens that choose it (Lepikhin et al. 2020)."""
    scores = jax.nn.softmax(x @ params["router"])
    experts = scores.shape[-1]
    chosen = jax.nn.one_hot(jnp.argmax(scores, -1), experts)
    room = 2 * x.shape[1] // experts
    place = (jnp.cumsum(chosen, 1) - 1) * chosen
    sent = chosen[..., None] * jax.nn.one_hot(place.astype(int).sum(-1), room)[:, :, None]
    taken = jnp.einsum("bsec,bsd->ebcd", sent, x)
    made = jnp.einsum("ebcf,efd->ebcd", jax.nn.relu(jnp.einsum("ebcd,edf->ebcf", taken, params["up"])), params["down"])
    return x + jnp.einsum("bsec,ebcd->bsd", sent * scores[..., None], made)


def mixture_step(params: Any, x: Any, y: Any) -> Any:
    """A step of SGD of a layer of experts."""
    value, grads = jax.value_and_grad(lambda p: jnp.mean((mixture(p, x) - y) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.125 * g, params, grads), value


def mixture_args(batch: int, time: int, width: int, hidden: int, experts: int) -> Any:
    weights = {"router": form(width, experts), "up": form(experts, width, hidden), "down": form(experts, hidden, width)}
    return weights, form(batch, time, width), form(batch, time, width)
