"""Trainer to sampler: fresh weights for generation after every step, with one compilation for all of them.

python examples/weight_sync.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from transformer import fsdp, init, logits, loss, mesh, tensor_parallel


def main(rounds: int = 4) -> None:
    trainer, sampler = mesh(shard=8), mesh(replica=2, tensor=4)
    params = init(jax.random.key(0))
    params = jax.device_put(params, fsdp(params, trainer))
    cuts = tensor_parallel(params, sampler)
    tokens = jax.device_put(jax.random.randint(jax.random.key(1), (8, 17), 0, 128), NamedSharding(trainer, P("shard")))
    prompt = jax.device_put(np.zeros((2, 4), np.int32), NamedSharding(sampler, P("replica")))

    @jax.jit
    def train(params, tokens):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, tokens))

    @jax.jit
    def sample(params, prompt):
        return jnp.argmax(logits(params, prompt)[:, -1], axis=-1)

    misses = []
    for number in range(rounds):
        params = train(params, tokens)
        weights = rd.reshard(params, cuts)  # the trainer keeps its own
        print(f"round {number}: sampled {np.asarray(sample(weights, prompt))}")
        for ours, theirs in zip(jax.tree.leaves(weights), jax.tree.leaves(params), strict=True):
            assert np.array_equal(ours, theirs)
        misses.append({name: cache.misses for name, cache in rd.cache_info().items()})
    assert misses[0] == misses[-1], "planned or compiled again"
    print(
        f"planned and compiled once: {misses[0]['plans']} plans, {misses[0]['programs']} programs for "
        f"{len(jax.tree.leaves(params))} arrays, {rounds} times"
    )


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
