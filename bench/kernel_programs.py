"""Programs whose memory traffic is compared with that of compilers, as shapes: parts of models, trained and used.

Sizes are multiples of 128 where the programs allow it, since a TPU pads the last two dimensions of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bench.language_models import Model, decode, form, normed
from bench.programs import learning, transformer
from bench.programs.case import f32, i32, sgd

BATCH, TIME, WIDTH, HEADS, SIZE = 8, 2048, 4096, 32, 128  # a head has `SIZE` elements
VOCABULARY, CHANNELS = 65536, 128


class Program(NamedTuple):
    """A function and its arguments.

    Attributes:
        function: of arrays.
        args: trees of `jax.ShapeDtypeStruct`.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]


def mlp(params: Any, x: Any) -> Any:
    """Three layers with biases, on `[rows, width]`."""
    for weight, bias in params:
        x = jax.nn.relu(x @ weight + bias)
    return x


def mlp_loss(params: Any, x: Any, target: Any) -> Any:
    """Mean squared error."""
    return jnp.mean((mlp(params, x) - target) ** 2)


def attention(params: Any, x: Any) -> Any:
    """Causal attention, on `[batch, time, width]`."""
    q, k, v = (jnp.einsum("bse,ehd->bhsd", x, params[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool)), scores, -1e9)
    return jnp.einsum("bhsd,hde->bse", jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores), v), params["wo"])


def swiglu(params: Any, x: Any) -> Any:
    """A root mean square norm and a gated feed-forward block with its residual, on `[rows, width]`."""
    h = normed(x, params["norm"])
    return x + (jax.nn.silu(h @ params["gate"]) * (h @ params["up"])) @ params["down"]


def k_means(x: Any, centres: Any) -> Any:
    """A step of k-means on `[points, features]`: the means of the points that are nearest to each centre."""
    distances = jnp.sum(centres**2, -1) - 2 * x @ centres.T
    chosen = jax.nn.one_hot(jnp.argmin(distances, -1), centres.shape[0], dtype=x.dtype)
    return (chosen.T @ x) / jnp.maximum(jnp.sum(chosen, 0), 1)[:, None]


def adam(params: Any, slopes: Any, first: Any, second: Any, step: Any) -> Any:
    """An update of Adam: parameters, first and second moments."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)
    rates = 1 - 0.9**step, 1 - 0.999**step
    updated = jax.tree.map(
        lambda p, m, v: p - 1e-3 * (m / rates[0]) / (jnp.sqrt(v / rates[1]) + 1e-8), params, first, second
    )
    return updated, first, second


def entropy(logits: Any, label: Any) -> Any:
    """Mean cross-entropy of `[rows, classes]`."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[..., None], -1))


def logistic_loss(params: Any, x: Any, label: Any) -> Any:
    """Logistic regression with an L2 penalty: `x` is `[rows, features]`, labels 0 or 1."""
    logits = x @ params["weight"] + params["bias"]
    return jnp.mean(jax.nn.softplus(logits) - label * logits) + 1e-4 * jnp.sum(params["weight"] ** 2)


def lstm(params: Any, x: Any) -> Any:
    """A layer of an LSTM over `[time, batch, width]`, by scan."""

    def cell(state: Any, entry: Any) -> Any:
        hidden, memory = state
        gates = entry @ params["wx"] + hidden @ params["wh"] + params["bias"]
        i, f, g, o = jnp.split(gates, 4, -1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    start = jnp.zeros((x.shape[1], params["wh"].shape[0]), x.dtype)
    return jax.lax.scan(cell, (start, start), x)[1]


def residual(params: Any, image: Any, label: Any) -> Any:
    """Two residual blocks with batch norms on `[batch, height, width, channels]`, a pool and a classifier."""

    def conv(x: Any, weight: Any) -> Any:
        return jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def batch_norm(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - jnp.mean(x, (0, 1, 2))
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, (0, 1, 2)) + 1e-5) * scale + shift

    for block in params["blocks"]:
        h = jax.nn.relu(batch_norm(conv(image, block["conv1"]), block["scale1"], block["shift1"]))
        image = jax.nn.relu(image + batch_norm(conv(h, block["conv2"]), block["scale2"], block["shift2"]))
    return entropy(jnp.mean(image, (1, 2)) @ params["dense"], label)


