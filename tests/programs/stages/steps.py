"""A training step whose integers float32 has exactly, for tests in one process and in several."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BATCH = {"x": 0, "y": 0}


def deep(params: Any, x: Any) -> Any:
    """Layers of which each has a matrix and a bias."""
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


def step(params: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent; parameters stay small."""
    loss, grads = jax.value_and_grad(lambda p: jnp.sum((deep(p, x) - y) ** 2) / 2)(params)
    return jax.tree.map(lambda p, g: jnp.clip(p - g, -1, 1), params, grads), loss


def small(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float32)


PARAMS = [(small(k, 8, 8), small(k + 10, 8)) for k in range(4)]
ARGS = (PARAMS, small(20, 16, 8), small(21, 16, 8))
