"""Tiles of more than 2**31 elements through every transport that needs no memory beside them.

    mpiexec -n 2 python -m mpi4py tests/mpi/programs/large.py [--transport packed]

Takes four tiles of 2.2 GB over both ranks. Checked in full, a slice at a time.
"""

from __future__ import annotations

import argparse
import gc

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.lang.mesh import Axis, Mesh

WIDTH = 2**16
ROWS = 2**15 + 2  # rows of WIDTH bytes in a tile: 131,072 elements beyond 2**31


LINE = (np.arange(WIDTH + 253) * 3 % 253).astype(np.uint8)


def pattern(row: int, columns: slice) -> np.ndarray:
    """Part of a global row; each differs from its neighbours."""
    shift = row * 7 % 253
    return LINE[columns.start + shift : columns.stop + shift]


def fill(tile: np.ndarray, first: int, columns: slice) -> None:
    for row in range(len(tile)):
        tile[row] = pattern(first + row, columns)


def wrong(tile: np.ndarray, first: int, columns: slice) -> int:
    return sum(int(np.count_nonzero(tile[row] != pattern(first + row, columns))) for row in range(len(tile)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    assert comm.size == 2
    line, turned = Mesh((Axis("x", 2),)), Mesh((Axis("x", 2),), (1, 0))
    cut = f"[{ROWS}{{x}}{2 * ROWS}, {WIDTH}]"
    half = f"[{2 * ROWS}, {WIDTH // 2}{{x}}{WIDTH}]"
    for what, target, mesh in (("permute", cut, turned), ("all-to-all", half, line)):
        plan = synthesize(cut, target, line, target_mesh=mesh, dtype="uint8", machine="exact")
        for how in [args.transport] if args.transport else ["packed", "datatypes"]:
            if how == "packed" and what == "all-to-all":
                continue  # would take two more tiles
            x = np.empty(plan.before.tile, np.uint8)
            out = np.empty(plan.after.tile, np.uint8)
            fill(x, int(plan.before.start[comm.rank, 0]), slice(0, WIDTH))
            with to_mpi(plan, comm, transport=how) as execute:
                comm.Barrier()
                start = MPI.Wtime()
                execute(x, out=out)
                seconds = MPI.Wtime() - start
            column = int(plan.after.start[comm.rank, 1])
            bad = comm.allreduce(
                wrong(out, int(plan.after.start[comm.rank, 0]), slice(column, column + plan.after.tile[1]))
            )
            if comm.rank == 0:
                print(f"{what:10} {how:9} {x.size:,} elements a tile: {bad} wrong, {seconds:.1f} s", flush=True)
            assert bad == 0
            del x, out
            gc.collect()


if __name__ == "__main__":
    main()
