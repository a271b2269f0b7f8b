"""8 ranks that MPICH is told to see as two hosts: shared memory only where all traffic stays on one."""

from __future__ import annotations

import json

from mpi4py import MPI
from problems import drawn_plans

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.backends.mpi.command import pattern_tile
from redistrib.plans.plan import Plan

comm = MPI.COMM_WORLD
hosts = len(set(comm.allgather(comm.Split_type(MPI.COMM_TYPE_SHARED).allgather(comm.rank)[0])))
plans = []
if comm.rank == 0:
    plans = [plan.to_json() for plan in drawn_plans(8, 14, seed=1)]
    # the gather stays among neighbours or crosses; together they mix both ways of moving in one plan
    for target in ("[8, 4{x,y}16]", "[8, 8{y}16]", "[8, 8{x}16]", "[4{x}8, 16]"):
        for algorithm in ("paper", "best"):
            plans.append(synthesize("[1{x,y,z}8, 16]", target, "x=2,y=2,z=2", algorithm=algorithm).to_json())
seen: set[str] = set()
for text in comm.bcast(plans):
    plan = Plan.from_json(text)
    with to_mpi(plan, comm) as execute:
        for _ in range(3):
            result = execute(pattern_tile(plan, plan.before, comm.rank))
            assert result.tobytes() == pattern_tile(plan, plan.after, comm.rank).tobytes(), str(plan)
        seen.add("+".join(sorted(set(execute.transports))))
if comm.rank == 0:
    print(json.dumps({"hosts": hosts, "seen": sorted(seen)}))
