"""Layers of random training steps: each takes activations `[examples, tokens, WIDTH]` and makes others of the shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, TOKENS, HEADS, EXPERTS = 8, 4, 2, 4

Weights = dict[str, Any]


class Place(NamedTuple):
    """What a layer has besides its input and its weights.

    Attributes:
        key: of random numbers, of this layer.
        number: of the layer.
    """

    key: Any
    number: Any


class Kind(NamedTuple):
    """A kind of layer.

    Attributes:
        shapes: of its weights.
        run: from the activations, the weights and the place to the activations.
    """

    shapes: dict[str, tuple[int, ...]]
    run: Callable[[Any, Weights, Place], Any]


def _dense(h: Any, p: Weights, at: Place) -> Any:
    return h + jnp.tanh(h @ p["w"] + p["b"])


def _tied(h: Any, p: Weights, at: Place) -> Any:
    return h + jax.nn.softplus(h @ p["w"]) @ p["w"].T * 0.3


def _gated(h: Any, p: Weights, at: Place) -> Any:
    a, b = jnp.split(h @ p["w"], 2, -1)
    return h + (a * jax.nn.sigmoid(b)) @ p["down"]


def _normed(h: Any, p: Weights, at: Place) -> Any:
    return h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-2) * (1 + p["g"])


def _attention(h: Any, p: Weights, at: Place) -> Any:
    q, k, v = jnp.split((h @ p["qkv"]).reshape(*h.shape[:2], HEADS, -1), 3, -1)
    scores = jnp.einsum("bind,bjnd->bnij", q, k)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return h + jnp.einsum("bnij,bjnd->bind", jax.nn.softmax(scores, -1), v).reshape(h.shape) @ p["out"]


def _half(h: Any, p: Weights, at: Place) -> Any:
    """In the next smaller element type."""
    less = jnp.float32 if h.dtype == jnp.float64 else jnp.bfloat16
    return h + jnp.tanh(h.astype(less) @ p["w"].astype(less)).astype(h.dtype)


def _branch(h: Any, p: Weights, at: Place) -> Any:
    return jax.lax.cond(at.number % 2 == 0, lambda h: h + jnp.sin(h @ p["w"]), lambda h: h * p["b"], h)


def _turns(h: Any, p: Weights, at: Place) -> Any:
    return h + 0.1 * jax.lax.fori_loop(0, 2, lambda _, x: jnp.tanh(x @ p["w"]), h)


def _recurrent(h: Any, p: Weights, at: Place) -> Any:
    def cell(state: Any, token: Any) -> Any:
        state = jnp.tanh(state * p["g"] + token)
        return state, state

    return h + jax.lax.scan(cell, jnp.zeros_like(h[:, 0]), h.swapaxes(0, 1))[1].swapaxes(0, 1)


def _again(h: Any, p: Weights, at: Place) -> Any:
    return jax.checkpoint(lambda h, w: h + jnp.sin(h @ w))(h, p["w"])


def _dropout(h: Any, p: Weights, at: Place) -> Any:
    """One pattern for all examples: a pattern for each would read rows of no input."""
    return h * jax.random.bernoulli(at.key, 0.8, h.shape[1:]).astype(h.dtype) / 0.8


def _dropout_of_rows(h: Any, p: Weights, at: Place) -> Any:
    return jnp.where(jax.random.bernoulli(at.key, 0.8, h.shape), jnp.tanh(h * p["g"]), h)


def _experts(h: Any, p: Weights, at: Place) -> Any:
    gates = jax.nn.softmax(h @ p["router"], -1)
    _, chosen = jax.lax.top_k(gates, 2)
    weights = jax.nn.one_hot(chosen, EXPERTS, dtype=h.dtype).sum(-2) * gates
    return h + jnp.einsum("bse,eij,bsi->bsj", weights, p["w"], h) * 0.3


def _centred(h: Any, p: Weights, at: Place) -> Any:
    return h - h.mean(1, keepdims=True) * p["g"]


def _convolved(h: Any, p: Weights, at: Place) -> Any:
    padded = jnp.pad(h, ((0, 0), (2, 0), (0, 0)))
    return h + sum(padded[:, k : k + TOKENS] * p["taps"][k] for k in range(3)) * 0.2


def _sorted(h: Any, p: Weights, at: Place) -> Any:
    return h + jnp.take_along_axis(h, jnp.argsort(h, -1), -1) * p["g"]


def _turned(h: Any, p: Weights, at: Place) -> Any:
    return jnp.concatenate([h[..., WIDTH // 2 :], h[..., : WIDTH // 2]], -1) + p["b"]


def _by_heads(h: Any, p: Weights, at: Place) -> Any:
    return h + jnp.einsum("bsnd,ndw->bsw", h.reshape(*h.shape[:2], HEADS, -1), p["w"])


def _rows_apart(h: Any, p: Weights, at: Place) -> Any:
    return h + jax.vmap(lambda row: jnp.tanh(row @ p["w"]))(h)


def _over_the_batch(h: Any, p: Weights, at: Place) -> Any:
    """Examples meet: several microbatches cannot compute this, so that it is refused."""
    return (h - h.mean(0)) * p["g"]


_SQUARE, _ROW = (WIDTH, WIDTH), (WIDTH,)
KINDS = {
    "dense": Kind({"w": _SQUARE, "b": _ROW}, _dense),
    "tied": Kind({"w": (WIDTH, 2 * WIDTH)}, _tied),
    "gated": Kind({"w": (WIDTH, 4 * WIDTH), "down": (2 * WIDTH, WIDTH)}, _gated),
    "normed": Kind({"g": _ROW}, _normed),
    "attention": Kind({"qkv": (WIDTH, 3 * WIDTH), "out": _SQUARE}, _attention),
    "half": Kind({"w": _SQUARE}, _half),
    "branch": Kind({"w": _SQUARE, "b": _ROW}, _branch),
    "turns": Kind({"w": _SQUARE}, _turns),
    "recurrent": Kind({"g": _ROW}, _recurrent),
    "again": Kind({"w": _SQUARE}, _again),
    "dropout": Kind({}, _dropout),
    "dropout of rows": Kind({"g": _ROW}, _dropout_of_rows),
    "experts": Kind({"router": (WIDTH, EXPERTS), "w": (EXPERTS, WIDTH, WIDTH)}, _experts),
    "centred": Kind({"g": _ROW}, _centred),
    "convolved": Kind({"taps": (3, WIDTH)}, _convolved),
    "sorted": Kind({"g": _ROW}, _sorted),
    "turned": Kind({"b": _ROW}, _turned),
    "by heads": Kind({"w": (HEADS, WIDTH // HEADS, WIDTH)}, _by_heads),
    "rows apart": Kind({"w": _SQUARE}, _rows_apart),
    "over the batch": Kind({"g": _ROW}, _over_the_batch),
}


def weights(names: tuple[str, ...], count: int, rng: np.random.Generator, dtype: Any) -> list[Weights]:
    """The weights of so many layers, each of these kinds one after the other; stacked over the layers."""
    return [
        {name: (rng.normal(size=(count, *shape)) / 4).astype(dtype) for name, shape in KINDS[kind].shapes.items()}
        for kind in names
    ]
