"""Meshes of a number of devices, for searches that are given no mesh."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from redistrib.arith import divisors
from redistrib.lang.mesh import Axis, Mesh
from redistrib.programs.search.constants import AXES
from redistrib.programs.time.machine import Machine


def meshes_of(devices: int, machine: Machine) -> list[Mesh]:
    """The meshes of so many devices, of up to three axes; their order counts where some links are slower.

    >>> from redistrib.programs.time.constants import machine
    >>> [str(mesh) for mesh in meshes_of(8, machine("v100"))]
    ['{a:8}', '{a:2, b:4}', '{a:2, b:2, c:2}']
    """

    def factors(left: int, least: int, most: int) -> Iterator[tuple[int, ...]]:
        if left >= least or left == 1:
            yield (left,)
        for first in divisors(left) if most > 1 else ():
            if first >= least and left // first >= first:
                yield from ((first, *further) for further in factors(left // first, first, most - 1))

    shapes = dict.fromkeys(factors(devices, 2, AXES))
    if machine.links.topology(Mesh((Axis("a", devices),))).hosts is not None:
        shapes = dict.fromkeys(order for shape in shapes for order in sorted(set(permutations(shape))))
    return [Mesh(tuple(map(Axis, "abc", shape))) for shape in shapes]
