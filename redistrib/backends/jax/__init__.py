"""The JAX backend: types from shardings, plans as `jax.lax` collectives under one `shard_map`, compiled HLO read back."""
