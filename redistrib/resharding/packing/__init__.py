"""Packing of many leaves, for any backend: the leaves of each launch, their order, and the bytes alive."""
