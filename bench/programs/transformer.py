"""A transformer block, forward, backward and SGD, in eight layouts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bench.language_models import normed
from bench.programs.case import Case, case, f32, sgd

MEGATRON = {"wq": 1, "wk": 1, "wv": 1, "wo": 0, "up": 1, "down": 0}
FIRST = {"wq": 0, "wk": 0, "wv": 0, "wo": 0, "up": 0, "down": 0, "norm1": 0, "norm2": 0}
BESIDE = {**FIRST, "wo": 2, "down": 1}  # the first dimension that Megatron does not cut


def block(params: Any, x: Any) -> Any:
    """Causal attention and a feed-forward block, on `[batch, sequence, width]`."""
    time, size = x.shape[1], params["wq"].shape[2]
    h = normed(x, params["norm1"])
    q, k, v = (jnp.einsum("bse,ehd->bhsd", h, params[name]) for name in ("wq", "wk", "wv"))
    scores = jnp.einsum("bhsd,bhtd->bhst", q, k) / size**0.5
    scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -1e9)
    mixed = jnp.einsum("bhst,bhtd->bshd", jax.nn.softmax(scores), v)
    x = x + jnp.einsum("bshd,hde->bse", mixed, params["wo"])
    return x + jax.nn.gelu(normed(x, params["norm2"]) @ params["up"]) @ params["down"]


def loss(params: Any, x: Any, target: Any) -> Any:
    return jnp.mean((block(params, x) - target) ** 2)


def cases(size: int) -> list[Case]:
    """The eight programs at a size."""
    width, heads, time, batch = ((64, 16, 32, 4), (256, 16, 128, 4), (1024, 16, 512, 4))[size]
    head = width // heads
    params = {
        **{name: f32(width, heads, head) for name in ("wq", "wk", "wv")},
        "wo": f32(heads, head, width),
        "up": f32(width, 4 * width),
        "down": f32(4 * width, width),
        "norm1": f32(width),
        "norm2": f32(width),
    }
    x = f32(batch, time, width)

    args = {"params": params, "x": x, "target": x}

    def weights(dims: dict[str, int]) -> dict[str, int]:
        return {f"params/{name}": dim for name, dim in dims.items()}

    def data(dim: int) -> dict[str, int]:
        return {"x": dim, "target": dim}

    line, grid = {"d": 4}, {"d": 2, "t": 4}
    megatron, by_batch = ("t", weights(MEGATRON)), ("d", data(0))
    rows = {
        "Megatron": ({"t": 4}, [megatron]),
        "FSDP, x by batch": (line, [by_batch, ("d", weights(FIRST))]),
        "x by sequence": ({"s": 4}, [("s", data(1))]),
        "Megatron, x by sequence": ({"t": 4}, [megatron, ("t", data(1))]),
        "data parallel": (line, [by_batch]),
        "data x Megatron": (grid, [by_batch, megatron]),
        "FSDP x Megatron": (grid, [by_batch, ("d", weights(BESIDE)), megatron]),
        "FSDP x Megatron, x by sequence": (grid, [by_batch, ("d", weights(BESIDE)), megatron, ("t", data(1))]),
    }
    return [case(f"block, {name}", sgd(loss), args, mesh, stages) for name, (mesh, stages) in rows.items()]
