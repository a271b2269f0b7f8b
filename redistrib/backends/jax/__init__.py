"""The JAX backend: types from shardings, plans as `jax.lax` collectives, compiled HLO read back."""

from redistrib.backends.jax.execute import Redistribution, to_jax

__all__ = ["Redistribution", "to_jax"]
