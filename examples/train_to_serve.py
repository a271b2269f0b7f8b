"""From training shards to serving shards: parameters and optimizer state of a transformer, within a memory limit.

Training is fully sharded over 8 devices in a line; serving is tensor parallel over 4, twice. Run me:

    python examples/train_to_serve.py
"""

from __future__ import annotations

import jax
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from transformer import fsdp, init, logits, loss, mesh, tensor_parallel


def main() -> None:
    training, serving = mesh(shard=8), mesh(replica=2, tensor=4)
    tokens = jax.random.randint(jax.random.key(1), (8, 17), 0, 128)

    # Train a little, everything cut 8 ways.
    optimizer = optax.adamw(1e-3)
    params = init(jax.random.key(0))
    state = optimizer.init(params)
    params, state = jax.device_put((params, state), fsdp((params, state), training))

    @jax.jit
    def step(params, state, tokens):
        gradients = jax.grad(loss)(params, tokens[:, :-1], tokens[:, 1:])
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    batch = jax.device_put(tokens, NamedSharding(training, P("shard")))
    for _ in range(3):
        params, state = step(params, state, batch)
    before = np.asarray(logits(params, tokens))

    # Both moments are cut like the parameters they belong to; the step count is replicated.
    cuts = tensor_parallel(params, serving)
    everywhere = NamedSharding(serving, P())
    shardings = optax.tree_map_params(
        optimizer, lambda _, cut: cut, state, cuts, transform_non_params=lambda _: everywhere
    )
    limit = "1MiB"
    print(rd.reshard_plan((params, state), (cuts, shardings), donate=True, memory_limit=limit))
    served, state = rd.reshard((params, state), (cuts, shardings), donate=True, memory_limit=limit)

    after = np.asarray(logits(served, tokens))
    print(f"largest difference of a logit: {np.abs(after - before).max():.1e}")
    assert np.allclose(after, before, atol=1e-4)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(params) if leaf.ndim == 2)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