def programs() -> dict[str, Program]:
    """Every program by its name."""
    x, rows, words = form(BATCH, TIME, WIDTH), form(BATCH * TIME, WIDTH), i32(BATCH, TIME)
    block = {
        **{name: form(WIDTH, HEADS, SIZE) for name in ("wq", "wk", "wv")},
        "wo": form(HEADS, SIZE, WIDTH),
        "up": form(WIDTH, 4 * WIDTH),
        "down": form(4 * WIDTH, WIDTH),
        "norm1": form(WIDTH),
        "norm2": form(WIDTH),
    }
    layers = [(form(WIDTH, 4 * WIDTH), form(4 * WIDTH)), (form(4 * WIDTH, WIDTH), form(WIDTH))]
    gated = {"gate": form(WIDTH, 4 * WIDTH), "up": form(WIDTH, 4 * WIDTH), "down": form(4 * WIDTH, WIDTH)}
    gated["norm"] = form(WIDTH)
    norms = {"scale": f32(WIDTH), "shift": f32(WIDTH)}
    small = {
        "conv1": form(3, 3, 3, CHANNELS),
        "conv2": form(3, 3, CHANNELS, 2 * CHANNELS),
        "dense": form(2 * CHANNELS, 1024),
    }
    stage = {f"conv{k}": form(3, 3, CHANNELS, CHANNELS) for k in (1, 2)}
    stage |= {f"{name}{k}": form(CHANNELS) for name in ("scale", "shift") for k in (1, 2)}
    images = form(256, 64, 64, CHANNELS)
    experts = {"gate": form(2048, 16), "up": form(16, 2048, 8192), "down": form(16, 8192, 2048)}
    sent = form(16, 2048, 2048)
    cell = {"wx": form(1024, 4096), "wh": form(1024, 4096), "bias": form(4096)}
    model = Model(2, WIDTH, 4 * WIDTH, HEADS, 8, VOCABULARY)
    cache = (form(2, 64, 8, 8192, SIZE),) * 2
    return {
        "MLP": Program(mlp, (layers, rows)),
        "MLP, step": Program(sgd(mlp_loss), (layers, rows, rows)),
        "transformer block": Program(transformer.block, (block, x)),
        "transformer block, step": Program(sgd(transformer.loss), (block, x, x)),
        "attention heads": Program(attention, (block, x)),
        "RMSNorm and SwiGLU, gradient": Program(
            lambda params, x, dy: jax.vjp(swiglu, params, x)[1](dy), (gated, rows, rows)
        ),
        "LayerNorm, backward": Program(learning.norm_backward, (norms, f32(16384, WIDTH), f32(16384, WIDTH))),
        "convolution net, step": Program(sgd(learning.convolutions), (small, form(256, 64, 64, 3), i32(256))),
        "residual CNN, step": Program(
            sgd(residual), ({"blocks": [stage] * 2, "dense": form(CHANNELS, 1024)}, images, i32(256))
        ),
        "embedding and cross-entropy, step": Program(
            sgd(learning.words), ({"embed": form(VOCABULARY, WIDTH)}, words, words)
        ),
        "softmax cross-entropy, gradient": Program(jax.grad(entropy), (f32(16384, VOCABULARY), i32(16384))),
        "mixture of experts, step": Program(sgd(learning.mixture), (experts, sent, sent)),
        "LSTM by scan": Program(lstm, (cell, form(128, 4096, 1024))),
        "decoding with a cache": Program(
            decode, (model.parameters(stacked=True), cache, i32(64), jax.ShapeDtypeStruct((), "int32"))
        ),
        "logistic regression, step": Program(
            sgd(logistic_loss), ({"weight": f32(WIDTH), "bias": f32()}, f32(65536, WIDTH), f32(65536))
        ),
        "k-means": Program(k_means, (f32(2**20, 128), f32(256, 128))),
        "Adam": Program(adam, (*([f32(8192, 8192), f32(8192)],) * 4, f32())),
    }
