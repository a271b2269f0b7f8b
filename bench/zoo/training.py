"""Optimizers of optax, and distributions of distrax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from bench.zoo.layers import normal
from bench.zoo.program import Program


def programs() -> Iterator[Program]:
    import distrax
    import optax

    params = {"up": normal(32, 128, seed=1), "down": normal(128, 32, seed=2)}
    batch = normal(64, 32)

    def loss(params: Any, batch: Any) -> Any:
        return jnp.mean((jnp.tanh(batch @ params["up"]) @ params["down"] - batch) ** 2)

    def trained(optimizer: Any) -> Any:
        def step(params: Any, state: Any, batch: Any) -> Any:
            value, slopes = jax.value_and_grad(loss)(params, batch)
            updates, state = optimizer.update(slopes, state, params)
            return optax.apply_updates(params, updates), state, value

        return step

    adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
    state = adam.init(params)
    cut = (("d", {"batch": 0}),)
    yield Program("clipped AdamW, batch", "optax", trained(adam), (params, state, batch), cut)
    zero = (*cut, ("d", {"params": "first"}))
    yield Program("clipped AdamW, FSDP", "optax", trained(adam), (params, state, batch), zero)
    steps = optax.MultiSteps(optax.sgd(0.1), 2)
    yield Program("MultiSteps, batch", "optax", trained(steps), (params, steps.init(params), batch), cut)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    args = half, steps.init(half), batch.astype(jnp.bfloat16)
    yield Program("MultiSteps in bfloat16, batch", "optax", trained(steps), args, cut, tolerance=2e-2)

    def accumulated(params: Any, state: Any, batch: Any) -> Any:
        def microbatch(slopes: Any, rows: Any) -> Any:
            return jax.tree.map(jnp.add, slopes, jax.grad(loss)(params, rows)), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        slopes, _ = jax.lax.scan(microbatch, zeros, batch.reshape(4, -1, 32))
        updates, state = adam.update(slopes, state, params)
        return optax.apply_updates(params, updates), state

    yield Program("accumulated gradients, batch", "optax", accumulated, (params, state, batch), cut)
    factored = optax.adafactor(1e-2, min_dim_size_to_factor=16)
    yield Program("Adafactor, batch", "optax", trained(factored), (params, factored.init(params), batch), cut)

    def mixture(weights: Any, means: Any, x: Any) -> Any:
        parts = distrax.MultivariateNormalDiag(means, jnp.ones_like(means))
        return distrax.MixtureSameFamily(distrax.Categorical(weights), parts).log_prob(x).mean()

    args = normal(6), normal(6, 4, seed=1), normal(64, 4, seed=2)
    yield Program("mixture, batch", "distrax", jax.grad(mixture, (0, 1)), args, (("d", {"x": 0}),))
