"""Problems between device sets: which devices, and the suites of others in our notation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType

Side = tuple[str, Sequence[int], str]  # mesh, devices, type

SETS: dict[str, tuple[Sequence[int], Sequence[int]]] = {
    "halves of four": (range(2), range(2, 4)),
    "halves of eight": (range(4), range(4, 8)),
    "four that overlap": (range(4), range(2, 6)),
    "six to all eight": (range(6), range(8)),
    "eight to six": (range(8), range(6)),
    "six to four others": (range(6), range(6, 10)),
    "six to four of them": (range(6), (1, 2, 4, 5)),
}

# Meshes and types of the cases that Alpa measures between meshes (its eighth is its seventh again), smaller, with how
# often the whole array crosses when every device of the target pulls what it needs.
ALPA: dict[str, tuple[tuple[str, str], tuple[str, str], int]] = {
    "1": (("a=2,b=4", "[24{a}48, 16, 8]"), ("a=2,b=4", "[24{a}48, 16, 8]"), 4),
    "2": (("a=2,b=4", "[48, 16, 8]"), ("a=2,b=4", "[24{a}48, 16, 8]"), 4),
    "3": (("a=2,b=4", "[48, 8{a}16, 8]"), ("a=2,b=4", "[24{a}48, 16, 8]"), 4),
    "4": (("a=2,b=4", "[48, 2{b,a}16, 8]"), ("a=2,b=4", "[6{b,a}48, 16, 8]"), 1),
    "5": (("a=2,b=4", "[12{b}48, 16, 8]"), ("a=2,b=4", "[24{a}48, 16, 8]"), 4),
    "6": (("a=2,b=4", "[24{a}48, 16, 8]"), ("a=3,b=4", "[16{a}48, 16, 8]"), 4),
    "7": (("a=1,b=4", "[12{b}48, 16, 8]"), ("a=2,b=4", "[48, 16, 8]"), 8),
    "8": (("a=1,b=4", "[12{b}48, 16, 8]"), ("a=2,b=4", "[48, 16, 8]"), 8),
    "9": (("a=2,b=4", "[48, 8{a}16, 8]"), ("a=2,b=4", "[48, 16, 4{a}8]"), 4),
}


def alpa_on_eight() -> Iterator[tuple[Side, Side]]:
    """The same between four devices and four others, or three."""
    smaller = {"a=2,b=4": "a=2,b=2", "a=3,b=4": "a=3,b=1", "a=1,b=4": "a=1,b=4"}
    for (mesh, source), (other, target), _ in ALPA.values():
        here, there = smaller[mesh], smaller[other]
        devices = range(4), range(4, 4 + Mesh.of(there).size)
        yield (here, devices[0], _cut_alike(source, here)), (there, devices[1], _cut_alike(target, there))


def _cut_alike(text: str, mesh: str) -> str:
    """The type whose axes cut the same dimensions of the same array, on another mesh."""
    sizes = {axis.name: axis.size for axis in Mesh.of(mesh).axes}
    dims = [(dim, math.prod(sizes[name] for name in dim.axes)) for dim in DistType.parse(text).dims]
    return str(DistType(tuple(replace(dim, tile=dim.size // tiles) for dim, tiles in dims)))


# Between the devices of the first list and those of the second, as moved by the pairs of types after them.
PAIRS: dict[str, tuple[Side, Side]] = {
    "rows to columns": (("x=4", range(4), "[4{x}16, 16]"), ("x=4", range(4, 8), "[16, 4{x}16]")),
    "rows to replicated": (("x=4", range(4), "[4{x}16, 16]"), ("x=4", range(4, 8), "[16, 16]")),
    "rows to half replicated": (("x=4", range(4), "[4{x}16, 16]"), ("x=2,y=2", range(4, 8), "[8{x}16, 16]")),
    "replicated to rows": (("x=4", range(4), "[16, 16]"), ("x=4", range(4, 8), "[4{x}16, 16]")),
    "replicated to replicated": (("x=4", range(4), "[16, 16]"), ("x=4", range(4, 8), "[16, 16]")),
    "rows to rows": (("x=4", range(4), "[4{x}16, 16]"), ("x=4", range(4, 8), "[4{x}16, 16]")),
    "four to eight": (("x=4", range(4), "[4{x}16, 16]"), ("x=8", range(8), "[2{x}16, 16]")),
    "eight to six": (("x=8", range(8), "[3{x}24, 12]"), ("x=6", range(6), "[4{x}24, 12]")),
    "eight to six, columns": (("x=8", range(8), "[3{x}24, 12]"), ("x=6", range(6), "[24, 2{x}12]")),
    "four that overlap": (("x=4", range(4), "[4{x}16, 16]"), ("x=4", range(2, 6), "[16, 4{x}16]")),
    "every other two": (("x=4", (0, 1, 4, 5), "[4{x}16, 16]"), ("x=4", (2, 3, 6, 7), "[16, 4{x}16]")),
}


def m2n(half: int) -> Iterator[tuple[Side, Side]]:
    """The 52 layouts of NCCL M2N's test groups `full_sharding` and `2d_placement`, smaller, between two halves.

    In the first group all devices of a side cut one dimension, in the second those along one of two mesh axes.
    """
    source, target = range(half), range(half, 2 * half)
    for dims in itertools.product(range(2), repeat=2):
        yield _cut_by("x", (half, 1), source, dims[0]), _cut_by("x", (half, 1), target, dims[1])
        for first, other in ((2, 4), (4, 2), (2, 2)):
            meshes = (first, half // first), (other, half // other)
            for axes in itertools.product("xy", repeat=2):
                yield _cut_by(axes[0], meshes[0], source, dims[0]), _cut_by(axes[1], meshes[1], target, dims[1])


def _cut_by(axis: str, shape: tuple[int, int], devices: Sequence[int], dim: int) -> Side:
    tiles = ["40", "40"]
    tiles[dim] = f"{40 // shape['xy'.index(axis)]}{{{axis}}}40"
    return f"x={shape[0]},y={shape[1]}", devices, f"[{', '.join(tiles)}]"


def prime_mesh(devices: Sequence[int]) -> Mesh:
    """A line of devices, its axis split into primes."""
    axes = Mesh.of({"x": len(devices)}).prime().mesh.axes
    return Mesh(axes, tuple(devices))
