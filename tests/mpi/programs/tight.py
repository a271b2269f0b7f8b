"""Plans with tiles between source and target, in no more memory than these two.

Prints how many ran in each way.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter

from counting import Counting, Tally, received
from mpi4py import MPI
from problems import MESHES, drawn_type

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.backends.mpi.command import pattern_tile
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans import reference
from redistrib.plans.plan import Plan

comm = Counting(MPI.COMM_WORLD)
rank = comm.rank


def drawn(ranks: int, count: int) -> list[Plan]:
    """Plans with a tile between source and target."""
    draw = random.Random(ranks)
    found: dict[str, Plan] = {}
    while len(found) < count:
        axes = [Axis("xyz"[k], size) for k, size in enumerate(draw.choice(MESHES[ranks]))]
        order = tuple(draw.sample(range(ranks), ranks)) if draw.random() < 0.5 else ()
        shape = [ranks * draw.choice([2, 4, 6, 8]) for _ in range(draw.randint(2, 3))]
        plan = synthesize(
            drawn_type(draw, axes, shape),
            drawn_type(draw, axes, shape),
            Mesh(tuple(axes)),
            target_mesh=Mesh(tuple(axes), order),
            dtype=draw.choice(["uint8", "float32", "complex128"]),
            algorithm=draw.choice(["best", "paper"]),
            machine=draw.choice(["exact", "tpu"]),
        )
        moving = [step for step in plan.steps if step.kind != "dynslice"]
        between = moving[0].after.tile_size * plan.itemsize if len(moving) > 1 and moving[1].kind != "allgather" else 0
        if 0 < between <= 2**12:
            found[plan.to_json()] = plan
    return list(found.values())


texts = comm.bcast([plan.to_json() for plan in drawn(comm.size, int(sys.argv[1]))] if rank == 0 else None)
ran: Counter[str] = Counter()
for text in texts:
    plan = Plan.from_json(text)
    tile = pattern_tile(plan, plan.before, rank)
    tiles = comm.gather(tile)
    want = comm.scatter(reference.run(plan, tiles) if tiles else None)
    ends = (plan.before.tile_size + plan.after.tile_size) * plan.itemsize
    with to_mpi(plan, comm, memory_limit=ends) as execute:
        Tally.clear()
        result = execute(tile)
        where = f"{plan.source} -> {plan.target}, {[s.kind for s in plan.steps]}, rank {rank}"
        assert (execute.scratch_bytes, execute.middle_bytes) == (0, 0), where
        assert result.tobytes() == want.tobytes(), where
        got = received(comm)
        assert got == execute.received_bytes == plan.lower_bound[rank] * plan.itemsize, f"{where}: {got} bytes"
        assert Tally.sent == execute.sent_bytes, where
        assert tile.tobytes() == pattern_tile(plan, plan.before, rank).tobytes(), f"{where}: the source was written"
        ran.update(execute.transports)
if rank == 0:
    print(json.dumps({"ran": ran, "plans": len(texts)}))
