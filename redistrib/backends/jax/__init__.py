"""The JAX backend: types from shardings, plans as `jax.lax` collectives under one `shard_map`, compiled HLO read back."""

from redistrib.backends.jax.execute import Redistribution, to_jax

__all__ = ["Redistribution", "to_jax"]
