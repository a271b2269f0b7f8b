"""A small transformer in plain JAX, a step of its training, and how both are cut over devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd

LAYERS, WIDTH, HEADS, VOCABULARY = 2, 64, 8, 128
Params = dict[str, Any]


def mesh(**axes: int) -> Mesh:
    """A mesh over the first devices."""
    count = int(np.prod(list(axes.values())))
    devices = np.array(jax.devices()[:count]).reshape(tuple(axes.values()))
    return Mesh(devices, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def init(key: jax.Array) -> Params:
    keys = iter(jax.random.split(key, 2 + 4 * LAYERS))

    def weight(*shape: int, into: int = WIDTH) -> jax.Array:
        return jax.random.normal(next(keys), shape) / np.sqrt(into)

    size = WIDTH // HEADS

    layers = [
        {
            "qkv": weight(WIDTH, 3, HEADS, size),  # the heads are a dimension of their own, which can be cut
            "out": weight(HEADS, size, WIDTH),
            "up": weight(WIDTH, 4 * WIDTH),
            "down": weight(4 * WIDTH, WIDTH, into=4 * WIDTH),
            "scale": jnp.ones((2, WIDTH)),
        }
        for _ in range(LAYERS)
    ]
    return {"embed": weight(VOCABULARY, WIDTH, into=VOCABULARY), "layers": layers}


def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * scale * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits(params: Params, tokens: jax.Array) -> jax.Array:
    """`[batch, time, vocabulary]` from `[batch, time]`."""
    x = params["embed"][tokens]
    for layer in params["layers"]:
        q, k, v = jnp.einsum("bte,echd->cbthd", normed(x, layer["scale"][0]), layer["qkv"])
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + jnp.einsum("bthd,hde->bte", attended, layer["out"])
        x = x + jax.nn.gelu(normed(x, layer["scale"][1]) @ layer["up"]) @ layer["down"]
    return x @ params["embed"].T


def loss(params: Params, tokens: jax.Array, targets: jax.Array) -> jax.Array:
    predicted = jax.nn.log_softmax(logits(params, tokens))
    return -jnp.mean(jnp.take_along_axis(predicted, targets[..., None], axis=-1))


def training(optimizer: optax.GradientTransformation) -> Callable[..., tuple[Params, Any, jax.Array]]:
    """A step: forward, loss, backward, optimizer."""

    def step(params: Params, state: Any, tokens: jax.Array, targets: jax.Array) -> tuple[Params, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return step


BATCH = rd.along("d", {"tokens": 0, "targets": 0})
ZERO = rd.along("d", {"params": "first", "state": "first"})
MEGATRON = rd.along("t", {"qkv": 2, "out": 0, "up": 1, "down": 0})
SEQUENCES = rd.along("t", {"tokens": 1})

# How a step can be distributed over eight devices: the mesh's axes, and what is cut along them, one after the other.
WAYS: dict[str, tuple[dict[str, int], list[Any]]] = {
    "data": ({"d": 8}, [BATCH]),
    "ZeRO": ({"d": 8}, [BATCH, ZERO]),
    "Megatron": ({"t": 8}, [MEGATRON]),
    "Megatron, sequences": ({"t": 8}, [MEGATRON, SEQUENCES]),
    "data x Megatron": ({"d": 2, "t": 4}, [BATCH, MEGATRON]),
    "ZeRO x Megatron": ({"d": 2, "t": 4}, [BATCH, ZERO, MEGATRON]),
    "ZeRO x Megatron, sequences": ({"d": 2, "t": 4}, [BATCH, ZERO, MEGATRON, SEQUENCES]),
}


def fsdp(tree: Any, on: Mesh) -> Any:
    """Fully sharded: every array cut over all devices along its first dimension that they divide."""

    def cut(leaf: Any) -> NamedSharding:
        dims = [i for i, size in enumerate(leaf.shape) if size % on.size == 0]
        return NamedSharding(on, P(*[None] * dims[0], on.axis_names) if dims else P())

    return jax.tree.map(cut, tree)


def tensor_parallel(params: Params, on: Mesh) -> Params:
    """Megatron's cut over the axis `tensor`: columns on the way in, rows on the way out."""
    heads = P(None, None, "tensor")
    cuts = {"qkv": heads, "up": P(None, "tensor"), "out": P("tensor"), "down": P("tensor"), "scale": P()}
    layers = [{name: NamedSharding(on, cuts[name]) for name in layer} for layer in params["layers"]]
    return {"embed": NamedSharding(on, P("tensor")), "layers": layers}
