"""Wrong programs, communicators and arrays on 4 ranks or 8: what every rank says; rank 0 prints all messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from counting import Counting, Tally
from mpi4py import MPI

import redistrib as rd
from redistrib.cost.presets import PRESETS
from redistrib.errors import RedistribError
from redistrib.programs.ir.program import Compute, Program
from redistrib.programs.run.mpi.program import program_to_mpi

comm = Counting(MPI.COMM_WORLD)
rank, RANKS = comm.rank, comm.size
said: dict[str, list[str]] = {}


def chain(second: tuple[int, int], ranks: int = comm.size) -> Program:
    nests = [
        rd.nest("ij->ij", (16, 16), name="first", reads=["x"], writes="y", fn=lambda x: 3 * x),
        rd.nest("ij->ij", (16, 16), name="second", reads=["y"], writes="z", fn=lambda x: x + 1),
    ]
    return rd.partition(nests, {"first": (ranks, 1), "second": second})


def refused(name: str, run: Callable[[], object]) -> None:
    message = "accepted"
    Tally.clear()
    try:
        run()
    except RedistribError as error:
        message = f"{type(error).__name__}: {error}"
    calls = [call for call in Tally.calls if call != "Allreduce"]
    assert not calls, (name, calls)  # nothing has moved
    said[name] = MPI.COMM_WORLD.allgather(message)


def without_body(program: Program) -> Program:
    ops: list[Any] = list(program.ops)
    for k, op in enumerate(ops):
        if isinstance(op, Compute):
            (part,) = op.parts
            ops[k] = replace(op, parts=(replace(part, nest=replace(part.nest, body=None)),))
    return replace(program, ops=tuple(ops))


program = chain((1, RANKS))
good = np.zeros((16 // RANKS, 16), np.float32)
half = comm.Split(rank // (RANKS // 2), rank)
refused("size", lambda: rd.to_mpi(program, half))
refused("kind", lambda: rd.to_mpi(program, "world"))
refused("program", lambda: rd.to_mpi(chain((2, RANKS // 2)) if rank == 2 else program, comm))
refused("a plan", lambda: rd.to_mpi(rd.synthesize("[8]", "[8]", "x=1") if rank == 2 else program, comm))
refused("sizes", lambda: rd.to_mpi(chain((1, 2 * RANKS), 2 * RANKS) if rank == 3 else program, comm))
refused("body", lambda: rd.to_mpi(without_body(program), comm))
refused("transport", lambda: rd.to_mpi(program, comm, transport="magic"))
refused("transports", lambda: rd.to_mpi(program, comm, transport="packed" if rank == 1 else None))
refused("profile", lambda: rd.to_mpi(program, comm, machine=PRESETS["cpu"]))
refused("limit", lambda: rd.to_mpi(program, comm, memory_limit=300))
refused("limit of a move", lambda: rd.to_mpi(program, comm, memory_limit=3072 // RANKS, transport="packed"))
small = chain((1, 2), 2)
refused("limit of a move of some", lambda: rd.to_mpi(small, comm, memory_limit=1536, transport="packed"))
wrong: dict[str, tuple[int, tuple[Any, ...]]] = {
    "shape": (2, (np.zeros((16, 16), np.float32),)),
    "dtype": (1, (np.zeros(good.shape),)),
    "none": (3, (None,)),
    "many": (0, (good, good)),
}
execute = rd.to_mpi(program, comm)
for name, (odd, given) in wrong.items():
    refused(name, lambda odd=odd, given=given: execute(*(given if rank == odd else (good,))))
refused("whole", lambda: execute.scatter(*([good] if rank == 1 else []), root=1))
refused("scatter root", lambda: execute.scatter(None, root=RANKS))
whole = [np.zeros((16, 16), np.float32)] if rank == 0 else []
refused("scatter root of one", lambda: execute.scatter(*whole, root=RANKS if rank == 2 else 0))
results = execute(good)
refused("gather roots", lambda: execute.gather(*results, root=rank // 2))
refused("calls", lambda: execute.gather(*results) if rank == 2 else execute(good))
refused("no program", lambda: program_to_mpi(7 if rank == 2 else program, comm))
refused("gather", lambda: execute.gather(good))
assert execute(good)[0] is not None  # still in order after all that
execute.free()
refused("freed", lambda: execute(good))
alone = rd.partition(rd.nest("ij->ij", (4, 4), name="one"), {"one": (2, 1)}, dtype="float32")
few = rd.to_mpi(alone, comm)
refused("given", lambda: few(np.zeros((2, 4), np.float32)))
assert few(None if rank > 1 else np.ones((2, 4), np.float32))[0] is None or rank < 2
if rank == 0:
    print(json.dumps(said))
