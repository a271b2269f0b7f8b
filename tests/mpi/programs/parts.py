"""Plans in parts, by packed messages and by datatypes, on 4 ranks; prints how many ran, and by which calls."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

from counting import Counting, Tally
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.backends.mpi.command import telling_tile
from redistrib.cost.presets import PRESETS
from redistrib.lang.mesh import Axis, Mesh
from redistrib.plans.parts import untouched
from redistrib.plans.plan import Plan
from redistrib.plans.verify import verify

SLOW = replace(PRESETS["gpu"], slow_bandwidth=1e8, devices_per_host=None)
comm = Counting(MPI.COMM_WORLD)
rank = comm.rank
ROUTES = [
    ("[4{x,y}16, 8, 8]", "[8{y}16, 8, 8]", "best"),
    ("[8{x}16, 8, 8]", "[8{y}16, 8, 8]", "paper"),
    ("[16, 8{x}16, 8]", "[8{x}16, 8{y}16, 8]", "paper"),
    ("[4{x,y}16, 8, 8]", "[16, 4{x}8, 8]", "paper"),
]
SETS = [([0, 1], [2, 3], "[16, 8, 8]"), ([0], [1, 2, 3], "[16, 8, 8]"), ([2, 3], [0, 1, 2], "[16, 8, 8]")]


def plans() -> list[Plan]:
    found = [synthesize(*ends, "y=2,x=2", cost_model="gpu", algorithm=how, dtype="int32") for *ends, how in ROUTES]
    for here, there, goal in SETS:
        source, target = (Mesh((Axis("x", len(numbers)),), tuple(numbers)) for numbers in (here, there))
        start = f"[{16 // len(here)}{{x}}16, 8, 8]"
        found.append(synthesize(start, goal, source, target_mesh=target, cost_model=SLOW, dtype="int32"))
    return found


ran: Counter[str] = Counter()
calls: Counter[str] = Counter()
count = 0
for plan in plans():
    held = not plan.before.nowhere[rank]
    x = telling_tile(plan, plan.before, rank) if held else None
    for along, parts, transport in zip(untouched(plan.steps), (2, 4), ("packed", "datatypes"), strict=False):
        cut = verify(replace(plan, parts=parts, along=along))
        with to_mpi(cut, comm, transport=transport) as execute:
            Tally.clear()
            got = execute(x)
            if plan.after.nowhere[rank]:
                assert got is None
            else:
                assert got.tobytes() == telling_tile(plan, plan.after, rank).tobytes()
            assert Tally.received == plan.received[rank] * plan.itemsize == execute.received_bytes
            assert Tally.sent == plan.sent[rank] * plan.itemsize == execute.sent_bytes
            calls.update(Tally.calls)
        ran.update(f"{step.kind} {transport}" for step in plan.steps)
        count += 1
with to_mpi(cut, comm, memory_limit=2**40) as execute:  # one step at a time, and so whole
    Tally.clear()
    got = execute(x)
    assert got is None or got.tobytes() == telling_tile(plan, plan.after, rank).tobytes()
    assert not any((call.startswith("I") and "_" in call) or call.startswith("Ia") for call in Tally.calls)
every = comm.gather(calls)
if rank == 0:
    assert every is not None
    print(json.dumps({"plans": count, "ran": ran, "calls": sum(every, Counter())}))
