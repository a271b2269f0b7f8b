"""A small transformer in plain JAX, and how its parameters are cut for training and for serving."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, HEADS, VOCABULARY = 2, 64, 8, 128
Params = dict[str, Any]


def mesh(**axes: int) -> Mesh:
    """A mesh over the first devices."""
    count = int(np.prod(list(axes.values())))
    devices = np.array(jax.devices()[:count]).reshape(tuple(axes.values()))
    return Mesh(devices, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def init(key: jax.Array) -> Params:
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))

    def weight(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape) / np.sqrt(shape[0])

    layers = [
        {
            "qkv": weight(WIDTH, 3 * WIDTH),
            "out": weight(WIDTH, WIDTH),
            "up": weight(WIDTH, 4 * WIDTH),
            "down": weight(4 * WIDTH, WIDTH),
            "scale": jnp.ones((2, WIDTH)),
        }
        for _ in range(LAYERS)
    ]
    return {"embed": weight(VOCABULARY, WIDTH), "layers": layers}


def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits(params: Params, tokens: jax.Array) -> jax.Array:
    """`[batch, time, vocabulary]` from `[batch, time]`."""
    x = params["embed"][tokens]
    batch, time, _ = x.shape
    for layer in params["layers"]:
        qkv = normed(x, layer["scale"][0]) @ layer["qkv"]
        q, k, v = (part.reshape(batch, time, HEADS, -1) for part in jnp.split(qkv, 3, axis=-1))
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + attended.reshape(batch, time, WIDTH) @ layer["out"]
        x = x + jax.nn.gelu(normed(x, layer["scale"][1]) @ layer["up"]) @ layer["down"]
    return x @ params["embed"].T


def loss(params: Params, tokens: jax.Array) -> jax.Array:
    predicted = jax.nn.log_softmax(logits(params, tokens[:, :-1]))
    return -jnp.mean(jnp.take_along_axis(predicted, tokens[:, 1:, None], axis=-1))


def fsdp(tree: Any, on: Mesh) -> Any:
    """Fully sharded: every array cut over all devices along its first dimension that they divide."""

    def cut(leaf: Any) -> NamedSharding:
        dims = [i for i, size in enumerate(leaf.shape) if size % on.size == 0]
        return NamedSharding(on, P(*[None] * dims[0], on.axis_names) if dims else P())

    return jax.tree.map(cut, tree)


def tensor_parallel(params: Params, on: Mesh) -> Params:
    """Megatron's cut over the axis `tensor`: columns on the way in, rows on the way out."""
    cuts = {"qkv": P(None, "tensor"), "up": P(None, "tensor"), "out": P("tensor"), "down": P("tensor"), "scale": P()}
    layers = [{name: NamedSharding(on, cuts[name]) for name in layer} for layer in params["layers"]]
    return {"embed": NamedSharding(on, P("tensor")), "layers": layers}
