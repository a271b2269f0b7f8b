"""Steps of models at real size, as shapes: a mixture of experts in a scan, and decoding with a cache of 32k tokens."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bench.language_models import form, normed

DTYPE = jnp.bfloat16
LAYERS, WIDTH, HEADS, VOCABULARY = 60, 2048, 16, 102_400
EXPERTS, CHOSEN, SHARED, HIDDEN, GROUP = 64, 6, 2, 1408, 512


def attention(p: Any, x: Any) -> Any:
    """Causal, with a head for each key."""
    time = x.shape[1]
    h = normed(x, p["norm1"])
    q, k, v = (jnp.einsum("bse,ehd->bhsd", h, p[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) * q.shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e9)
    return x + jnp.einsum("bshd,hde->bse", jnp.einsum("bhst,bhtd->bshd", jax.nn.softmax(scores), v), p["wo"])


def experts(p: Any, x: Any) -> Any:
    """Each token goes to six of 64 experts, if these have room, and to the shared ones (Lepikhin et al. 2020)."""
    h = normed(x, p["norm2"]).reshape(-1, GROUP, x.shape[-1])
    top, chosen = jax.lax.top_k(jax.nn.softmax((h @ p["router"]).astype("float32")), CHOSEN)
    hot = jax.nn.one_hot(chosen, EXPERTS)
    room = CHOSEN * GROUP * 5 // (4 * EXPERTS)
    sends, gates = hot.sum(2), (hot * top[..., None]).sum(2)
    place = ((jnp.cumsum(sends, 1) - 1) * sends).astype("int32")
    sent = (sends[..., None] * jax.nn.one_hot(place, room)).astype(DTYPE)
    taken = jnp.einsum("gsec,gsd->egcd", sent, h)
    inner = jax.nn.silu(jnp.einsum("egcd,edf->egcf", taken, p["gate"])) * jnp.einsum("egcd,edf->egcf", taken, p["up"])
    made = jnp.einsum("egcf,efd->egcd", inner, p["down"])
    mixed = jnp.einsum("gsec,egcd->gsd", sent * gates[..., None].astype(DTYPE), made)
    shared = (jax.nn.silu(h @ p["shared gate"]) * (h @ p["shared up"])) @ p["shared down"]
    return x + (mixed + shared).reshape(x.shape)


def mixture_step(params: Any, tokens: Any, targets: Any) -> Any:
    """A step of SGD: the parameters after it, and the loss."""

    def loss(params: Any) -> Any:
        body = jax.checkpoint(lambda p, x: experts(p, attention(p, x)))
        x, _ = jax.lax.scan(lambda x, p: (body(p, x), None), params["embedding"][tokens], params["layers"])
        logits = (x @ params["head"]).astype("float32")
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0])

    value, slopes = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda weight, slope: weight - weight.dtype.type(1e-3) * slope, params, slopes), value


def mixture_args(batch: int, time: int) -> Any:
    size, shared = WIDTH // HEADS, SHARED * HIDDEN
    shapes = {
        **dict.fromkeys(("norm1", "norm2"), (WIDTH,)),
        **dict.fromkeys(("wq", "wk", "wv"), (WIDTH, HEADS, size)),
        **dict.fromkeys(("gate", "up"), (EXPERTS, WIDTH, HIDDEN)),
        **dict.fromkeys(("shared gate", "shared up"), (WIDTH, shared)),
        "wo": (HEADS, size, WIDTH),
        "router": (WIDTH, EXPERTS),
        "down": (EXPERTS, HIDDEN, WIDTH),
        "shared down": (shared, WIDTH),
    }
    layers = {name: form(LAYERS, *shape) for name, shape in shapes.items()}
    params = {"embedding": form(VOCABULARY, WIDTH), "head": form(WIDTH, VOCABULARY), "layers": layers}
    return params, form(batch, time, dtype="int32"), form(batch, time, dtype="int32")
