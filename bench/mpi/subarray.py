"""Our datatypes of nested strides against `Create_subarray`, in one `Alltoallw` each, paired.

    mpiexec -n 4 python -m mpi4py bench/mpi/subarray.py

Printed are medians of ratios, ours over `Create_subarray`: below 1 is faster.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi.datatypes import placed_type
from redistrib.plans.strided import inside
from redistrib.theory.boxes import Box

PAIRS = 21
ITEM = 8
# Tiles of one rank before and after, in which the other ranks' shares lie along a dimension.
CASES = [
    ((512, 1024), 1, (2048, 256), 0),
    ((2048, 256), 0, (512, 1024), 1),
    ((256, 64, 32), 1, (256, 16, 128), 2),
    ((64, 64), 1, (256, 16), 0),
]


def shares(tile: Box, dim: int, ranks: int) -> list[Box]:
    n = tile.size[dim] // ranks
    start, size = [0] * len(tile.size), list(tile.size)
    size[dim] = n
    return [Box((*start[:dim], n * r, *start[dim + 1 :]), tuple(size)) for r in range(ranks)]


def ours(tile: Box, boxes: list[Box]) -> tuple[Any, list[MPI.Datatype]]:
    placed = [placed_type([inside(box, tile, ITEM)]) for box in boxes]
    return ([1] * len(boxes), [at for at, _ in placed]), [kind for _, kind in placed]


def subarrays(tile: Box, boxes: list[Box]) -> tuple[Any, list[MPI.Datatype]]:
    kinds = [MPI.BYTE.Create_subarray([*tile.size, ITEM], [*b.size, ITEM], [*b.start, 0]).Commit() for b in boxes]
    return ([1] * len(boxes), [0] * len(boxes)), kinds


def main() -> None:
    comm = MPI.COMM_WORLD

    def seconds(message: Any) -> float:
        comm.Barrier()
        start = time.perf_counter()
        comm.Alltoallw(*message)
        return float(comm.allreduce(time.perf_counter() - start, MPI.MAX))

    for before, dim, after, into in CASES:
        x = np.random.default_rng(comm.rank).integers(0, 256, ITEM * int(np.prod(before)), np.uint8)
        results = [np.zeros(ITEM * int(np.prod(after)), np.uint8) for _ in range(2)]
        source, target = Box((0,) * len(before), before), Box((0,) * len(after), after)
        out, come = shares(source, dim, comm.size), shares(target, into, comm.size)
        mine, theirs = (
            ([x, *make(source, out)], [result, *make(target, come)])
            for make, result in zip((ours, subarrays), results, strict=True)
        )
        ratios = []
        for k in range(PAIRS):
            first, second = (mine, theirs) if k % 2 else (theirs, mine)
            a, b = seconds(first), seconds(second)
            ratios.append(a / b if k % 2 else b / a)
        assert np.array_equal(*results)
        if comm.rank == 0:
            print(f"{comm.size} ranks, {before} -> {after}: {np.median(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
