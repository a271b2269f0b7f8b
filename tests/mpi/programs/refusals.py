"""Wrong communicators and arrays on 4 ranks or 8: what every rank says; rank 0 prints all messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from redistrib.api import synthesize, to_mpi
from redistrib.backends.mpi import gather, scatter, shared
from redistrib.cost.presets import PRESETS
from redistrib.errors import RedistribError
from redistrib.lang.mesh import Mesh

comm = MPI.COMM_WORLD
rank = comm.rank
RANKS = comm.size
TILE = 16 // RANKS
MESH, CUT = f"x={RANKS}", f"[{TILE}{{x}}16]"
ROWS, COLUMNS = f"[{TILE}{{x}}16, 16]", f"[16, {TILE}{{x}}16]"
plan = synthesize(ROWS, COLUMNS, MESH)
good = np.zeros((TILE, 16), np.float32)
said: dict[str, list[str]] = {}


def refused(name: str, run: Callable[[], object]) -> None:
    message = "accepted"
    try:
        run()
    except RedistribError as error:
        message = f"{type(error).__name__}: {error}"
    said[name] = comm.allgather(message)


def only(odd: int, wrong: object) -> object:
    return wrong if rank == odd else good


half = comm.Split(rank // (RANKS // 2), rank)
refused("size", lambda: to_mpi(plan, half))
refused("kind", lambda: to_mpi(plan, "world"))
refused("transport", lambda: to_mpi(plan, comm, transport="magic"))
refused("profile", lambda: to_mpi(plan, comm, machine=PRESETS["cpu"]))
refused("no profile", lambda: to_mpi(plan, comm, machine="nowhere.json" if rank == 2 else None))
refused("odd profile", lambda: to_mpi(plan, comm, machine=7))
figures = [replace(PRESETS["cpu"], transports={"packed": (k, 0, 0), "datatypes": (1, 0, 0)}) for k in (1, 2)]
refused("profiles", lambda: to_mpi(plan, comm, machine=figures[rank == 3]))
refused("limit", lambda: to_mpi(plan, comm, memory_limit=100))
other = synthesize(ROWS, "[16, 16]", MESH)
refused("plans", lambda: to_mpi(other if rank == 2 else plan, comm))
refused("limits", lambda: to_mpi(plan, comm, memory_limit=10**6 if rank == 3 else 10**7))
for how in ("shared", "packed", "datatypes"):
    execute = to_mpi(plan, comm, transport=how)
    refused(f"shape {how}", lambda execute=execute: execute(only(1, np.zeros((16, 16), np.float32))))
    refused(f"dtype {how}", lambda execute=execute: execute(only(2, np.zeros(good.shape))))
    refused(f"none {how}", lambda execute=execute: execute(only(3, None)))
    fixed = np.zeros((16, TILE), np.float32)
    fixed.flags.writeable = rank != 1
    refused(f"out {how}", lambda execute=execute, fixed=fixed: execute(good, out=fixed))
    turned = np.zeros((TILE, 16), np.float32).T if rank == 1 else np.zeros((16, TILE), np.float32)
    refused(f"turned {how}", lambda execute=execute, turned=turned: execute(good, out=turned))
    flat = np.zeros(good.size, np.float32)
    refused(f"overlap {how}", lambda execute=execute, flat=flat: execute(flat, out=flat))
    execute(good)  # still in order after all that
    execute.free()
    refused(f"freed {how}", lambda execute=execute: execute(good))
with to_mpi(plan, comm, transport="shared") as execute:
    kept = execute(good)
    room = kept.nbytes * RANKS - (rank == 1)  # for another result on every rank but one
    with patch.object(shared, "free_shared_memory", lambda: room):
        refused("no room", lambda: execute(good))
    del kept
    execute(good)
refused("scatter", lambda: scatter(np.zeros((3, 3)) if rank == 1 else None, CUT, MESH, comm, root=1))
refused("scatter root", lambda: scatter(None, CUT, MESH, comm, root=RANKS))
refused("gather", lambda: gather(np.zeros(5 if rank == 2 else TILE), CUT, MESH, comm))
refused("gather dtype", lambda: gather(np.zeros(TILE, np.int8 if rank == 2 else np.int16), CUT, MESH, comm))
summed = synthesize("[16, 16] sum{x}", ROWS, MESH)
native = replace(summed, accumulate="float64")
refused("sums", lambda: to_mpi(native if rank == 1 else summed, comm))
truth = np.zeros((16, 16), np.bool_)
refused("scatter bool sums", lambda: scatter(truth if rank == 0 else None, summed.source, MESH, comm))
refused("gather bool sums", lambda: gather(truth, summed.source, MESH, comm))
refused("gather complex max", lambda: gather(np.zeros(4, np.complex64), "[4] max{x}", MESH, comm))
refused("gather nothing", lambda: gather(None if rank == 3 else np.zeros(4), "[4] sum{x}", MESH, comm))
refused("gather left out", lambda: gather(np.zeros(2), "[2{x}4]", Mesh.of("x=2", (0, RANKS - 1)), comm))
refused("no plan", lambda: to_mpi(None if rank == 2 else plan, comm))
refused("limit in words", lambda: to_mpi(plan, comm, memory_limit="much" if rank == 1 else 10**7))
refused("profile and plan", lambda: to_mpi(7 if rank == 1 else plan, comm, machine=7 if rank == 2 else None))
line = np.zeros(16)
refused("scatter types", lambda: scatter(line, "[16]" if rank == 1 else CUT, MESH, comm))
refused("scatter text", lambda: scatter(line, "no type" if rank == 2 else CUT, MESH, comm))
refused("scatter mesh", lambda: scatter(line, CUT, f"{MESH},y=2" if rank == 3 else MESH, comm))
refused("scatter roots", lambda: scatter(line, CUT, MESH, comm, root=int(rank == 3)))
refused("scatter no root", lambda: scatter(line, CUT, MESH, comm, root="me" if rank == 3 else 0))
refused("gather types", lambda: gather(np.zeros(TILE), CUT.replace("x", "y") if rank == 1 else CUT, MESH, comm))
refused(
    "gather order",
    lambda: gather(np.zeros(TILE), CUT, Mesh.of(MESH, tuple(range(RANKS)[:: -1 if rank == 2 else 1])), comm),
)
refused("gather roots", lambda: gather(np.zeros(TILE), CUT, MESH, comm, root=rank))
refused(
    "scatter and gather",
    lambda: gather(np.zeros(TILE), CUT, MESH, comm) if rank == 2 else scatter(line, CUT, MESH, comm),
)
alike = gather(scatter(np.arange(16.0), CUT, MESH, comm), CUT, MESH, comm)
assert rank or (alike == np.arange(16.0)).all()  # in order after all that
if rank == 0:
    print(json.dumps(said))
