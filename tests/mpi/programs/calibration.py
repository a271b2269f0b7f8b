"""A small calibration on 4 ranks: the profile prices plans, and chooses realisations; rank 0 prints it."""

from __future__ import annotations

import json

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import calibrate, to_mpi
from redistrib.backends.mpi.command import telling_tile
from redistrib.synthesis.latency import LatencyBandwidth

comm = MPI.COMM_WORLD
profile = comm.bcast(calibrate.run(comm, name="here", tile_bytes=(1 << 10, 1 << 17), repeats=3))
model = LatencyBandwidth.from_json(json.dumps(profile))
plan = synthesize("[4{x}16, 8]", "[16, 2{x}8]", "x=4", cost_model=model)
chosen = []
for best in ("shared", "packed", "datatypes"):
    told = {**profile, "realisations": {how: [float(how != best), 0.0, 0.0] for how in profile["realisations"]}}
    with to_mpi(plan, comm, profile=told) as execute:
        result = execute(telling_tile(plan, plan.before, comm.rank))
        assert np.array_equal(result.view(np.uint32), telling_tile(plan, plan.after, comm.rank).view(np.uint32))
        chosen.append(execute.realisations[0])
samples = calibrate.measure(comm, tile_bytes=(1 << 10,), repeats=2)
assert (samples is None) == (comm.rank > 0)
if comm.rank == 0:
    print(
        json.dumps(
            {"profile": profile, "chosen": chosen, "priced": plan.cost, "kinds": sorted({s.kind for s in samples})}
        )
    )
