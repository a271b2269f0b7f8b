"""Twenty more programs, for predictions of memory alone: ten to find rules on, ten that were held out.

The rules of `redistrib.programs.time.kernels.fused` were written with `cases` of `bench.programs.all` and `known` in
sight. What `held_out` has was compiled when most were finished; after it one was changed, for `heat`: pads are no part
of loops.
"""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp

from bench.programs.case import Case, P, case, f32, i32, sgd

BOTH = {"d": 4, "t": 2}
ONE = {"d": 8}


def _entropy(logits: Any, label: Any) -> Any:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[..., None], -1))


def adam(loss: Any) -> Any:
    """`(params, state, *batch)` to new parameters, new state and the loss."""

    def step(params: Any, state: Any, *batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, *batch)
        m = {name: 0.9 * state[f"m_{name}"] + 0.1 * g for name, g in grads.items()}
        v = {name: 0.99 * state[f"v_{name}"] + 0.01 * g * g for name, g in grads.items()}
        new = {name: p - 1e-3 * m[name] / (jnp.sqrt(v[name]) + 1e-6) for name, p in params.items()}
        return new, {**{f"m_{n}": one for n, one in m.items()}, **{f"v_{n}": one for n, one in v.items()}}, value

    given = inspect.signature(loss)
    first, *rest = given.parameters.values()
    step.__signature__ = given.replace(parameters=[first, first.replace(name="state"), *rest])  # type: ignore[attr-defined]
    return step


def _with_state(params: dict[str, Any]) -> dict[str, Any]:
    return {f"{kind}_{name}": form for kind in "mv" for name, form in params.items()}


def _pins(params: dict[str, Any], dims: dict[str, int]) -> dict[str, int]:
    """The same cuts for parameters and for the state that goes with them."""
    found = {f"params/{name}": dim for name, dim in dims.items()}
    return found | {f"state/{kind}_{name}": dim for kind in "mv" for name, dim in dims.items()}


# ------------------------------------------------------------------------------------------------ seen while tuning


def gated(params: Any, x: Any, target: Any) -> Any:
    """A gated perceptron behind a norm."""
    h = x * params["scale"] * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    h = jax.nn.silu(h @ params["gate"]) * (h @ params["up"])
    return jnp.mean((x + h @ params["down"] - target) ** 2)


def adapters(params: Any, frozen: Any, x: Any, target: Any) -> Any:
    """Low-rank adapters beside frozen weights."""
    for name in ("1", "2"):
        x = jnp.tanh(x @ frozen[f"w{name}"] + x @ params[f"a{name}"] @ params[f"b{name}"])
    return jnp.mean((x - target) ** 2)


def factors(params: Any, row: Any, column: Any, rating: Any) -> Any:
    """A matrix factorised from some of its elements."""
    made = jnp.sum(params["left"][row] * params["right"][column], -1)
    return jnp.mean((made - rating) ** 2)


def smoothed(params: Any, x: Any, mask: Any, label: Any) -> Any:
    """A classifier with dropout, whose labels are smoothed."""
    h = jax.nn.relu(x @ params["w1"] + params["b1"]) * mask
    logits = jax.nn.log_softmax(h @ params["w2"])
    wanted = 0.9 * jax.nn.one_hot(label, logits.shape[-1]) + 0.1 / logits.shape[-1]
    return -jnp.mean(jnp.sum(wanted * logits, -1))


def covariance(x: Any) -> Any:
    centred = x - jnp.mean(x, 0)
    spread = centred.T @ centred / x.shape[0]
    scale = jax.lax.rsqrt(jnp.diagonal(spread) + 1e-6)
    return spread * scale[:, None] * scale


def ridge(x: Any, y: Any, w: Any) -> Any:
    """Eight steps of gradient descent."""
    return jax.lax.fori_loop(0, 8, lambda _, w: w - 1e-3 * (x.T @ (x @ w - y) + 0.1 * w), w)


