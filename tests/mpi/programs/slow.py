"""A plan that moves memory both ways on 4 ranks, of which one is late to copy what it keeps; prints what ran."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

from mpi4py import MPI

from redistrib.backends.mpi import executor
from redistrib.backends.mpi.command import pattern_tile
from redistrib.backends.ranks.runners import Runner
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.verify import verify
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.theory.placement import placement_of

comm = MPI.COMM_WORLD
mesh = Mesh.of("x=2, y=2")
rows, columns, blocks = "[4{y,x}16, 16]", "[16, 4{y,x}16]", "[8{x}16, 8{y}16]"
way = [placement_of(DistType.of(text), mesh) for text in (rows, columns, rows, blocks, rows)]
steps = tuple(in_rounds(Problem.plain(*ends))[0][0] for ends in pairwise(way))
ends = DistType.of(rows), mesh, DistType.of(rows), mesh
plan = verify(Plan(*ends, "float32", 4, steps, "by hand", "none", 0, "elements"))


class Mixed(executor.Executor):
    """What a profile may choose, chosen here: the third step writes the memory that the second reads."""

    def _choose(self, *_: Any) -> list[str]:
        return ["packed", "packed", "shared", "packed"]


def late(self: Runner, *memory: Any, copy: Any = Runner.copy_locally) -> None:
    if comm.rank == 1:  # what others send it next goes where this still lies
        time.sleep(0.2)
    copy(self, *memory)


Runner.copy_locally = late  # type: ignore[method-assign]
with Mixed(plan, comm) as execute:
    memories = [(stage.reads, stage.writes) for stage in execute._staged.stages]
    assert memories[1][0] == memories[2][1], memories
    result = execute(pattern_tile(plan, plan.before, comm.rank))
    right = comm.allgather(result.tobytes() == pattern_tile(plan, plan.after, comm.rank).tobytes())
    if comm.rank == 0:
        print(json.dumps({"ran": execute.transports, "right": right}))
