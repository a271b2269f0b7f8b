"""Searches of mctx, and proximal policy optimization with optax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from bench.zoo.layers import normal
from bench.zoo.program import Program


def programs() -> Iterator[Program]:
    import mctx

    def recurrent(params: Any, key: Any, action: Any, embedding: Any) -> Any:
        state = jnp.tanh(embedding @ params + action[:, None])
        out = mctx.RecurrentFnOutput(
            reward=state[:, 0], discount=jnp.full(state[:, 0].shape, 0.9), prior_logits=state[:, :4], value=state[:, 1]
        )
        return out, state

    def searched(params: Any, states: Any) -> Any:
        root = mctx.RootFnOutput(prior_logits=states[:, :4], value=states[:, 1], embedding=states)
        policy = mctx.gumbel_muzero_policy(params, jax.random.key(0), root, recurrent, 8, max_depth=4)
        return policy.action_weights

    args = normal(8, 8) / 3, normal(16, 8, seed=1)
    yield Program("Gumbel MuZero, states", "mctx", searched, args, (("d", {"states": 0}),), tolerance=1e-3)
    yield _proximal()


def _proximal() -> Program:
    """Epochs by scan, each over minibatches of a permutation of the steps of all environments."""
    import optax

    params = {
        "body": normal(16, 64, seed=1) / 4,
        "policy": normal(64, 4, seed=2) / 8,
        "value": normal(64, 1, seed=3) / 8,
    }
    steps = {
        "observed": normal(256, 16),
        "action": jnp.arange(256) * 7 % 4,
        "log_probability": normal(256, seed=4) / 8 - 1.4,
        "advantage": normal(256, seed=5),
        "target": normal(256, seed=6),
    }
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))

    def loss(params: Any, steps: Any) -> Any:
        hidden = jnp.tanh(steps["observed"] @ params["body"])
        logs = jax.nn.log_softmax(hidden @ params["policy"])
        log = jnp.take_along_axis(logs, steps["action"][:, None], 1)[:, 0]
        ratio, advantage = jnp.exp(log - steps["log_probability"]), steps["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean()
        value = ((hidden @ params["value"])[:, 0] - steps["target"]) ** 2
        return policy + 0.5 * value.mean() - 0.01 * -(jnp.exp(logs) * logs).sum(-1).mean()

    def minibatch(state: Any, steps: Any) -> Any:
        params, moments = state
        value, slopes = jax.value_and_grad(loss)(params, steps)
        updates, moments = optimizer.update(slopes, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    def update(params: Any, moments: Any, steps: Any, key: Any) -> Any:
        def epoch(state: Any, key: Any) -> Any:
            order = jax.random.permutation(key, 256)
            parts = jax.tree.map(lambda leaf: leaf[order].reshape(4, 64, *leaf.shape[1:]), steps)
            return jax.lax.scan(minibatch, state, parts)

        return jax.lax.scan(epoch, (params, moments), jax.random.split(key, 3))

    args = params, optimizer.init(params), steps, jax.random.key(0)
    return Program("PPO, steps", "optax", update, args, (("d", {"steps": 0}),))
