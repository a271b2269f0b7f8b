"""A small calibration on 4 ranks: the profile prices plans, and chooses realisations; rank 0 prints it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
from counting import Counting, Tally
from mpi4py import MPI

from redistrib.api import calibrate as calibrate_profile
from redistrib.api import synthesize
from redistrib.backends.mpi import calibrate, to_mpi
from redistrib.backends.mpi.command import telling_tile
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import PRESETS

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
# What rounds would take two permutes for is one call here, over exactly the ranks that share data.
direct = synthesize(
    "[16{x}32, 16{y}32]", "[8{x,y}32, 32]", "x=2,y=2", cost_model=replace(PRESETS["cpu"], fused_exchange=True)
)
told = {**profile, "realisations": {"shared": [1, 0, 0], "packed": [1, 0, 0], "datatypes": [0, 0, 0]}}
with to_mpi(direct, Counting(comm), profile=told) as execute:
    Tally.clear()
    result = execute(telling_tile(direct, direct.before, comm.rank))
    assert np.array_equal(result.view(np.uint32), telling_tile(direct, direct.after, comm.rank).view(np.uint32))
    assert Tally.received == direct.received[comm.rank] * direct.itemsize
    calls = [call for ranks in comm.allgather(Tally.calls) for call in ranks]
samples = calibrate.measure(comm, tile_bytes=(1 << 10,), repeats=2)
assert (samples is None) == (comm.rank > 0)
calibrate.measure = partial(calibrate.measure, tile_bytes=(1 << 10,), repeats=2)
fit = calibrate_profile("mpi")
if fit is not None:  # on rank 0
    print(
        json.dumps(
            {
                "profile": profile,
                "chosen": chosen,
                "priced": plan.cost,
                "kinds": sorted({s.kind for s in samples}),
                "one_call": [model.fused_exchange, fit.profile.fused_exchange],
                "direct": [getattr(step, "realisation", step.kind) for step in direct.steps],
                "calls": calls,
            }
        )
    )
