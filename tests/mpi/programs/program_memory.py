"""What 2 ranks allocate while a program runs, beside what it predicts; prints JSON on rank 0.

Without shared memory, which is not counted, and after a first call: what is made once stays.
"""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
from mpi4py import MPI

import redistrib as rd
from redistrib.programs.ir.live import peak_bytes
from redistrib.programs.ir.program import Program

comm = MPI.COMM_WORLD
SIZE, LAYERS = 512, 6
names = [f"h{k}" for k in range(LAYERS + 1)]
nests = [
    rd.nest("ij->ij", (SIZE, SIZE), name=f"layer {k}", reads=[names[k]], writes=names[k + 1], fn=lambda x: x + 1)
    for k in range(LAYERS)
]
grids = {f"layer {k}": (2, 1) if k % 2 else (1, 2) for k in range(LAYERS)}
program = rd.partition(nests, grids, dtype="float64")
all_kept = Program(program.inputs, program.ops, tuple(program.values))
tile = np.ones((SIZE, SIZE // 2))


def peak(what: Program, **options: object) -> int:
    with rd.to_mpi(what, comm, transport="datatypes", **options) as execute:
        execute(tile)
        tracemalloc.start()
        out = execute(tile)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        np.testing.assert_array_equal(out[-1], np.full_like(out[-1], 1 + LAYERS))
    return int(comm.allreduce(most, MPI.MAX))


predicted = max(peak_bytes(program).values()) - tile.nbytes  # the input was there before
found = {
    "tile": tile.nbytes,
    "predicted": predicted,
    "last use": peak(program),
    "kept": peak(all_kept),
    "limited": peak(program, memory_limit=predicted + tile.nbytes),
}
if comm.rank == 0:
    print(json.dumps(found))
