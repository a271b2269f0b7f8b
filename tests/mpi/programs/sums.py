"""Plans of summands through every transport: results, counted bytes, and the same bits in every transport.

Prints how often each kind of step ran in each transport, and the MPI calls seen.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from counting import Counting, Tally, received
from mpi4py import MPI

from redistrib.api import synthesize
from redistrib.backends.mpi import to_mpi
from redistrib.backends.mpi.arrays import dtype_of
from redistrib.lang.mesh import Mesh
from redistrib.plans import reference
from redistrib.plans.plan import Plan
from redistrib.testing import all_partial_types
from tests.plans.hand_partial import PARTIAL
from tests.plans.sums import digits, whole_of

MESHES = {4: ["x=4", "x=2,y=2"], 6: ["x=2,y=3"], 8: ["x=2,y=2,z=2"]}
DTYPES = ["int64", "int64", "int8", "uint16", "float64", "float32", "bfloat16", "float16", "complex64"]

comm = Counting(MPI.COMM_WORLD)
rank = comm.rank


def drawn(count: int) -> Iterator[Plan]:
    draw = random.Random(f"{comm.size}")
    types = {
        (text, rank): list(all_partial_types(Mesh.of(text), (comm.size,) * rank))
        for text in MESHES[comm.size]
        for rank in (0, 1, 2)
    }
    while count:
        text, rank = draw.choice(MESHES[comm.size]), draw.choice([0, 1, 2, 2])
        source, target = (draw.choice(types[text, rank]) for _ in range(2))
        kind = draw.choice(["sum", "sum", "max", "min"])
        source, target = (replace(end, reduction=kind) if end.partial else end for end in (source, target))
        dtype = draw.choice([name for name in DTYPES if kind == "sum" or "complex" not in name])
        if source.partial or target.partial:
            count -= 1
            yield synthesize(
                source, target, text, dtype=dtype, cost_model=draw.choice(["exact", "tpu"]),
                order=draw.choice(["any", "fixed"]),
            )  # fmt: skip
    for make in PARTIAL.values():
        plan = make()
        if plan.devices == comm.size:
            for dtype in ("int64", "float32", "bfloat16"):
                wide = plan.accumulate if dtype != "bfloat16" else "float32"
                yield replace(plan, dtype=dtype, itemsize=dtype_of(dtype).itemsize, accumulate=wide)


def sources(plan: Plan) -> Iterator[tuple[list[np.ndarray], np.ndarray | None]]:
    """Tiles of all ranks and the array they stand for: exact ones, and any numbers without that array."""
    before, dtype = plan.before, dtype_of(plan.dtype)
    stack = digits(before)
    if before.reduction in ("max", "min") or dtype.kind not in "iu":
        stack = np.random.default_rng(1).integers(0, 16, stack.shape)
    whole = whole_of(stack, before).astype(dtype)
    yield reference.scatter(stack.astype(dtype) if before.summands > 1 else whole, before), whole
    noise = np.random.default_rng(2).normal(0, 9, stack.shape)
    noise = noise.astype(dtype)
    yield reference.scatter(noise if before.summands > 1 else noise[0], before), None


texts = comm.bcast([plan.to_json() for plan in drawn(int(sys.argv[1]))] if rank == 0 else None)
ran: Counter[str] = Counter()
calls: Counter[str] = Counter()
for number, text in enumerate(texts):
    plan = Plan.from_json(text)
    for tiles, whole in sources(plan):
        want = reference.run(plan, tiles)[rank]
        kept = tiles[rank].copy()
        for how in ("shared", "packed", "datatypes", None):
            where = f"plan {number} {plan.source} -> {plan.target} {plan.dtype} {plan.order}, {how}, rank {rank}"
            where += f" {[s.kind for s in plan.steps]}"
            with to_mpi(plan, comm, transport=how) as execute:
                Tally.clear()
                result = execute(tiles[rank])
                assert (result.dtype, result.shape) == (want.dtype, want.shape), where
                got = received(comm)
                assert got == execute.received_bytes, f"{where}: {got} bytes for {execute.received_bytes}"
                assert Tally.sent == execute.sent_bytes, where
                ragged = all(getattr(step, "implementation", "") != "rounds" for step in plan.steps)
                if ragged or not any(step.shares.mixed for step in plan.steps if hasattr(step, "shares")):
                    assert got == plan.received[rank] * plan.itemsize, f"{where}: {got} bytes"
                calls.update(Tally.calls)
                if whole is not None and plan.after.summands > 1:
                    total = reference.assemble(comm.allgather(result), plan.after)
                    assert total.tobytes() == whole.tobytes(), where
                elif whole is not None:
                    start = plan.after.start[rank]
                    box = tuple(slice(s, s + n) for s, n in zip(start, plan.after.tile, strict=True))
                    assert result.tobytes() == whole[box].tobytes(), where
                adds_in_order = plan.order == "fixed" or how in ("shared", "datatypes")
                if whole is not None or (adds_in_order and all(s.kind != "all_reduce" for s in plan.steps)):
                    assert result.tobytes() == want.tobytes(), where
                again = np.zeros_like(want)
                execute(tiles[rank], out=again)
                assert again.tobytes() == result.tobytes(), where
                ran.update(
                    f"{stage.step.kind} {name}"
                    for stage, name in zip(execute._staged.stages, execute.transports, strict=True)
                )
        assert tiles[rank].tobytes() == kept.tobytes(), "the source was written"
calls = sum(comm.allgather(calls), Counter())
if rank == 0:
    print(json.dumps({"ran": ran, "calls": calls, "plans": len(texts)}))
