"""Pencils of arrays of any sizes, turned from one alignment to another and back; prints how many were right.

A grid of ranks has one extent of 1: along that dimension the pencil is whole, "aligned". Along every other dimension
ranks hold balanced parts. To align a pencil along another dimension, that one's part of the grid takes the place of
the 1. Each array is turned twice, over three alignments, and back the same way. Where mpi4py-fft is installed, its
pencils must lie where ours do, and its transfers must leave the same.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import Executor, to_mpi
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans import reference
from redistrib.plans.plan import Plan
from redistrib.testing import cut_type
from redistrib.theory.placement import placement_of

try:
    from mpi4py_fft.pencil import Pencil, Subcomm
except ImportError:
    Pencil = None

comm = MPI.COMM_WORLD
rank = comm.rank
SIZES = (7, 8, 9)
SHAPES = [shape for dims in (2, 3) for shape in product(*[SIZES] * dims)]
if sys.argv[1] == "few":
    SHAPES = [(7, 9), (7, 8, 9)]
DTYPES = sys.argv[2:]


def grids(rank: int) -> list[tuple[int, ...]]:
    """Extents of the grids of ranks, the last one aligned: over all other dimensions, or over the first alone."""
    found = [(*sorted(MPI.Compute_dims(comm.size, rank - 1), reverse=True), 1)]
    if rank > 2:
        found.append((comm.size, *[1] * (rank - 1)))
    return found


def turned(grid: tuple[str, ...], axis: int) -> tuple[str, ...]:
    """The mesh axis that cuts each dimension, "" for the aligned one, after aligning another."""
    whole = grid.index("")
    swapped = list(grid)
    swapped[whole], swapped[axis] = grid[axis], ""
    return tuple(swapped)


def pencil(mesh: Mesh, shape: tuple[int, ...], grid: tuple[str, ...]) -> DistType:
    """The type of a pencil."""
    return cut_type(mesh, shape, [(name,) if name else () for name in grid], ["balanced"] * len(shape))


def filled(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array of different elements."""
    return (1 + np.arange(np.prod(shape))).reshape(shape).astype(dtype)


executors: list[Executor] = []


@cache
def planned(source: DistType, target: DistType, mesh: Mesh) -> Plan:
    """How a pencil is turned, whatever its elements are."""
    return synthesize(source, target, mesh, machine="exact")


# In the whole matrix, elements of one size travel as one kind of them: to make an executor takes longer than to run it.
# Sizes take the transports in turn, as shared memory is what takes longest to make; those of 8 bytes take their choice.
CARRIER = {np.dtype(dtype).itemsize: dtype for dtype in reversed(DTYPES)}
TRANSPORT = {2: "packed", 4: "datatypes", 8: None, 16: "packed", 32: "datatypes"}


def turn(tile: np.ndarray, source: DistType, target: DistType, mesh: Mesh) -> np.ndarray:
    """A pencil, aligned anew."""
    size = tile.dtype.itemsize
    carrier, transport = (tile.dtype.name, None) if sys.argv[1] == "few" else (CARRIER[size], TRANSPORT[size])
    return mover(source, target, mesh, carrier, transport)(tile.view(carrier)).view(tile.dtype)


@cache
def mover(source: DistType, target: DistType, mesh: Mesh, dtype: str, transport: str | None) -> Executor:
    """What turns a pencil."""
    kind = np.dtype(dtype)
    made = to_mpi(
        replace(planned(source, target, mesh), dtype=kind.name, itemsize=kind.itemsize), comm, transport=transport
    )
    executors.append(made)
    return made


transfers = wrong = uneven = beside = 0
for shape in SHAPES:
    dims = len(shape)
    for extents in grids(dims):
        mesh = Mesh.of({f"p{k}": extent for k, extent in enumerate(extents[:-1])})
        first = (*(f"p{k}" for k in range(dims - 1)), "")
        ways = permutations(range(dims)) if dims > 2 else [(0, 1, 0), (1, 0, 1)]
        for way, dtype in product(list(ways), DTYPES):
            grid, ends = first, []
            for axis in way:
                grid = turned(grid, axis) if grid.index("") != axis else grid
                ends.append(pencil(mesh, shape, grid))
            whole = filled(shape, dtype)
            tiles = [reference.scatter(whole, placement_of(end, mesh))[rank] for end in ends]
            here = tiles[0].copy()
            for k, other in ((0, 1), (1, 2), (2, 1), (1, 0)):
                here = turn(here, ends[k], ends[other], mesh)
                wrong += here.shape != tiles[other].shape or not np.array_equal(here, tiles[other])
            transfers += 2
            uneven += any(end.uneven for end in ends[:2]) + any(end.uneven for end in ends[1:])
            if Pencil is not None and dtype == "float64" and min(shape) >= max(extents):  # it has no empty tiles
                last = Pencil(Subcomm(comm, list(extents)), shape, axis=dims - 1)
                theirs = [last := last.pencil(axis) for axis in way]
                for one, end in zip(theirs, ends, strict=True):
                    box = placement_of(end, mesh).box(rank)
                    wrong += tuple(one.subshape) != box.size or tuple(one.substart) != box.start
                for k in (0, 1):
                    out = np.zeros_like(tiles[k + 1])
                    theirs[k].transfer(theirs[k + 1], "d").forward(tiles[k].copy(), out)
                    wrong += not np.array_equal(out, tiles[k + 1])
                    beside += 1
    for made in executors:
        made.free()
    executors.clear()
    mover.cache_clear()
wrong = comm.allreduce(wrong)
if rank == 0:
    print(json.dumps({"transfers": transfers, "uneven": uneven, "wrong": wrong, "beside": beside}))
