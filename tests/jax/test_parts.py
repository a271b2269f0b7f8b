"""Plans in parts in JAX: right, compiled to the collectives that they say, within the memory that they predict."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pytest

import redistrib as rd
from redistrib.backends.jax import parts
from redistrib.cost.latency import Latency, LatencyBandwidth
from redistrib.plans.parts import divides, untouched, waves
from redistrib.plans.plan import Plan
from redistrib.plans.verify import verify
from redistrib.theory.topology import Topology

HLO = {"all-gather": "allgather", "all-to-all": "alltoall", "collective-permute": "allpermute"}
CALLS = {kind: Latency(1e-7) for kind in ("allgather", "alltoall", "allpermute")}


def compiled(plan: Plan) -> tuple[jax.Array, jax.stages.Compiled]:
    """The result, checked on every device, and what made it."""
    mesh = jax.make_mesh(plan.source_mesh.shape, plan.source_mesh.names)
    function = rd.to_jax(plan, mesh)
    array = np.arange(np.prod(plan.shape), dtype=plan.dtype).reshape(plan.shape)
    x = jax.device_put(array, function.source_sharding)
    y = function(x)
    assert y.sharding == function.target_sharding
    for shard in y.addressable_shards:
        np.testing.assert_array_equal(shard.data, array[shard.index])
    return y, jax.jit(function).lower(x).compile()


def collectives(done: jax.stages.Compiled) -> Counter[str]:
    text = done.as_text()
    return Counter(HLO[name] for name in re.findall(r" = \S+ (all-gather|all-to-all|collective-permute)\(", text))


@pytest.mark.parametrize(
    ("source", "target", "algorithm"),
    [
        ("[4{x,y}32, 128, 16]", "[32, 128, 16]", "best"),
        ("[8{x}32, 128, 16]", "[16{y}32, 128, 16]", "paper"),
        ("[8{x}32, 64, 16]", "[4{y,x}32, 64, 16]", "best"),
    ],
)
def test_parts_bring_what_the_whole_does_by_as_many_collectives_each(source, target, algorithm):
    plan = rd.synthesize(source, target, {"y": 2, "x": 4}, algorithm=algorithm, cost_model="paper")
    _, whole = compiled(plan)
    for along, number in zip(untouched(plan.steps), (4, 2), strict=False):
        assert divides(plan.steps, number, along)
        cut = verify(replace(plan, parts=number, along=along))
        _, done = compiled(cut)
        assert collectives(done) == {kind: number * count for kind, count in collectives(whole).items()}
        memory = done.memory_analysis()
        used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
        assert used <= cut.peak_bytes + 64  # scalars besides


def test_what_is_chosen_where_phases_overlap_runs_between_device_sets(monkeypatch):
    monkeypatch.setattr(Topology, "of_devices", lambda devices: Topology.of(device.id // 4 for device in devices))
    rd.clear_caches()
    profile = LatencyBandwidth("overlaps", CALLS, 4e9, 1e12, slow_bandwidth=1e9, overlaps=True)
    devices = jax.devices()
    trainers, samplers = (jax.sharding.Mesh(np.array(some), ("x",)) for some in (devices[:4], devices[4:8]))
    source, target = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        for mesh, axes in ((trainers, ("x",)), (samplers, ()))
    )
    array = np.arange(512 * 256, dtype=np.float32).reshape(512, 256)
    plan = rd.synthesize(source, target, shape=array.shape, cost_model=profile)
    assert plan.parts > 1
    ran: list[int] = []
    monkeypatch.setattr(parts, "waves", lambda count, steps: ran.append(count) or waves(count, steps))
    moved = rd.reshard(jax.device_put(array, source), target, cost_model=profile)
    assert moved.sharding == target
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(shard.data, array)
    assert set(ran) == {plan.parts}  # as it is traced
    rd.clear_caches()


def test_in_sequence_a_plan_in_parts_is_carried_out_whole():
    plan = rd.synthesize("[4{x}32, 64]", "[32, 64]", {"x": 8}, cost_model="exact")
    cut = replace(plan, parts=4, along=1)
    mesh = jax.make_mesh((8,), ("x",))
    function = rd.to_jax(cut, mesh, schedule="sequential")
    x = jax.device_put(np.arange(32 * 64, dtype=np.float32).reshape(32, 64), function.source_sharding)
    assert collectives(jax.jit(function).lower(x).compile()) == collectives(
        jax.jit(rd.to_jax(plan, mesh, schedule="sequential")).lower(x).compile()
    )
    np.testing.assert_array_equal(function(x), x)
