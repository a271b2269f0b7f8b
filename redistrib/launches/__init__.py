"""Launches of arrays, for any library: which leaves travel together, in which order, in how much memory, and whether
all processes agree.

A backend brings what is its own: the store by which its processes meet, and the programs that move the leaves.
"""
