"""Training steps of small networks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bench.programs.case import Case, P, case, f32, i32, sgd

BOTH = {"d": 2, "t": 4}


def mlp(params: Any, x: Any, target: Any) -> Any:
    for name in ("w1", "w2", "w3"):
        x = jax.nn.relu(x @ params[name])
    return jnp.mean((x @ params["w4"] - target) ** 2)


def _mlp(size: int) -> Case:
    rows, width = ((256, 64), (1024, 256), (4096, 1024))[size]
    params = {f"w{k}": f32(width, 4 * width) if k % 2 else f32(4 * width, width) for k in (1, 2, 3, 4)}
    x = f32(rows, width)
    columns_and_rows = {"params/w1": 1, "params/w2": 0, "params/w3": 1, "params/w4": 0}
    stages = [("d", {"x": 0, "target": 0}), ("t", columns_and_rows)]
    return case("MLP", sgd(mlp), {"params": params, "x": x, "target": x}, BOTH, stages)


def heads(params: Any, x: Any, target: Any) -> Any:
    """Grouped-query attention: k heads of keys and values, with g heads of queries each."""
    q = jnp.einsum("bse,ekgd->bkgsd", x, params["wq"])
    k, v = (jnp.einsum("bse,ekd->bksd", x, params[name]) for name in ("wk", "wv"))
    scores = jax.nn.softmax(jnp.einsum("bkgsd,bktd->bkgst", q, k) / q.shape[-1] ** 0.5)
    mixed = jnp.einsum("bkgst,bktd->bskgd", scores, v)
    return jnp.mean((jnp.einsum("bskgd,kgde->bse", mixed, params["wo"]) - target) ** 2)


_HEADS = ((8, 32, 64, 4, 4, 4), (8, 128, 256, 4, 4, 16), (8, 512, 1024, 4, 4, 64))


def _heads(size: int) -> Case:
    batch, time, width, keys, group, head = _HEADS[size]
    params = {
        "wq": f32(width, keys, group, head),
        "wk": f32(width, keys, head),
        "wv": f32(width, keys, head),
        "wo": f32(keys, group, head, width),
    }
    x = f32(batch, time, width)
    stages = [("d", {"x": 0, "target": 0}), ("t", {"params/wq": 1, "params/wk": 1, "params/wv": 1, "params/wo": 0})]
    return case("grouped heads", sgd(heads), {"params": params, "x": x, "target": x}, BOTH, stages)


def convolutions(params: Any, image: Any, label: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    for name in ("conv1", "conv2"):
        image = jax.nn.relu(jax.lax.conv_general_dilated(image, params[name], (1, 1), "SAME", dimension_numbers=layout))
    logits = jnp.mean(image, (1, 2)) @ params["dense"]
    return _entropy(logits, label)


def _entropy(logits: Any, label: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[..., None], -1))


def _convolutions(size: int) -> Case:
    batch, side, channels, classes = ((16, 8, 16, 16), (32, 32, 32, 128), (64, 64, 64, 1000))[size]
    params = {
        "conv1": f32(3, 3, 3, channels),
        "conv2": f32(3, 3, channels, 2 * channels),
        "dense": f32(2 * channels, classes),
    }
    args = {"params": params, "image": f32(batch, side, side, 3), "label": i32(batch)}
    stages = [("d", {"image": 0, "label": 0}), ("t", {"params/conv1": 3, "params/conv2": 2})]
    return case("convolution net", sgd(convolutions), args, BOTH, stages, below=classes)


def words(params: Any, token: Any, label: Any) -> Any:
    """An embedding, and the cross-entropy of the next token by the same embedding."""
    return _entropy(jnp.tanh(params["embed"][token]) @ params["embed"].T, label)


def _words(size: int) -> Case:
    batch, time, width, vocabulary = ((8, 16, 32, 512), (8, 128, 128, 8192), (8, 512, 512, 32768))[size]
    args = {"params": {"embed": f32(vocabulary, width)}, "token": i32(batch, time), "label": i32(batch, time)}
    stages = [("d", {"token": 0, "label": 0}), ("t", {"params/embed": 0})]
    return case("embedding and cross-entropy", sgd(words), args, BOTH, stages, below=vocabulary)


def mixture(params: Any, x: Any, target: Any) -> Any:
    """A mixture of experts: one expert per token and a fixed capacity of each expert, so that no shape is ragged."""
    tokens, experts = x.shape[1], params["gate"].shape[1]
    capacity = 2 * tokens // experts
    odds = jax.nn.softmax(x @ params["gate"])
    chosen = jax.nn.one_hot(jnp.argmax(odds, -1), experts)
    place = jnp.cumsum(chosen, 1) * chosen - 1
    dispatch = jax.nn.one_hot(place.astype(jnp.int32), capacity) * chosen[..., None]
    combine = dispatch * jnp.sum(odds * chosen, -1)[..., None, None]
    sent = jnp.einsum("gtec,gtm->egcm", dispatch, x)
    hidden = jax.nn.relu(jnp.einsum("egcm,emf->egcf", sent, params["up"]))
    back = jnp.einsum("egcf,efm->egcm", hidden, params["down"])
    return jnp.mean((jnp.einsum("gtec,egcm->gtm", combine, back) - target) ** 2)


def _mixture(size: int) -> Case:
    groups, tokens, width, experts = ((8, 32, 32, 16), (8, 256, 128, 16), (8, 1024, 512, 16))[size]
    params = {"gate": f32(width, experts), "up": f32(experts, width, 4 * width), "down": f32(experts, 4 * width, width)}
    x = f32(groups, tokens, width)
    stages = [("e", {"x": 0, "target": 0, "params/up": 0, "params/down": 0})]
    return case("mixture of experts", sgd(mixture), {"params": params, "x": x, "target": x}, {"e": 8}, stages)


def norm(params: Any, x: Any) -> Any:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * params["scale"] + params["shift"]


def norm_backward(params: Any, x: Any, dy: Any) -> Any:
    return jax.vjp(norm, params, x)[1](dy)


def _norm(size: int) -> Case:
    rows, width = ((64, 128), (2048, 1024), (8192, 4096))[size]
    params = {"scale": f32(width), "shift": f32(width)}
    args = {"params": params, "x": f32(rows, width), "dy": f32(rows, width)}
    stages = [("d", {"x": 0, "dy": 0}), ("t", {"x": 1, "dy": 1, "params/scale": 0, "params/shift": 0})]
    return case("LayerNorm backward", norm_backward, args, BOTH, stages, (P("t"), P("d", "t")))


def recurrent(params: Any, x: Any, target: Any) -> Any:
    """A recurrent network over `[time, batch, width]`, by scan."""

    def cell(state: Any, entry: Any) -> Any:
        state = jnp.tanh(entry @ params["wx"] + state @ params["wh"])
        return state, state @ params["wo"]

    start = jnp.zeros((x.shape[1], params["wh"].shape[0]), x.dtype)
    return jnp.mean((jax.lax.scan(cell, start, x)[1] - target) ** 2)


def _recurrent(size: int) -> Case:
    time, batch, width, hidden = ((8, 16, 16, 64), (16, 128, 128, 512), (32, 256, 256, 1024))[size]
    params = {"wx": f32(width, hidden), "wh": f32(hidden, hidden), "wo": f32(hidden, width)}
    x = f32(time, batch, width)
    stages = [("d", {"x": 1, "target": 1}), ("t", {"params/wx": 1, "params/wh": 1, "params/wo": 0})]
    return case("RNN by scan", sgd(recurrent), {"params": params, "x": x, "target": x}, BOTH, stages)


def cases(size: int) -> list[Case]:
    """The seven programs at a size."""
    makers = (_mlp, _heads, _convolutions, _words, _mixture, _norm, _recurrent)
    return [maker(size) for maker in makers]
