"""Training steps of language models at real size, as shapes, for `python -m bench scale`.

Dense models have the sizes of Llama 3 (arXiv:2407.21783, table 3), with grouped-query attention (arXiv:2305.13245),
a gated feed-forward block, no rotary positions, in bfloat16, with a step of SGD. Layers follow one another, or are the
steps of a `lax.scan`; the backward pass recomputes their activations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

DTYPE = "bfloat16"


@dataclass(frozen=True)
class Model:
    """A dense transformer.

    Attributes:
        width, hidden: elements of the residual stream, and of the hidden layer of a feed-forward block.
        heads, kv_heads: heads of queries, and of keys and values; a head has `width / heads` elements.
        vocabulary: rows of the embedding.
    """

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int = 128_256

    def parameters(self, *, stacked: bool) -> Any:
        """Shapes of the parameters: stacked along a dimension of layers, or a list with a tree per layer."""
        size = self.width // self.heads
        shapes = {
            "wq": (self.width, self.kv_heads, self.heads // self.kv_heads, size),
            "wk": (self.width, self.kv_heads, size),
            "wv": (self.width, self.kv_heads, size),
            "wo": (self.kv_heads, self.heads // self.kv_heads, size, self.width),
            "gate": (self.width, self.hidden),
            "up": (self.width, self.hidden),
            "down": (self.hidden, self.width),
            "norm1": (self.width,),
            "norm2": (self.width,),
        }
        ends = {"embedding": form(self.vocabulary, self.width), "head": form(self.width, self.vocabulary)}
        if stacked:
            return {**ends, "layers": {name: form(self.layers, *shape) for name, shape in shapes.items()}}
        layer = {name: form(*shape) for name, shape in shapes.items()}
        return {**ends, "layers": [layer] * self.layers}


LLAMA_8B = Model(32, 4096, 14336, 32, 8)
LLAMA_70B = Model(80, 8192, 28672, 64, 8)


def form(*shape: int, dtype: str = DTYPE) -> jax.ShapeDtypeStruct:
    """An array of the model, without values."""
    return jax.ShapeDtypeStruct(shape, dtype)


def normed(x: Any, scale: Any) -> Any:
    """`x` over its root mean square along the last dimension, times `scale`."""
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer(p: Any, x: Any) -> Any:
    """Causal attention and a gated feed-forward block, on `[batch, sequence, width]`."""
    time = x.shape[1]
    h = normed(x, p["norm1"])
    q = jnp.einsum("bse,ekgd->bkgsd", h, p["wq"])
    k, v = (jnp.einsum("bse,ekd->bksd", h, p[name]) for name in ("wk", "wv"))
    scores = jnp.einsum("bkgsd,bktd->bkgst", q, k) * p["wq"].shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e9)
    mixed = jnp.einsum("bkgst,bktd->bskgd", jax.nn.softmax(scores), v)
    x = x + jnp.einsum("bskgd,kgde->bse", mixed, p["wo"])
    h = normed(x, p["norm2"])
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def loss(params: Any, tokens: Any, targets: Any) -> Any:
    """Mean cross entropy."""
    x = params["embedding"][tokens]
    body = jax.checkpoint(layer)
    if isinstance(params["layers"], dict):
        x, _ = jax.lax.scan(lambda h, p: (body(p, h), None), x, params["layers"])
    else:
        for p in params["layers"]:
            x = body(p, x)
    logits = (x @ params["head"]).astype("float32")
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def train(params: Any, tokens: Any, targets: Any) -> Any:
    """A step of SGD: the new parameters, and the loss."""
    value, slopes = jax.value_and_grad(loss)(params, tokens, targets)
    return jax.tree.map(lambda weight, slope: weight - weight.dtype.type(1e-3) * slope, params, slopes), value


def training(model: Model, batch: int, time: int, *, stacked: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step and its arguments for `batch` sequences of `time` tokens."""
    tokens = jax.ShapeDtypeStruct((batch, time), "int32")
    return train, (model.parameters(stacked=stacked), tokens, tokens)


def decode(params: Any, cache: Any, tokens: Any, position: Any) -> Any:
    """One token more of each sequence: the cache after it, and the tokens."""

    def one_layer(x: Any, weights: Any) -> Any:
        p, (keys, values) = weights
        p = {name: weight.astype(x.dtype) for name, weight in p.items()}  # where weights are stored in fewer bits
        h = normed(x, p["norm1"])
        q = jnp.einsum("be,ekgd->bkgd", h, p["wq"])
        k, v = (jnp.einsum("be,ekd->bkd", h, p[name])[:, :, None] for name in ("wk", "wv"))
        keys = jax.lax.dynamic_update_slice_in_dim(keys, k, position, 2)
        values = jax.lax.dynamic_update_slice_in_dim(values, v, position, 2)
        scores = jnp.einsum("bkgd,bktd->bkgt", q, keys) * q.shape[-1] ** -0.5
        scores = jnp.where(jnp.arange(keys.shape[2]) <= position, scores, -1e9)
        x = x + jnp.einsum("bkgd,kgde->be", jnp.einsum("bkgt,bktd->bkgd", jax.nn.softmax(scores), values), p["wo"])
        h = normed(x, p["norm2"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"], (keys, values)

    x = params["embedding"][tokens].astype(cache[0].dtype)
    x, cache = jax.lax.scan(one_layer, x, (params["layers"], cache))
    return cache, jnp.argmax((x @ params["head"].astype(x.dtype)).astype("float32"), -1)
