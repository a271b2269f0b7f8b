"""Programs whose prices are compared with compilers' figures and with processor seconds: parts of models, as shapes.

Sizes of models are multiples of 128 where the programs allow it, since a TPU pads the last two dimensions of an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bench.language_models import Model, decode, form, normed
from bench.programs import learning, transformer
from bench.programs.case import f32, i32, sgd


class Sizes(NamedTuple):
    """Sizes of all programs.

    Attributes:
        batch, time, width: of sequences.
        heads, kv_heads, head: of attention, and the elements of a head; all heads have `width` elements.
        vocabulary: words.
        rows: of norms and losses.
        images, side, channels, classes: of convolution nets.
        groups, tokens, experts, narrow, hidden: of a mixture of experts: tokens of each group, widths inside.
        steps, states, cell: of an LSTM: its batch and its width.
        sequences, cached: of decoding: entries of the cache.
        examples: of a logistic regression.
        points, features, centres: of k-means.
        square: rows and columns of a weight that Adam updates.
    """

    batch: int = 8
    time: int = 2048
    width: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head: int = 128
    vocabulary: int = 65536
    rows: int = 16384
    images: int = 256
    side: int = 64
    channels: int = 128
    classes: int = 1024
    groups: int = 16
    tokens: int = 2048
    experts: int = 16
    narrow: int = 2048
    hidden: int = 8192
    steps: int = 128
    states: int = 4096
    cell: int = 1024
    sequences: int = 64
    cached: int = 8192
    examples: int = 65536
    points: int = 2**20
    features: int = 128
    centres: int = 256
    square: int = 8192


MODELS = Sizes()
ONE_CORE = Sizes(
    batch=2, time=256, width=512, heads=8, kv_heads=4, head=64, vocabulary=8192, rows=2048, images=8, side=32,
    channels=32, classes=256, groups=4, tokens=256, experts=8, narrow=256, hidden=1024, steps=16, states=256, cell=256,
    sequences=8, cached=512, examples=8192, points=2**14, features=64, centres=64, square=1024,
)  # fmt: skip


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


def programs(sizes: Sizes = MODELS) -> dict[str, Program]:
    """Every program by its name."""
    z = sizes
    x, rows, words = form(z.batch, z.time, z.width), form(z.batch * z.time, z.width), i32(z.batch, z.time)
    block = {
        **{name: form(z.width, z.heads, z.head) for name in ("wq", "wk", "wv")},
        "wo": form(z.heads, z.head, z.width),
        "up": form(z.width, 4 * z.width),
        "down": form(4 * z.width, z.width),
        "norm1": form(z.width),
        "norm2": form(z.width),
    }
    layers = [(form(z.width, 4 * z.width), form(4 * z.width)), (form(4 * z.width, z.width), form(z.width))]
    gated = {"gate": form(z.width, 4 * z.width), "up": form(z.width, 4 * z.width), "down": form(4 * z.width, z.width)}
    gated["norm"] = form(z.width)
    norms = {"scale": f32(z.width), "shift": f32(z.width)}
    small = {
        "conv1": form(3, 3, 3, z.channels),
        "conv2": form(3, 3, z.channels, 2 * z.channels),
        "dense": form(2 * z.channels, z.classes),
    }
    stage = {f"conv{k}": form(3, 3, z.channels, z.channels) for k in (1, 2)}
    stage |= {f"{name}{k}": form(z.channels) for name in ("scale", "shift") for k in (1, 2)}
    images, labels = form(z.images, z.side, z.side, z.channels), i32(z.images)
    experts = {
        "gate": form(z.narrow, z.experts),
        "up": form(z.experts, z.narrow, z.hidden),
        "down": form(z.experts, z.hidden, z.narrow),
    }
    sent = form(z.groups, z.tokens, z.narrow)
    cell = {"wx": form(z.cell, 4 * z.cell), "wh": form(z.cell, 4 * z.cell), "bias": form(4 * z.cell)}
    model = Model(2, z.width, 4 * z.width, z.heads, z.kv_heads, z.vocabulary)
    cache = (form(2, z.sequences, z.kv_heads, z.cached, z.head),) * 2
    return {
        "MLP": Program(mlp, (layers, rows)),
        "MLP, step": Program(sgd(mlp_loss), (layers, rows, rows)),
        "transformer block": Program(transformer.block, (block, x)),
        "transformer block, step": Program(sgd(transformer.loss), (block, x, x)),
        "attention heads": Program(attention, (block, x)),
        "RMSNorm and SwiGLU, gradient": Program(
            lambda params, x, dy: jax.vjp(swiglu, params, x)[1](dy), (gated, rows, rows)
        ),
        "LayerNorm, backward": Program(learning.norm_backward, (norms, f32(z.rows, z.width), f32(z.rows, z.width))),
        "convolution net, step": Program(
            sgd(learning.convolutions), (small, form(z.images, z.side, z.side, 3), labels)
        ),
        "residual CNN, step": Program(
            sgd(residual), ({"blocks": [stage] * 2, "dense": form(z.channels, z.classes)}, images, labels)
        ),
        "embedding and cross-entropy, step": Program(
            sgd(learning.words), ({"embed": form(z.vocabulary, z.width)}, words, words)
        ),
        "softmax cross-entropy, gradient": Program(jax.grad(entropy), (f32(z.rows, z.vocabulary), i32(z.rows))),
        "mixture of experts, step": Program(sgd(learning.mixture), (experts, sent, sent)),
        "LSTM by scan": Program(lstm, (cell, form(z.steps, z.states, z.cell))),
        "decoding with a cache": Program(
            decode, (model.parameters(stacked=True), cache, i32(z.sequences), jax.ShapeDtypeStruct((), "int32"))
        ),
        "logistic regression, step": Program(
            sgd(logistic_loss),
            ({"weight": f32(z.width), "bias": f32()}, f32(z.examples, z.width), f32(z.examples)),
        ),
        "k-means": Program(k_means, (f32(z.points, z.features), f32(z.centres, z.features))),
        "Adam": Program(adam, (*([f32(z.square, z.square), f32(z.square)],) * 4, f32())),
    }
