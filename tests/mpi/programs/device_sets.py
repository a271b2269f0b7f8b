"""Plans between ranks that differ, in every transport; ranks without data pass None; prints what was seen."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.errors import TilesError
from redistrib.lang.mesh import Mesh
from redistrib.plans import reference
from redistrib.testing import all_types
from tests.sets.cases import PAIRS, SETS, prime_mesh

comm = MPI.COMM_WORLD
rank = comm.rank
HOWS = ("shared", "packed", "datatypes")
ran: Counter[str] = Counter()
plans = 0

cases = [
    (source, target, Mesh.of(mesh, devices), Mesh.of(other, others))
    for (mesh, devices, source), (other, others, target) in PAIRS.values()
]
for name in SETS:
    meshes = [prime_mesh(devices) for devices in SETS[name]]
    if max(mesh.span for mesh in meshes) <= comm.size:
        sides = [list(all_types(mesh, (24, 24))) for mesh in meshes]
        cases.append((*(random.Random(7).choice(side) for side in sides), *meshes))

for k, (source, target, here, there) in enumerate(cases):
    for model, how in (("exact", HOWS[k % 3]), ("tpu", HOWS[(k + 1) % 3])):
        plan = synthesize(source, target, here, target_mesh=there, machine=model, dtype="int32")
        part = comm.Split(0 if rank < plan.devices else MPI.UNDEFINED, rank)
        if part == MPI.COMM_NULL:
            continue
        whole = np.arange(np.prod(plan.shape), dtype=np.int32).reshape(plan.shape)
        tiles, wanted = (reference.scatter(whole, end) for end in (plan.before, plan.after))
        with to_mpi(plan, part, transport=how) as execute:
            for _ in range(2):
                moved = execute(None if plan.before.nowhere[rank] else tiles[rank])
                assert (moved is None) == plan.after.nowhere[rank]
                assert moved is None or np.array_equal(moved, wanted[rank]), (source, target, how)
            kinds = [step.kind for step in plan.steps if step.kind != "dynslice"]
            ran.update(f"{how} {kind}" for how, kind in zip(execute.transports, kinds, strict=True))
            assert execute.received_bytes <= 4 * plan.received[rank]
        plans += 1
        part.Free()

plan = synthesize("[4{x}16, 4]", "[16, 1{x}4]", Mesh.of("x=4"), target_mesh=Mesh.of("x=4", range(4, 8)))
messages = []
with to_mpi(plan, comm) as execute:
    tile = np.zeros(plan.before.tile, np.float32)
    for x in (None, tile):  # wrong on the first half, wrong on the second
        try:
            execute(x)
        except TilesError as error:
            messages.append(str(error))
assert comm.allgather(messages) == [messages] * comm.size
if rank == 0:
    print(json.dumps({"plans": plans, "ran": sorted(ran), "messages": messages}))
