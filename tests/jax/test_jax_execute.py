"""Plans on real arrays: every element exact, the compiled program exactly the collectives of the plan."""

from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import AxisType
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec as P

from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.execute import to_jax
from redistrib.backends.jax.lowering import local_program
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.xla_cpu import quirks
from redistrib.explain.profiling.inspect import inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.reference import run_step, scatter
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange
from redistrib.plans.verify import verify
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.topology import Topology
from tests.jax.running import check, check_values, compiled, jax_mesh, plan_of
from tests.plans.columns import table_of


def test_slice_sends_nothing():
    report = check(plan_of("[8, 4{x}8]", "[2{y}8, 4{x}8]", "x=2,y=4", DynSlice))
    assert report.collectives == ()


def test_gather_over_one_axis():
    plan = plan_of("[4{x}8, 2{y}8]", "[4{x}8, 8]", "x=2,y=4", lambda b, a: AllGather(b, a, [range(4), range(4, 8)]))
    (gather,) = check(plan).collectives
    assert gather.groups == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_gather_over_two_dimensions_at_once():
    check(plan_of("[4{x}8, 2{y}8]", "[8, 8]", "x=2,y=4", lambda b, a: AllGather(b, a, [range(8)])))


def test_gather_over_groups_that_follow_no_axis():
    # [2{x}24] -> [6{?}24] over 12 devices: runs of three neighbours, which no axis of {x:12} describes
    mesh = Mesh.of("x=12")
    before = placement_of(DistType.of("[2{x}24]"), mesh)
    groups = np.arange(12).reshape(4, 3)
    middle = Placement((24,), (4,), before.index // 3)
    back = DynSlice(middle, before)
    plan = plan_of("[2{x}24]", "[2{x}24]", mesh, lambda b, a: AllGather(b, middle, groups), lambda b, a: back, bound=6)
    f = to_jax(plan, jax_mesh(mesh))
    (gather,) = inspect(compiled(f)).collectives
    assert gather.groups == tuple(tuple(row) for row in groups.tolist())
    whole = np.arange(24, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(f(jax.device_put(whole, f.source_sharding))), whole)


@pytest.mark.parametrize(("source", "target"), [("[1{x}8, 8]", "[8, 1{x}8]"), ("[8, 1{x}8]", "[1{x}8, 8]")])
def test_all_to_all(source, target):
    check(plan_of(source, target, "x=8", lambda b, a: AllToAll(b, a, [range(8)])))


def test_all_to_all_over_two_dimensions_at_once():
    check(plan_of("[4{x}8, 2{y}8, 8]", "[8, 8, 1{y,x}8]", "x=2,y=4", lambda b, a: AllToAll(b, a, [range(8)])))


def test_all_to_all_whose_shares_come_in_another_order():
    check(plan_of("[4{x}8, 2{y}8, 8]", "[8, 8, 1{x,y}8]", "x=2,y=4", lambda b, a: AllToAll(b, a, [range(8)])))


def test_all_to_all_with_repeated_shares():
    # the target is replicated over x: members that differ in x alone are sent the same boxes
    check(plan_of("[4{x}8, 2{y}8, 8]", "[8, 8, 2{y}8]", "x=2,y=4", lambda b, a: AllToAll(b, a, [range(8)])))


def test_all_to_all_whose_order_differs_between_groups():
    mesh = Mesh.of("x=2,y=4")
    before = placement_of(DistType.of("[2{y}8, 4{x}8]"), mesh)
    index = np.stack([np.zeros(8, int), before.index[:, 1] * 4 + np.array([0, 1, 2, 3, 3, 1, 0, 2])], axis=1)
    middle = Placement((8, 8), (1, 8), index)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7]]
    there = AllToAll(before, middle, groups)
    order = np.array([[0, 1, 2, 3], [6, 5, 7, 4]])  # members by the chunk they hold in the middle
    back = AllToAll(middle, before, order)
    check(plan_of("[2{y}8, 4{x}8]", "[2{y}8, 4{x}8]", mesh, lambda b, a: there, lambda b, a: back))