def waves(now: Any, before: Any) -> Any:
    """Sixteen steps of the wave equation along the second dimension."""

    def leap(state: Any, _: Any) -> Any:
        now, before = state
        left = jnp.concatenate([now[:, :1], now[:, :-1]], 1)
        right = jnp.concatenate([now[:, 1:], now[:, -1:]], 1)
        after = 2 * now - before + 0.25 * (left - 2 * now + right)
        return (after, now), jnp.sum(after * after)

    (now, before), energy = jax.lax.scan(leap, (now, before), None, length=16)
    return now, before, energy


def nearest(point: Any, book: Any) -> Any:
    """The nearest entries of a code book, by angle."""
    point = point * jax.lax.rsqrt(jnp.sum(point * point, -1, keepdims=True))
    book = book * jax.lax.rsqrt(jnp.sum(book * book, -1, keepdims=True))
    return jnp.argmax(point @ book.T, -1)


def signal(params: Any, x: Any, target: Any) -> Any:
    """Convolutions in one dimension."""
    layout = ("NWC", "WIO", "NWC")
    for name in ("k1", "k2", "k3"):
        x = jax.nn.gelu(jax.lax.conv_general_dilated(x, params[name], (1,), "SAME", dimension_numbers=layout))
    return jnp.mean((jnp.mean(x, 1) - target) ** 2)


