"""Carry out plans that came as JSON, on arrays that came as files: shipped.py FOLDER.

Every `NAME.json` there is run on `NAME.npy`, the global array; rank r writes its tile to `NAME.mpi.r.npy`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from redistrib.backends.mpi import to_mpi
from redistrib.plans.plan import Plan

comm = MPI.COMM_WORLD
ran: dict[str, list[str]] = {}
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    plan = Plan.from_json(path.read_text())
    box = plan.before.box(comm.rank)
    whole = np.load(path.with_suffix(".npy"), mmap_mode="r")
    tile = np.ascontiguousarray(whole[tuple(slice(s, s + n) for s, n in zip(box.start, box.size, strict=True))])
    with to_mpi(plan, comm) as execute:
        np.save(path.with_suffix(f".mpi.{comm.rank}.npy"), execute(tile))
        ran[path.stem] = execute.realisations
if comm.rank == 0:
    print(json.dumps(ran))