@pytest.mark.parametrize("target", ["[8, 8, 1{y,x}8]", "[8, 8, 1{x,y}8]", "[8, 8, 2{y}8]"])
@pytest.mark.parametrize("most", [32, 0])
def test_packed_forms(monkeypatch, target, most):
    """What TPUs and large groups get: one packed buffer, in order, or put in order by slices or by one take."""
    monkeypatch.setattr(LoweringContext, "MOST_PIECES", most)
    monkeypatch.setattr(quirks, "ONE_PROCESS", replace(quirks.ONE_PROCESS, piecewise=False))
    plan = plan_of("[4{x}8, 2{y}8, 8]", target, "x=2,y=4", lambda b, a: AllToAll(b, a, [range(8)]))
    f = to_jax(plan, jax_mesh(plan.source_mesh))
    whole = np.arange(512, dtype=np.float32).reshape(8, 8, 8)
    moved = f(jax.device_put(whole, f.source_sharding))
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])
    assert inspect(compiled(f)).kinds == {"all-to-all": 1}


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("[8{x}64, 64]", "[64, 8{x}64]", AllToAll),
        ("[64, 8{x}64]", "[64, 64]", AllGather),
        ("[16{y}64, 32{z}64, 64]", "[64, 64, 8{z,y}64]", AllToAll),
        ("[16{y}64, 32{z}64, 64]", "[64, 64, 16{y}64]", AllToAll),
        ("[64, 16{y}64, 32{z}64]", "[64, 64, 64]", AllGather),
    ],
)
def test_large_tiles_go_slice_by_slice(monkeypatch, source, target, kind):
    """One collective in a loop: the same bytes, a fraction of the scratch."""
    mesh = "x=8" if "x" in source else "y=4,z=2"
    plan = plan_of(source, target, mesh, lambda b, a: kind(b, a, [range(8)]))
    whole = check(plan)
    # a quarter of the tile: buffers for sender, receiver
    monkeypatch.setattr(quirks, "ONE_PROCESS", replace(quirks.ONE_PROCESS, chunk=4 * plan.height // 4))
    f = to_jax(plan, jax_mesh(plan.source_mesh))
    numbers = np.arange(np.prod(plan.shape), dtype=np.float32).reshape(plan.shape)
    for shard in f(jax.device_put(numbers, f.source_sharding)).addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), numbers[shard.index])
    report = inspect(compiled(f))
    (collective,) = report.collectives
    assert collective.times == 8
    assert report.received_bytes == whole.received_bytes
    assert report.scratch < whole.scratch / 2


def swap_pairs(before, after):
    """Whole tiles from the first holder to each device that lacks its tile."""
    holder = {tuple(row): d for d, row in reversed(list(enumerate(before.index.tolist())))}
    pairs = [
        (holder[tuple(row)], d) for d, row in enumerate(after.index.tolist()) if tuple(before.index[d]) != tuple(row)
    ]
    return AllPermute(before, after, pairs)


def test_permute_moves_whole_tiles():
    (permute,) = check(plan_of("[2{x,y}16, 16]", "[2{y,x}16, 16]", "x=2,y=4", swap_pairs)).collectives
    assert len(permute.moves) == 6


def test_a_lone_permute_is_not_cut():
    report = check(plan_of("[2{x,y}16, 16]", "[2{y,x}16, 16]", "x=2,y=4", swap_pairs), "sequential")
    assert report.kinds == {"collective-permute": 1}
    assert report.scratch == 0