def decoder(params: Any, tokens: Any, targets: Any) -> Any:
    """A layer of a language model, with its embedding."""
    x = params["embed"][tokens]
    h = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
    q, k, v = (jnp.einsum("bse,ehd->bhsd", h, params[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / q.shape[-1] ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    x = x + jnp.einsum("bhst,bhtd,hde->bse", jax.nn.softmax(scores), v, params["wo"])
    return _entropy(jnp.einsum("bse,ve->bsv", x, params["embed"]), targets)


def known() -> list[Case]:
    """Ten that were seen while rules were written."""
    gate = {"gate": f32(1024, 4096), "up": f32(1024, 4096), "down": f32(4096, 1024), "scale": f32(1024)}
    rows = f32(4096, 1024)
    frozen = {"w1": f32(2048, 2048), "w2": f32(2048, 2048)}
    low = {"a1": f32(2048, 16), "b1": f32(16, 2048), "a2": f32(2048, 16), "b2": f32(16, 2048)}
    tables = {"left": f32(65536, 64), "right": f32(32768, 64)}
    dense = {"w1": f32(1024, 4096), "b1": f32(4096), "w2": f32(4096, 1000)}
    kernels = {"k1": f32(5, 16, 64), "k2": f32(5, 64, 64), "k3": f32(5, 64, 64)}
    words = {
        "embed": f32(8192, 512), **{name: f32(512, 8, 64) for name in ("wq", "wk", "wv")}, "wo": f32(8, 64, 512),
    }  # fmt: skip
    heads = {"wq": 1, "wk": 1, "wv": 1, "wo": 0}
    return [
        case("gated perceptron", sgd(gated), {"params": gate, "x": rows, "target": rows}, BOTH,
             [("d", {"x": 0, "target": 0}), ("t", {"params/gate": 1, "params/up": 1, "params/down": 0})]),
        case("adapters", sgd(adapters), {"params": low, "frozen": frozen, "x": f32(4096, 2048),
             "target": f32(4096, 2048)}, ONE, [("d", {"x": 0, "target": 0})]),
        case("factorisation", sgd(factors), {"params": tables, "row": i32(262144), "column": i32(262144),
             "rating": f32(262144)}, ONE, [("d", {"row": 0, "column": 0, "rating": 0})]),
        case("smoothed labels", adam(smoothed), {"params": dense, "state": _with_state(dense), "x": rows,
             "mask": f32(4096, 4096), "label": i32(4096)}, BOTH,
             [("d", {"x": 0, "mask": 0, "label": 0}), ("t", {**_pins(dense, {"w1": 1, "b1": 0, "w2": 0}), "mask": 1})],
             (P(), P(), P())),
        case("covariance", covariance, {"x": f32(65536, 512)}, ONE, [("d", {"x": 0})], P()),
        case("ridge regression", ridge, {"x": f32(65536, 256), "y": f32(65536, 8), "w": f32(256, 8)}, ONE,
             [("d", {"x": 0, "y": 0})], P()),
        case("waves", waves, {"now": f32(1024, 4096), "before": f32(1024, 4096)}, ONE,
             [("d", {"now": 0, "before": 0})], (P("d"), P("d"), P())),
        case("nearest codes", nearest, {"point": f32(65536, 128), "book": f32(2048, 128)}, ONE,
             [("d", {"point": 0})], P("d")),
        case("convolution of signals", sgd(signal), {"params": kernels, "x": f32(64, 4096, 16), "target": f32(64, 64)},
             ONE, [("d", {"x": 0, "target": 0})]),
        case("decoder with AdamW", adam(decoder), {"params": words, "state": _with_state(words),
             "tokens": i32(16, 512), "targets": i32(16, 512)}, BOTH,
             [("d", {"tokens": 0, "targets": 0}), ("t", _pins(words, heads))], (P(), P(), P())),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------- held out


def gru(params: Any, x: Any, target: Any) -> Any:
    """A gated recurrent network, `[time, batch, width]`."""

    def cell(state: Any, entry: Any) -> Any:
        both = jnp.concatenate([entry, state], -1)
        reset, update = jax.nn.sigmoid(both @ params["reset"]), jax.nn.sigmoid(both @ params["update"])
        fresh = jnp.tanh(jnp.concatenate([entry, reset * state], -1) @ params["fresh"])
        state = (1 - update) * state + update * fresh
        return state, state

    start = jnp.zeros((x.shape[1], params["reset"].shape[1]), x.dtype)
    return jnp.mean((jax.lax.scan(cell, start, x)[1] - target) ** 2)


def mixer(params: Any, x: Any, target: Any) -> Any:
    """Perceptrons along patches, then along channels."""
    h = jnp.einsum("bpc,pq->bqc", x, params["patch1"])
    x = x + jnp.einsum("bqc,qp->bpc", jax.nn.gelu(h), params["patch2"])
    x = x + jax.nn.gelu(x @ params["channel1"]) @ params["channel2"]
    return jnp.mean((jnp.mean(x, 1) - target) ** 2)


def powers(matrix: Any, v: Any) -> Any:
    """Ten steps of power iteration on several vectors."""

    def step(_: Any, v: Any) -> Any:
        w = matrix @ v
        return w / jnp.sqrt(jnp.sum(w * w, 0))

    return jax.lax.fori_loop(0, 10, step, v)


def sinkhorn(cost: Any) -> Any:
    """A plan of transport between uniform weights, six rounds."""
    kernel = jnp.exp(-cost)
    u = jnp.ones(cost.shape[0], cost.dtype)
    for _ in range(6):
        v = 1 / (kernel.T @ u)
        u = 1 / (kernel @ v)
    return u[:, None] * kernel * v


def heat(field: Any) -> Any:
    """Four steps of diffusion along rows and a source."""
    for _ in range(4):
        inner = field[:, 1:-1] + 0.2 * (field[:, 2:] - 2 * field[:, 1:-1] + field[:, :-2])
        field = jnp.pad(inner, ((0, 0), (1, 1))) + 0.01 * jnp.tanh(field)
    return field


def linear_attention(params: Any, x: Any, target: Any) -> Any:
    q, k, v = (jnp.einsum("bse,ehd->bhsd", x, params[name]) for name in ("wq", "wk", "wv"))
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    context = jnp.einsum("bhsd,bhse->bhde", k, v)
    scale = 1 / jnp.einsum("bhsd,bhd->bhs", q, jnp.sum(k, 2))
    mixed = jnp.einsum("bhsd,bhde,bhs->bshe", q, context, scale)
    return jnp.mean((jnp.einsum("bshe,hed->bsd", mixed, params["wo"]) - target) ** 2)


def autoencoder(params: Any, x: Any, noise: Any) -> Any:
    """A variational one."""
    h = jax.nn.relu(x @ params["in"])
    mean, log = h @ params["mean"], h @ params["log"]
    z = mean + jnp.exp(0.5 * log) * noise
    back = jax.nn.sigmoid(jax.nn.relu(z @ params["hidden"]) @ params["out"])
    return jnp.mean((back - x) ** 2) - 0.5 * jnp.mean(1 + log - mean**2 - jnp.exp(log))


def newton(x: Any, y: Any, w: Any) -> Any:
    """Gradient and curvature of a logistic regression."""
    p = jax.nn.sigmoid(x @ w)
    return x.T @ (p - y), x.T @ (x * (p * (1 - p))[:, None]), -jnp.mean(y * jnp.log(p + 1e-9))


def contrastive(params: Any, image: Any, text: Any) -> Any:
    """Two towers, and the cross-entropy of which belongs to which."""
    a, b = image @ params["image"], text @ params["text"]
    a = a * jax.lax.rsqrt(jnp.sum(a * a, -1, keepdims=True) + 1e-6)
    b = b * jax.lax.rsqrt(jnp.sum(b * b, -1, keepdims=True) + 1e-6)
    logits = 10 * a @ b.T
    own = jnp.sum(10 * a * b, -1)
    return -jnp.mean(2 * own - jax.nn.logsumexp(logits, 0) - jax.nn.logsumexp(logits, 1))


def stack(params: Any, x: Any, target: Any) -> Any:
    """Equal residual layers by scan, each computed anew in the backward pass."""

    @jax.checkpoint
    def layer(x: Any, own: Any) -> Any:
        return x + jax.nn.relu(x @ own["up"]) @ own["down"], None

    return jnp.mean((jax.lax.scan(layer, x, params)[0] - target) ** 2)


def held_out() -> list[Case]:
    """Ten that were compiled when the rules were finished."""
    cells = {name: f32(768, 512) for name in ("reset", "update", "fresh")}
    mixing = {"patch1": f32(256, 512), "patch2": f32(512, 256), "channel1": f32(512, 2048), "channel2": f32(2048, 512)}
    linear = {**{name: f32(512, 8, 64) for name in ("wq", "wk", "wv")}, "wo": f32(8, 64, 512)}
    coder = {
        "in": f32(1024, 2048), "mean": f32(2048, 64), "log": f32(2048, 64), "hidden": f32(64, 2048),
        "out": f32(2048, 1024),
    }  # fmt: skip
    towers = {"image": f32(1024, 256), "text": f32(512, 256)}
    layers = {"up": f32(8, 512, 2048), "down": f32(8, 2048, 512)}
    return [
        case("gated recurrence", sgd(gru), {"params": cells, "x": f32(32, 256, 256), "target": f32(32, 256, 512)}, ONE,
             [("d", {"x": 1, "target": 1})]),
        case("mixer", sgd(mixer), {"params": mixing, "x": f32(64, 256, 512), "target": f32(64, 512)}, BOTH,
             [("d", {"x": 0, "target": 0}), ("t", {"params/channel1": 1, "params/channel2": 0})]),
        case("power iteration", powers, {"matrix": f32(8192, 8192), "v": f32(8192, 16)}, ONE, [("d", {"matrix": 0})],
             P()),
        case("transport", sinkhorn, {"cost": f32(8192, 4096)}, ONE, [("d", {"cost": 0})], P("d")),
        case("diffusion", heat, {"field": f32(4096, 4096)}, ONE, [("d", {"field": 0})], P("d")),
        case("linear attention", sgd(linear_attention), {"params": linear, "x": f32(16, 1024, 512),
             "target": f32(16, 1024, 512)}, BOTH, [("d", {"x": 0, "target": 0}),
             ("t", {"params/wq": 1, "params/wk": 1, "params/wv": 1, "params/wo": 0})]),
        case("autoencoder", adam(autoencoder), {"params": coder, "state": _with_state(coder), "x": f32(8192, 1024),
             "noise": f32(8192, 64)}, ONE, [("d", {"x": 0, "noise": 0})], (P(), P(), P())),
        case("Newton step", newton, {"x": f32(65536, 512), "y": f32(65536), "w": f32(512)}, ONE,
             [("d", {"x": 0, "y": 0})], (P(), P(), P())),
        case("two towers", sgd(contrastive), {"params": towers, "image": f32(4096, 1024), "text": f32(4096, 512)}, ONE,
             [("d", {"image": 0, "text": 0})]),
        case("recomputed stack", sgd(stack), {"params": layers, "x": f32(8192, 512), "target": f32(8192, 512)}, BOTH,
             [("d", {"x": 0, "target": 0}), ("t", {"params/up": 2, "params/down": 1})]),
    ]  # fmt: skip
