"""Searches of mctx."""

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
