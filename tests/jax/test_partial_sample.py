"""A sample of every ordered pair of types with and without partial axes, executed: all summands, and all collectives.

Plans on one mesh are compiled together, some dozens to a program, which takes arrays with all summands in front.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pytest

import redistrib as rd
from redistrib.backends.jax.measure.compare import mesh_for
from redistrib.backends.jax.measure.inspect import inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.reference import run, scatter
from redistrib.plans.steps import AllGather, AllPermute, AllReduce, AllToAll, Exchange, ReduceExchange, ReduceScatter
from redistrib.synthesis.synthesize import synthesize
from redistrib.testing import all_partial_types
from tests.plans.sums import digits, whole_of

MESHES = ("x=4", "x=2,y=2", "x=2,y=3", "x=2,y=2,z=2")
KINDS = {
    AllGather: "all-gather",
    AllToAll: "all-to-all",
    AllPermute: "collective-permute",
    Exchange: "collective-permute",
    ReduceExchange: "collective-permute",
    AllReduce: "all-reduce",
}
TOGETHER = 50


def every_pair(mesh: Mesh) -> list[tuple[DistType, DistType]]:
    """Every ordered pair of types of N elements along each of at most two dimensions, some of them partial."""
    result = []
    for rank in range(3):
        types = list(all_partial_types(mesh, (mesh.size,) * rank))
        result += [(a, b) for a in types for b in types if a.partial or b.partial]
    return result


def drawn(mesh: str, count: int, seed: int) -> list[rd.Plan]:
    """Plans of pairs drawn without repetition, of sums mostly."""
    rng, over = random.Random(f"{mesh} {seed}"), Mesh.of(mesh)
    plans = []
    for ends in rng.sample(every_pair(over), count):
        kind = rng.choice(["sum", "sum", "sum", "max", "min"])
        source, target = (replace(end, reduction=kind) if end.partial else end for end in ends)
        order = rng.choice(["any", "fixed"])
        model = rng.choice(["exact", "exact", "tpu", "cpu"])
        plans.append(synthesize(source, over, target, over, dtype="int32", model=model, order=order))
    return plans


def collective_of(step: object) -> str | None:
    if isinstance(step, ReduceScatter):
        native = step.implementation == "native" and step.before.reduction == "sum"
        return "reduce-scatter" if native else "all-to-all"
    return KINDS.get(type(step))


def expected(plans: list[rd.Plan]) -> Counter[str]:
    """The collectives that the plans ask for."""
    counts: Counter[str] = Counter()
    for plan in plans:
        for step in plan.steps:
            kind = collective_of(step)
            if kind is not None:
                counts[kind] += step.collectives
    return +counts


def check(plans: list[rd.Plan]) -> None:
    """Every tile is what the reference makes of the same, and the compiled program has the plans' collectives."""
    mesh = mesh_for(plans[0], jax.devices()[: plans[0].devices])
    moves = [rd.to_jax(plan, mesh, stacked=True) for plan in plans]
    stacks, arrays = [], []
    for plan, move in zip(plans, moves, strict=True):
        stack = digits(plan.before)
        if plan.before.reduction in ("max", "min"):
            stack = np.random.default_rng(0).integers(-99, 99, stack.shape)
        stacks.append(stack.astype(np.int32))
        given = stacks[-1] if plan.source.partial else stacks[-1][0]
        arrays.append(jax.device_put(given, move.source_sharding))
    program = jax.jit(
        lambda *xs: tuple(move(x) for move, x in zip(moves, xs, strict=True)),
        out_shardings=tuple(move.target_sharding for move in moves),
    )
    compiled = program.lower(*arrays).compile()
    for plan, stack, result in zip(plans, stacks, compiled(*arrays), strict=True):
        wanted = run(plan, scatter(stack if plan.source.partial else stack[0], plan.before))
        shards = [shard.data for shard in sorted(result.addressable_shards, key=lambda shard: shard.device.id)]
        for shard, tile in zip(shards, wanted, strict=True):
            assert np.array_equal(np.asarray(shard).reshape(tile.shape), tile), repr(plan)
        total = np.asarray(result)
        if plan.target.partial:
            total = whole_of(total, plan.after)
        assert np.array_equal(total, whole_of(stack, plan.before)), repr(plan)
    found = inspect(compiled)
    kinds: Counter[str] = Counter()
    for collective in found.collectives:  # XLA makes one all-reduce of several over the same groups
        kinds[collective.kind] += collective.times * (len(collective.operands) if "reduce" in collective.kind else 1)
    assert kinds == expected(plans)
    assert found.received_bytes == 4 * sum(sum(plan.received) for plan in plans)


def test_some_pairs() -> None:
    for mesh in MESHES:
        check(drawn(mesh, 10, 0))


THOUSAND = {"x=4": len(every_pair(Mesh.of("x=4"))), "x=2,y=2": 250, "x=2,y=3": 250}
THOUSAND["x=2,y=2,z=2"] = 1000 - sum(THOUSAND.values())


@pytest.mark.long
@pytest.mark.parametrize("mesh", MESHES)
def test_a_thousand_pairs(mesh: str) -> None:
    plans = drawn(mesh, THOUSAND[mesh], 1)
    for k in range(0, len(plans), TOGETHER):
        check(plans[k : k + TOGETHER])
