"""Networks of flax, equinox, haiku and e3nn, forwards and with gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.zoo.program import Program


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _sgd(loss: Any) -> Any:
    def step(params: Any, batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes), value

    return step


def programs() -> Iterator[Program]:
    yield from _flax()
    yield from _equinox()
    yield from _haiku()
    yield from _e3nn()


def _flax() -> Iterator[Program]:
    from flax import linen as nn

    class Perceptron(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(64)(nn.gelu(nn.LayerNorm()(nn.Dense(256)(x))))

    x = normal(64, 64)
    model = Perceptron()
    params = model.init(jax.random.key(0), x)
    mse = lambda params, batch: jnp.mean((model.apply(params, batch) - batch) ** 2)  # noqa: E731
    yield Program("perceptron, batch", "flax", _sgd(mse), (params, x), (("d", {"batch": 0}),))
    fsdp = (("d", {"batch": 0}), ("d", {"params": "first"}))
    yield Program("perceptron, FSDP", "flax", _sgd(mse), (params, x), fsdp)

    class Attention(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = x + nn.MultiHeadDotProductAttention(num_heads=8)(nn.LayerNorm()(x))
            return x + nn.Dense(64)(nn.gelu(nn.Dense(256)(nn.LayerNorm()(x))))

    block, tokens = Attention(), normal(8, 16, 64)
    weights = block.init(jax.random.key(0), tokens)
    loss = lambda params, batch: jnp.mean(block.apply(params, batch) ** 2)  # noqa: E731
    yield Program("attention block, batch", "flax", _sgd(loss), (weights, tokens), (("d", {"batch": 0}),))
    heads = {"query/kernel": 1, "key/kernel": 1, "value/kernel": 1, "query/bias": 0, "key/bias": 0, "value/bias": 0,
             "out/kernel": 0, "Dense_0/kernel": 1, "Dense_0/bias": 0, "Dense_1/kernel": 0}  # fmt: skip
    yield Program("attention block, heads", "flax", _sgd(loss), (weights, tokens), (("d", heads),))

    class Pictures(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.Conv(16, (3, 3))(x))
            x = nn.max_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
            return nn.Dense(10)(x.reshape(x.shape[0], -1))

    net, pictures = Pictures(), normal(16, 16, 16, 3)
    kernels = net.init(jax.random.key(0), pictures)
    square = lambda params, batch: jnp.mean(net.apply(params, batch) ** 2)  # noqa: E731
    yield Program("convolutions, batch", "flax", _sgd(square), (kernels, pictures), (("d", {"batch": 0}),))

    class Recurrent(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.RNN(nn.LSTMCell(32))(x)

    cell, sequence = Recurrent(), normal(16, 12, 32)
    gates = cell.init(jax.random.key(0), sequence)
    last = lambda params, batch: jnp.mean(cell.apply(params, batch) ** 2)  # noqa: E731
    yield Program("LSTM by scan, batch", "flax", _sgd(last), (gates, sequence), (("d", {"batch": 0}),))


def _equinox() -> Iterator[Program]:
    import equinox as eqx

    model = eqx.nn.MLP(32, 32, 128, 3, key=jax.random.key(1))
    arrays, rest = eqx.partition(model, eqx.is_array)

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean((jax.vmap(eqx.combine(params, rest))(batch) - batch) ** 2)

    yield Program("MLP, batch", "equinox", _sgd(loss), (arrays, normal(64, 32)), (("d", {"batch": 0}),))

    attention = eqx.nn.MultiheadAttention(8, 64, key=jax.random.key(1))
    weights, other = eqx.partition(attention, eqx.is_array)

    def attended(params: Any, batch: Any) -> Any:
        layer = eqx.combine(params, other)
        return jnp.mean(jax.vmap(lambda x: layer(x, x, x))(batch) ** 2)

    yield Program("attention, batch", "equinox", _sgd(attended), (weights, normal(8, 16, 64)), (("d", {"batch": 0}),))

    cell = eqx.nn.GRUCell(16, 32, key=jax.random.key(1))
    gates, others = eqx.partition(cell, eqx.is_array)

    def recurrent(params: Any, batch: Any) -> Any:
        step = eqx.combine(params, others)
        run = lambda xs: jax.lax.scan(lambda h, x: (step(x, h), None), jnp.zeros(32), xs)[0]  # noqa: E731
        return jnp.mean(jax.vmap(run)(batch) ** 2)

    yield Program("GRU by scan, batch", "equinox", _sgd(recurrent), (gates, normal(16, 12, 16)), (("d", {"batch": 0}),))


def _haiku() -> Iterator[Program]:
    import haiku as hk

    def forward(x: Any) -> Any:
        return hk.nets.MLP([128, 32])(hk.LayerNorm(-1, create_scale=True, create_offset=True)(x))

    net, x = hk.without_apply_rng(hk.transform(forward)), normal(64, 32)
    params = net.init(jax.random.key(0), x)
    loss = lambda params, batch: jnp.mean((net.apply(params, batch) - batch) ** 2)  # noqa: E731
    yield Program("MLP and norm, batch", "haiku", _sgd(loss), (params, x), (("d", {"batch": 0}),))

    pooled = hk.without_apply_rng(
        hk.transform(lambda x: hk.Linear(8)(hk.Flatten()(hk.AvgPool(2, 2, "VALID")(hk.Conv2D(16, 3)(x)))))
    )
    pictures = normal(16, 8, 8, 3)
    kernels = pooled.init(jax.random.key(0), pictures)
    square = lambda params, batch: jnp.mean(pooled.apply(params, batch) ** 2)  # noqa: E731
    yield Program("convolution and pooling, batch", "haiku", _sgd(square), (kernels, pictures), (("d", {"batch": 0}),))


def _e3nn() -> Iterator[Program]:
    import e3nn_jax as e3nn

    def product(x: Any, y: Any) -> Any:
        first, second = e3nn.IrrepsArray("8x0e + 8x1o", x), e3nn.IrrepsArray("1x0e + 1x1o + 1x2e", y)
        return e3nn.tensor_product(first, second).array

    yield Program(
        "tensor product, batch", "e3nn-jax", product, (normal(64, 32), normal(64, 9)), (("d", {"x": 0, "y": 0}),)
    )
    harmonics = lambda x: e3nn.spherical_harmonics("0e + 1o + 2e + 3o", x, True).array  # noqa: E731
    yield Program("spherical harmonics, batch", "e3nn-jax", harmonics, (normal(64, 3),), (("d", {"x": 0}),))
