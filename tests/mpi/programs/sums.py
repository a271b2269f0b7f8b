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
from redistrib.backends.mpi.reductions import SharedSum, TypedSum
from redistrib.errors import MemoryLimitError
from redistrib.lang.mesh import Mesh
from redistrib.plans import reference
from redistrib.plans.plan import Plan
from redistrib.testing import all_partial_types
from tests.plans.hand_partial import PARTIAL, between, pulled_sums
from tests.plans.sums import digits, whole_of

MESHES = {4: ["x=4", "x=2,y=2"], 6: ["x=2,y=3"], 8: ["x=2,y=2,z=2"]}
HOWS = ("shared", "packed", "datatypes")
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
                source, target, text, dtype=dtype, machine=draw.choice(["exact", "tpu"]),
                order=draw.choice(["any", "fixed"]),
            )  # fmt: skip
    for dtype in ("int64", "bfloat16"):  # tiles that are not to be cut
        yield synthesize("[7] sum{x}", "[7]", {"x": comm.size}, dtype=dtype, machine="exact")
    if comm.size == 4:  # groups of 4 and of 2 that name the ranks in one order
        yield synthesize("[4, 4] sum{x,y}", "[2{y}4, 4]", "x=2,y=2", dtype="int64", machine="exact")
    n = comm.size  # as many summands as there are: their order shows in the last bits
    for dtype, order in (("float32", "any"), ("bfloat16", "fixed")):
        wide = "float32" if dtype == "bfloat16" else None
        for source, target in ((f"[{4 * n}, 5] sum{{x}}", f"[4{{x}}{4 * n}, 5]"), (f"[{n}, 6] sum{{x}}", f"[{n}, 6]")):
            yield synthesize(source, target, {"x": n}, dtype=dtype, order=order, machine="exact")
            pulled = between(source, target, f"x={n}", pulled_sums)
            yield replace(pulled, dtype=dtype, itemsize=dtype_of(dtype).itemsize, accumulate=wide, order=order)
    for kind, dtype in (("max", "float32"), ("min", "bfloat16")):  # MPI has no such maxima as NumPy's
        for target in (f"[4{{x}}{4 * n}, 5]", f"[{4 * n}, 5]"):
            yield synthesize(f"[{4 * n}, 5] {kind}{{x}}", target, {"x": n}, dtype=dtype, machine="exact")
    yield synthesize("[7] min{x}", "[7]", {"x": n}, dtype="float64", machine="exact")
    for k, make in enumerate(PARTIAL.values()):
        plan = make()
        if plan.devices == comm.size:
            dtype = ("bfloat16", "float32", "int64")[k % 3]
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
    if before.reduction in ("max", "min") and dtype.kind not in "iub":
        odd = np.random.default_rng(3).choice([np.nan, -np.inf, np.inf, 0.0, -0.0, 1.0], stack.shape).astype(dtype)
        yield reference.scatter(odd, before), None


texts = comm.bcast([plan.to_json() for plan in drawn(int(sys.argv[1]))] if rank == 0 else None)
ran: Counter[str] = Counter()
calls: Counter[str] = Counter()
for number, text in enumerate(texts):
    plan = Plan.from_json(text)
    kinds = [step.kind for step in plan.steps]
    mixed = any(step.shares.mixed and step.implementation == "rounds" for step in plan.steps if hasattr(step, "shares"))
    cases = [(tiles, whole, reference.run(plan, tiles)[rank]) for tiles, whole in sources(plan)]
    for how in HOWS:
        where = f"plan {number} {plan.source} -> {plan.target} {plan.dtype} {plan.order}, {how}, {kinds}, rank {rank}"
        with to_mpi(plan, comm, transport=how) as execute:
            for tiles, whole, want in cases:
                kept = tiles[rank].copy()
                Tally.clear()
                result = execute(tiles[rank])
                assert (result.dtype, result.shape) == (want.dtype, want.shape), where
                got = received(comm)
                assert got == execute.received_bytes, f"{where}: {got} bytes for {execute.received_bytes}"
                assert Tally.sent == execute.sent_bytes, where
                assert mixed or got == plan.received[rank] * plan.itemsize, f"{where}: {got} bytes"
                calls.update(Tally.calls)
                if whole is not None and plan.after.summands > 1:
                    total = reference.assemble(comm.allgather(result), plan.after)
                    assert total.tobytes() == whole.tobytes(), where
                elif whole is not None:
                    box = plan.after.box(rank)
                    part = whole[tuple(slice(s, s + n) for s, n in zip(box.start, box.size, strict=True))]
                    assert result.tobytes() == part.tobytes(), where
                by_mpi = plan.accumulate is None and (how == "packed" or "all_reduce" in kinds)
                ordered = plan.order == "fixed" or not by_mpi
                if whole is not None or ordered:
                    assert result.tobytes() == want.tobytes(), where
                again = np.zeros_like(want)
                execute(tiles[rank], out=again)
                assert again.tobytes() == result.tobytes(), where
                assert tiles[rank].tobytes() == kept.tobytes(), f"{where}: the source was written"
            for runner in execute._move.runners:
                figures = np.array([runner.scratch + runner.beside, type(runner).most_bytes(runner.stage)])
                MPI.COMM_WORLD.Allreduce(
                    MPI.IN_PLACE, figures, MPI.MAX
                )  # a transport is chosen by the most of all ranks
                assert figures[0] <= figures[1], f"{where}: {type(runner).__name__} takes {figures}"
                if isinstance(runner, TypedSum | SharedSum):
                    assert figures[0] == figures[1], f"{where}: {type(runner).__name__} takes {figures}"
            stages = zip(execute._staged.stages, execute.transports, strict=True)
            ran.update(f"{stage.step.kind} {name}" for stage, name in stages)

# No room but for the ends and one share: each is added as it comes.
rows = 16 * comm.size
plan = synthesize(f"[{rows}, 8] sum{{x}}", f"[16{{x}}{rows}, 8]", {"x": comm.size}, dtype="float32")
ends, share = (plan.before.tile_size + plan.after.tile_size) * 4, plan.after.tile_size * 4
with to_mpi(plan, comm, memory_limit=ends + share) as execute:
    assert (execute.transports, execute.scratch_bytes) == (["datatypes"], share)
    tiles, whole = next(sources(plan))
    assert execute(tiles[rank]).tobytes() == np.ascontiguousarray(reference.run(plan, tiles)[rank]).tobytes()
try:
    to_mpi(plan, comm, memory_limit=ends + share - 1)
    raise AssertionError("accepted")
except MemoryLimitError:
    pass
calls = sum(comm.allgather(calls), Counter())
if rank == 0:
    print(json.dumps({"ran": ran, "calls": calls, "plans": len(texts)}))
