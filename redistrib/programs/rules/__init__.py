"""JAX functions as operations over iteration spaces: a jaxpr is inlined, and each primitive has a rule."""
