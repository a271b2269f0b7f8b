"""Whole trees of arrays: the room of `redistrib.reshard`, on top of synthesis and the JAX backend."""
