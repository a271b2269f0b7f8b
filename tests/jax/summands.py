"""Runs plans of partial arrays, many in one program, and holds tiles and collectives against the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from jax.sharding import AxisType

import redistrib as rd
from redistrib.explain.profiling.inspect import inspect
from redistrib.plans.reference import run, scatter
from redistrib.plans.steps import AllGather, AllPermute, AllReduce, AllToAll, Exchange, ReduceExchange, ReduceScatter
from tests.plans.sums import digits, whole_of

KINDS = {
    AllGather: "all-gather",
    AllToAll: "all-to-all",
    AllPermute: "collective-permute",
    Exchange: "collective-permute",
    ReduceExchange: "collective-permute",
    AllReduce: "all-reduce",
}


def collective_of(step: object) -> str | None:
    if isinstance(step, ReduceScatter):
        native = step.implementation == "native" and step.before.reduction == "sum"
        return "reduce-scatter" if native else "all-to-all"
    return KINDS.get(type(step))


def expected(plans: Sequence[rd.Plan]) -> Counter[str]:
    """The collectives that the plans ask for."""
    counts: Counter[str] = Counter()
    for plan in plans:
        for step in plan.steps:
            kind = collective_of(step)
            if kind is not None:
                counts[kind] += step.collectives
    return +counts


def integral(plan: rd.Plan) -> rd.Plan:
    """The plan, of integers, and in rounds."""
    steps = tuple(
        replace(step, implementation="rounds") if isinstance(step, Exchange | ReduceExchange) else step
        for step in plan.steps
    )
    return replace(plan, dtype="int32", itemsize=4, accumulate=None, steps=steps)


def mesh_of(plan: rd.Plan, order: Sequence[int] | None = None, kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    """A JAX mesh for a plan, of the first devices in some order."""
    devices = np.array(jax.devices())[list(order or range(plan.devices))]
    names = plan.source_mesh.names
    return jax.sharding.Mesh(devices.reshape(plan.source_mesh.shape), names, axis_types=(kind,) * len(names))


def check(plans: Sequence[rd.Plan], schedule: str | None = None) -> None:
    """Every tile is what the reference makes of the same, and the compiled program has the plans' collectives."""
    mesh = mesh_of(plans[0])
    moves = [rd.to_jax(plan, mesh, stacked=True, schedule=schedule) for plan in plans]
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
        assert np.array_equal(total.astype(np.int32), whole_of(stack, plan.before).astype(np.int32)), repr(plan)
    found = inspect(compiled)
    received = 4 * sum(sum(plan.received) for plan in plans)
    if schedule == "sequential":  # rounds and all-to-alls go in parts, of which none is padded
        assert found.received_bytes <= received
        return
    assert found.received_bytes == received
    kinds: Counter[str] = Counter()
    for collective in found.collectives:  # XLA makes one all-reduce of several over the same groups
        kinds[collective.kind] += collective.times * (len(collective.operands) if "reduce" in collective.kind else 1)
    assert kinds == expected(plans)