def run_alone(step, devices):
    """One step on numbered tiles, through the per-device program; the tiles afterwards."""
    mesh = JaxMesh(np.array(jax.devices()[:devices]), ("x",), axis_types=(AxisType.Auto,))
    context = LoweringContext(("x",), (devices,), tuple(range(devices)), quirks=Quirks(piecewise=True))
    program = local_program([step], context)
    run = jax.jit(jax.shard_map(program, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
    whole = np.arange(np.prod(step.before.shape), dtype=np.float32).reshape(step.before.shape)
    tiles = np.stack(scatter(whole, step.before))
    result = np.asarray(run(tiles.reshape(-1, *tiles.shape[2:])))
    return result.reshape(devices, *step.after.tile), np.stack(run_step(step, list(tiles)))


def test_permute_where_a_sender_keeps_its_own_tile():
    """Device 0 sends and receives nothing: what it holds must survive the zeros that it is handed."""
    step = AllPermute(Placement((6,), (3,), [[0], [1], [2]]), Placement((6,), (3,), [[0], [0], [2]]), [[0, 1]])
    got, expected = run_alone(step, 3)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got, [[0, 1], [0, 1], [4, 5]])


def direct(before, after, padded=False):
    """Every device takes each box it lacks from the holder that has sent least; rounds are filled greedily.

    Only boxes of one shape share a round, unless they are to be padded.
    """
    rows, sent, taken = [], Counter(), set()
    for dst in range(before.devices):
        low, high = after.start[dst], after.start[dst] + after.tile
        own = before.start[dst]
        for tile in sorted({tuple(row) for row in before.start.tolist()}):
            start = np.maximum(low, tile)
            size = np.minimum(high, np.array(tile) + before.tile) - start
            if (size <= 0).any() or tuple(own) == tile:
                continue
            holders = [d for d in range(before.devices) if tuple(before.start[d]) == tile]
            src = min(holders, key=lambda d: sent[d])
            sent[src] += 1
            size = tuple(size.tolist())
            turn = 0
            while {("sends", turn, src), ("takes", turn, dst)} & taken or (
                not padded and any(entry[0] == "shape" and entry[1] == turn and entry[2] != size for entry in taken)
            ):
                turn += 1
            taken |= {("sends", turn, src), ("takes", turn, dst), ("shape", turn, size)}
            rows.append((src, dst, start, size, turn))
    src, dst, start, size, turns = zip(*rows, strict=True)
    return Exchange(before, after, table_of(src, dst, start, size, turns))


EXCHANGES = [
    ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6"),  # 4 against 6 tiles: shares of several sizes
    ("[6{x}12]", "[4{y}12]", "x=2,y=3"),
    ("[6{x}12, 12]", "[4{y}12, 6{x}12]", "x=2,y=3"),
    ("[1{x}8, 8]", "[8, 1{x}8]", "x=8"),
    ("[4{x}8, 2{y}8]", "[8, 8]", "x=2,y=4"),
    ("[8, 8]", "[4{x}8, 2{y}8]", "x=2,y=4"),
    ("[4{x}8, 8]", "[2{y}8, 8]", "x=2,y=4"),
    ("[2{x,y}24, 12{z}24, 24]", "[24, 3{z,x}24, 8{y}24]", "x=4,y=3,z=2"),
]


@pytest.mark.parametrize(("source", "target", "mesh"), EXCHANGES)
@pytest.mark.parametrize("schedule", ["overlap", "sequential"])
def test_direct_exchange(source, target, mesh, schedule):
    def step(before, after):
        return DynSlice(before, after) if before.grid == (1, 1) else direct(before, after)

    check(plan_of(source, target, mesh, step), schedule)


@pytest.mark.parametrize("schedule", ["overlap", "sequential"])
def test_a_device_that_waits_for_its_tile(schedule):
    """Between two exchanges it holds nothing; one on its host hands it the tile."""
    ends = Mesh.of("x=2,y=2,z=2"), DistType.of("[1024, 512{x}1024]"), DistType.of("[256{z,x}1024, 1024]")
    plan = synthesize(ends[1], ends[0], ends[2], ends[0], model="tpu", topology=Topology.of("abbccddd"))
    assert [step.after.nowhere.nonzero()[0].tolist() for step in plan.steps] == [[7], []]
    check(plan, schedule)


@pytest.mark.parametrize(("source", "target", "mesh"), EXCHANGES[:3])
def test_shares_of_several_shapes_in_one_permute(source, target, mesh):
    """As many elements travel as the largest share of the round has, and the plan says so."""
    plan = plan_of(source, target, mesh, lambda before, after: direct(before, after, padded=True))
    (step,) = plan.steps
    assert step.shares.mixed
    assert sum(plan.received) > sum(plan.lower_bound)
    report = check(plan)
    assert report.scratch <= 2 * 4 * max(plan.before.tile_size, plan.after.tile_size) + (64 << 10)
    in_sequence = check_values(plan, "sequential")
    assert in_sequence.received_bytes == 4 * sum(plan.lower_bound)  # every shape on its own: nothing is padded


SHARED_OUT = [
    *EXCHANGES[:3],
    ("[8{z}24, 6{x,y}24]", "[6{x,y}24, 8{z}24]", "x=2,y=2,z=3"),
    ("[4{z}12, 6{x}12, 5]", "[6{x}12, 4{z}12, 5]", "x=2,y=2,z=3"),
]


@pytest.mark.parametrize(("source", "target", "mesh"), SHARED_OUT)
def test_every_way_to_share_out_rounds(source, target, mesh):
    plan = plan_of(source, target, mesh, direct)
    for steps in in_rounds(Problem.plain(plan.before, plan.after))[1:]:
        found = check(verify(replace(plan, steps=tuple(steps))))
        assert found.kinds == {"collective-permute": steps[0].shares.rounds}
    assert len(in_rounds(Problem.plain(plan.before, plan.after))) > 1


@pytest.mark.usefixtures("libtpu")
def test_the_tpu_compiler_takes_padded_rounds():
    devices = topologies.get_topology_desc("v4:2x2x3", platform="tpu").devices
    plan = plan_of("[384{x}1536, 256{y}1536]", "[256{y}1536, 384{x}1536]", "x=4,y=6", direct)
    *_, steps = in_rounds(Problem.plain(plan.before, plan.after))
    padded = verify(replace(plan, steps=tuple(steps)))
    move = to_jax(padded, JaxMesh(np.array(devices).reshape(4, 6), ("x", "y"), axis_types=(AxisType.Auto,) * 2))
    report = inspect(compiled(move))
    assert report.kinds == {"collective-permute": 4}
    assert report.received_bytes == 4 * sum(padded.received)
