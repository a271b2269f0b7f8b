"""Whole trees of arrays: what `reshard` does, over the synthesis and the JAX backend."""
