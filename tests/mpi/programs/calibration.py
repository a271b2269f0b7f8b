"""A small calibration on 4 ranks, written as a file: it prices plans and chooses transports; rank 0 prints it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from counting import Counting, Tally
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import calibrate, to_mpi
from redistrib.backends.mpi.command import pattern_tile
from redistrib.cli import main
from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import PRESETS
from redistrib.cost.profiles import load_profile

comm = MPI.COMM_WORLD
path = Path(sys.argv[1])
calibrate.measure = partial(calibrate.measure, tile_bytes=(1 << 10, 1 << 17), repeats=3)
samples = calibrate.measure(comm)
assert (samples is None) == (comm.rank > 0)
assert main(["calibrate", "--backend", "mpi", "--name", "here", "-o", str(path)]) == 0
comm.Barrier()
model = load_profile(path)
plan = synthesize("[4{x}16, 8]", "[16, 2{x}8]", "x=4", machine=model)
with to_mpi(plan, comm, machine=path) as execute:
    by_file = execute.transports
with to_mpi(plan, comm, machine=json.loads(path.read_text())) as execute:
    assert execute.transports == by_file
with to_mpi(plan, comm, machine=model) as execute:
    assert execute.transports == by_file


def told(**seconds: float) -> LatencyBandwidth:
    """The profile, but with these seconds a launch over each transport."""
    return replace(model, transports={name: (launch, 0.0, 0.0) for name, launch in seconds.items()})


chosen = []
for best in ("shared", "packed", "datatypes"):
    figures = {"shared": 1.0, "packed": 1.0, "datatypes": 1.0, best: 0.0}
    with to_mpi(plan, comm, machine=told(**figures)) as execute:
        result = execute(pattern_tile(plan, plan.before, comm.rank))
        assert np.array_equal(result.view(np.uint32), pattern_tile(plan, plan.after, comm.rank).view(np.uint32))
        chosen.append(execute.transports[0])
# What rounds would take two permutes for is one call here, over exactly the ranks that share data.
direct = synthesize(
    "[16{x}32, 16{y}32]", "[8{x,y}32, 32]", "x=2,y=2", machine=replace(PRESETS["cpu"], fused_exchange=True)
)
with to_mpi(direct, Counting(comm), machine=told(packed=1.0, datatypes=0.0)) as execute:
    Tally.clear()
    result = execute(pattern_tile(direct, direct.before, comm.rank))
    assert np.array_equal(result.view(np.uint32), pattern_tile(direct, direct.after, comm.rank).view(np.uint32))
    assert Tally.received == direct.received[comm.rank] * direct.itemsize
    calls = [call for ranks in comm.allgather(Tally.calls) for call in ranks]
if samples is not None:  # on rank 0
    print(
        json.dumps(
            {
                "profile": json.loads(path.read_text()),
                "chosen": chosen,
                "by_file": by_file,
                "priced": plan.cost,
                "kinds": sorted({s.kind for s in samples}),
                "permuted": sorted({s.received for s in samples if s.kind == "allpermute"}),
                "transports": sorted({s.transport for s in samples}),
                "direct": [getattr(step, "implementation", step.kind) for step in direct.steps],
                "calls": calls,
            }
        )
    )
