"""Training steps of layers that are scanned, their weights stacked over the layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BATCH = {"x": 0, "y": 0}
WIDTH = 8


def layer(x: Any, p: Any) -> Any:
    """A residual layer; nothing to stack."""
    return x + jnp.tanh(x @ p["w"] + p["b"]), None


def deep(params: Any, x: Any, body: Callable[..., Any] = layer) -> Any:
    """An embedding, the layers, and a head."""
    return jax.lax.scan(body, x @ params["embed"], params["layers"])[0] @ params["head"]


def momentum(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A step of gradient descent with momentum; returns parameters, the optimizer's state and the loss."""

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((forward(p, x) - y) ** 2))(params)
        state = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, state), state, loss

    return step


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def args_of(layers: int) -> tuple[Any, ...]:
    """Parameters of so many layers, the optimizer's state, and a batch of eight examples."""
    params = {
        "embed": normal(0, 4, WIDTH) / 2,
        "layers": {"w": normal(1, layers, WIDTH, WIDTH) / (4 * layers), "b": normal(2, layers, WIDTH) / layers},
        "head": normal(3, WIDTH, 2) / 3,
    }
    return params, jax.tree.map(np.zeros_like, params), normal(4, 8, 4), normal(5, 8, 2)
