"""Peak resident memory of one redistribution under a tight limit; prints bytes of the worst rank.

memory.py MIB [limit]: tiles of so many MiB; with `limit`, source + target + a tenth of a tile is the limit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi

comm = MPI.COMM_WORLD
size = comm.size
tile = int(sys.argv[1]) << 20
rows, columns = 1024 * size, tile // 8 // 1024
line, square = {"x": size}, {"x": 2, "y": size // 2}
CASES = {
    "exchange": (f"[{rows // size}{{x}}{rows}, {columns}]", f"[{rows}, {columns // size}{{x}}{columns}]", line),
    "gather": (f"[{rows}, {columns // size // 2}{{x}}{columns // 2}]", f"[{rows}, {columns // 2}]", line),
}
if size > 2:  # several all-to-alls, with tiles between source and target
    source, target = (
        f"[{rows // size}{{x,y}}{rows}, 32, {columns // 32}]",
        f"[{rows}, 16{{x}}32, {2 * columns // size // 32}{{y}}{columns // 32}]",
    )
    CASES = {"all-to-alls": (source, target, square)}


def resident(field: str) -> int:
    """Bytes of resident memory: VmRSS, or its peak VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    raise LookupError(field)


figures = {}
for name, (source, target, mesh) in CASES.items():
    algorithm = "paper" if mesh is square else "best"
    plan = synthesize(source, target, mesh, dtype="float64", machine="exact", algorithm=algorithm)
    held, made = (placement.tile_size * plan.itemsize for placement in (plan.before, plan.after))
    larger = max(held, made)
    limit = held + made + larger // 10 if len(sys.argv) > 2 else None
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget earlier peaks
    execute = to_mpi(plan, comm, memory_limit=limit)
    x = np.full(plan.before.tile, float(comm.rank))
    out = np.empty(plan.after.tile)
    for _ in range(2):
        execute(x, out=out)
    peak = resident("VmHWM") - before
    assert out.flat[0] == 0
    assert out.flat[-1] == size - 1
    figures[name] = {
        "transports": execute.transports,
        "peak": comm.allreduce(peak, MPI.MAX),
        "allowed": held + made + larger // 10 + (16 << 20),
        "source": held,
        "target": made,
        "steps": [step.kind for step in plan.steps],
    }
    execute.free()
    del x, out
if comm.rank == 0:
    print(json.dumps(figures))
