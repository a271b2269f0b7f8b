"""JAX functions as operations over iteration spaces: a jaxpr, inlined, and a rule for each primitive."""
