"""Words agreed on by barrier, many times and in any order of arrival, and a message under way meanwhile."""

from __future__ import annotations

import json
import random
import time

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.backends.mpi.barrier import SharedMemoryBarrier

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
draw = random.Random(rank)
barrier = SharedMemoryBarrier(comm)
words = 0
for turn in range(3000):
    if turn % 500 == 0:
        time.sleep(draw.random() / 50)
    word = sum(1 << k for k in range(63) if (turn * 7 + rank * 11 + k * k) % 3)
    want = -1
    for other in range(size):
        want &= sum(1 << k for k in range(63) if (turn * 7 + other * 11 + k * k) % 3)
    assert barrier.agree(word) == want, turn
    words += 1
barrier.close()

plan = synthesize("[8{x}32, 8]", "[32, 2{x}8]", {"x": size})
tile, message = np.zeros(plan.before.tile, np.float32), np.full(1 << 25, rank, np.uint8)
with to_mpi(plan, comm, transport="shared") as execute:
    if rank == 0:
        request = comm.Isend(message, 1)
        execute(tile)  # rank 1 joins only after it has the message
        request.Wait()
    else:
        if rank == 1:
            comm.Recv(message, 0)
            assert not message.any()
        execute(tile)
if rank == 0:
    print(json.dumps({"words": words}))
