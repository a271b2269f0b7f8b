"""Whole trees of arrays: what `redistrib.reshard`, a function, does over synthesis, packing and the JAX backend."""
