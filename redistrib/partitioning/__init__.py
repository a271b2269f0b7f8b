"""Moves from grids: nests and their grids in, a program out."""
