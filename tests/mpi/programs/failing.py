"""One of 4 ranks fails between two calls while the others wait for it."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi

plan = synthesize("[4{x}16, 8]", "[16, 2{x}8]", "x=4")
execute = to_mpi(plan, MPI.COMM_WORLD, transport=sys.argv[1])
for turn in range(10):
    if turn == 5 and MPI.COMM_WORLD.rank == 2:
        raise RuntimeError("rank two has had enough")
    execute(np.zeros((4, 8), np.float32))
print("reached the end")
