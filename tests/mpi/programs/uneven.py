"""Plans between tiles of unequal size, in every transport, and scatter and gather of such; prints what was seen."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import gather, run_command, scatter, to_mpi
from redistrib.errors import CommunicatorError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.plans import reference
from tests.uneven.cases import all_uneven_types

comm = MPI.COMM_WORLD
rank = comm.rank
draw = random.Random(18)
ran: Counter[str] = Counter()
meshes = [Mesh.of({"x": comm.size}), Mesh.of({"x": 2, "y": comm.size // 2}), Mesh.of({"x": comm.size // 2, "y": 2})]
shapes = [(7,), (3, 5), (13, 6, 5), (50, 7), (1, 9), (2, 3, 2, 5)]
moved_elements = bound_elements = 0

for k in range(30):
    shape = shapes[k % len(shapes)]
    here = draw.choice(meshes)
    there = here if k % 2 else Mesh(draw.choice(meshes).axes, tuple(draw.sample(range(comm.size), comm.size)))
    source, target = (draw.choice(all_uneven_types(mesh, shape)) for mesh in (here, there))
    how = ("shared", "packed", "datatypes")[k % 3]
    model = ("exact", "tpu")[k // 3 % 2]
    dtype = ("int64", "float32", "int8")[k % 3]
    plan = synthesize(source, target, here, target_mesh=there, machine=model, dtype=dtype)
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    tiles, wanted = (reference.scatter(whole, end) for end in (plan.before, plan.after))
    with to_mpi(plan, comm, transport=how) as execute:
        mine = np.ascontiguousarray(tiles[rank])
        for _ in range(2):
            moved = execute(mine)
            assert moved.shape == wanted[rank].shape
            assert np.array_equal(moved, wanted[rank]), (k, source, target, how)
            del moved
        out = np.empty_like(wanted[rank])
        execute(mine, out)
        assert np.array_equal(out, wanted[rank]), (k, source, target, how)
        again = execute(mine)
        assert np.array_equal(execute(mine, again), wanted[rank])
        # shares travel as large as they are, however the plan would pad them in rounds
        if len(plan.steps) == 1:
            assert execute.received_bytes == plan.lower_bound[rank] * plan.itemsize, (k, plan)
        moved_elements += execute.received_bytes // plan.itemsize
        bound_elements += plan.lower_bound[rank]
        ran.update(execute.transports)
    root = k % comm.size
    tile = scatter(whole if rank == root else None, source, here, comm, root=root)
    assert np.array_equal(tile, tiles[rank])
    back = gather(tile, source, here, comm, root=root)
    assert (back is None) == (rank != root)
    assert back is None or np.array_equal(back, whole)

messages = []
plan = synthesize(f"[2~{{x}}{comm.size + 1}]", f"[{comm.size + 1}]", {"x": comm.size})
with to_mpi(plan, comm) as execute:
    try:
        execute(np.zeros(2, np.float32))
    except TilesError as error:
        messages.append(str(error))
if rank == 1:
    plan = synthesize(f"[2^{{x}}{comm.size + 1}]", f"[{comm.size + 1}]", {"x": comm.size})
try:
    to_mpi(plan, comm)
except CommunicatorError as error:
    messages.append(str(error))
assert comm.allgather(messages) == [messages] * comm.size
size = 2 * comm.size + 1
assert run_command(synthesize(f"[3~{{x}}{size}, 7]", f"[{size}, 7]", {"x": comm.size}), comm=comm) == 0
total, bound = comm.allreduce(moved_elements), comm.allreduce(bound_elements)
if rank == 0:
    print(json.dumps({"ran": dict(ran), "received": total, "bound": bound, "messages": messages}))
