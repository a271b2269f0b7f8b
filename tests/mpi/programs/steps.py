"""Random plans through every transport: results and counted bytes, against the reference interpreter.

Prints how often each kind of step ran in each transport, and the MPI calls seen.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

import numpy as np
from counting import Counting, Tally, received
from mpi4py import MPI
from problems import drawn_plans

from redistrib.backends.mpi import to_mpi
from redistrib.backends.mpi.command import pattern_tile
from redistrib.plans import reference
from redistrib.plans.plan import Plan

comm = Counting(MPI.COMM_WORLD)
rank = comm.rank
plans = []
if rank == 0:
    plans = [plan.to_json() for plan in drawn_plans(comm.size, int(sys.argv[1]))]
plans = [Plan.from_json(text) for text in comm.bcast(plans)]
ran: Counter[str] = Counter()
calls: Counter[str] = Counter()
odd_groups = 0
for number, plan in enumerate(plans):
    tile = pattern_tile(plan, plan.before, rank)
    tiles = comm.gather(tile)
    want = comm.scatter(reference.run(plan, tiles) if tiles else None)
    for step in plan.steps:
        if hasattr(step, "groups"):
            gaps = np.diff(step.groups, axis=1)
            odd_groups += bool((gaps != gaps[:, :1]).any())
    for how in ("shared", "packed", "datatypes", None):
        with to_mpi(plan, comm, transport=how) as execute:
            Tally.clear()
            result = execute(tile)
            where = f"plan {number} {plan.source} -> {plan.target}, {how}, rank {rank}"
            assert result.dtype == want.dtype, where
            assert result.shape == want.shape, where
            assert result.flags.aligned, where
            assert result.tobytes() == want.tobytes(), where
            got = received(comm)
            assert got == plan.received[rank] * plan.itemsize, f"{where}: {got} bytes"
            assert got == execute.received_bytes, where
            assert Tally.sent == execute.sent_bytes, where
            calls.update(Tally.calls)
            again = np.zeros_like(want)
            Tally.clear()
            assert execute(tile, out=again) is not None, where
            assert received(comm) == execute.received_bytes, where
            assert again.tobytes() == want.tobytes(), where
            assert result.tobytes() == want.tobytes(), f"{where}: an earlier result was overwritten"
            del result
        ran.update(f"{step.kind} {how or execute.transports}" for step in plan.steps)
calls = sum(comm.allgather(calls), Counter())
if rank == 0:
    print(
        json.dumps(
            {
                "ran": ran,
                "calls": calls,
                "odd_groups": odd_groups,
                "plans": len(plans),
            }
        )
    )
