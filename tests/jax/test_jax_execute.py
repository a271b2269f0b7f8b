"""Plans on real arrays: every element exact, the compiled program exactly the collectives of the plan."""

import importlib.util
import random
from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import AxisType, NamedSharding
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec as P

from redistrib.backends.jax import xla_cpu
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.execute import to_jax
from redistrib.backends.jax.lowering import local_program
from redistrib.backends.jax.measure.inspect import inspect
from redistrib.errors import ChoiceError, ForeignMeshError, MemoryLimitError, SourceArrayError, TracedError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DimType, DistType
from redistrib.plans.plan import Plan
from redistrib.plans.reference import run_step, scatter
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Shares
from redistrib.plans.verify import verify
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.synthesize import synthesize
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.topology import Topology

HLO_KIND = {
    "allgather": "all-gather",
    "alltoall": "all-to-all",
    "allpermute": "collective-permute",
    "exchange": "collective-permute",
}


def jax_mesh(mesh, kind=AxisType.Auto):
    devices = np.array(jax.devices()[: mesh.size]).reshape(mesh.shape)
    return JaxMesh(devices, mesh.names, axis_types=(kind,) * len(mesh.names))


def plan_of(source, target, mesh, *steps, bound=None):
    """A plan made by hand; steps are made from the placements of source and target, and verified."""
    mesh, source, target = Mesh.of(mesh), DistType.of(source), DistType.of(target)
    before, after = placement_of(source, mesh), placement_of(target, mesh)
    made = tuple(step(before, after) for step in steps)
    plan = Plan(source, mesh, target, mesh, "float32", 4, made, "by hand", "none", 0, "elements")
    return verify(plan, bound)


def collectives_of(plan):
    counts = Counter()
    for step in plan.steps:
        if step.kind in HLO_KIND:
            counts[HLO_KIND[step.kind]] += step.collectives
    return +counts


def compiled(f):
    argument = jax.ShapeDtypeStruct(f.plan.shape, f.plan.dtype, sharding=f.source_sharding)
    return jax.jit(f).lower(argument).compile()


def check(plan, schedule="overlap"):
    """Run on numbered elements; compare every shard with a plain slice, and the HLO with the plan."""
    report = check_values(plan, schedule)
    itemsize = np.dtype(plan.dtype).itemsize
    assert report.received_bytes == itemsize * sum(plan.received)
    largest = report.largest_array({"f32"})
    tile = max(plan.source.local_size, plan.target.local_size)
    assert largest is None or largest.bytes <= itemsize * max(tile, 1)
    if schedule == "overlap":
        assert report.kinds == collectives_of(plan)
    return report


def check_values(plan, schedule):
    """Run on numbered elements and compare every shard with a plain slice; what the compiled program does."""
    f = to_jax(plan, jax_mesh(plan.source_mesh), schedule=schedule)
    whole = np.arange(np.prod(plan.shape), dtype=plan.dtype).reshape(plan.shape)
    moved = f(jax.device_put(whole, f.source_sharding))
    assert moved.sharding.is_equivalent_to(f.target_sharding, moved.ndim)
    for shard in moved.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), whole[shard.index])
    return inspect(compiled(f))


# ------------------------------------------------------------------------------------ steps by hand


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
    monkeypatch.setattr(xla_cpu, "ONE_PROCESS", replace(xla_cpu.ONE_PROCESS, piecewise=False))
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
    monkeypatch.setattr(xla_cpu, "ONE_PROCESS", replace(xla_cpu.ONE_PROCESS, chunk=4 * plan.height // 4))
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
    context = LoweringContext(("x",), (devices,), tuple(range(devices)), quirks=xla_cpu.Quirks(piecewise=True))
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
    return Exchange(before, after, Shares(src, dst, start, size, turns))


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


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_the_tpu_compiler_takes_padded_rounds(monkeypatch):
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    devices = topologies.get_topology_desc("v4:2x2x3", platform="tpu").devices
    plan = plan_of("[384{x}1536, 256{y}1536]", "[256{y}1536, 384{x}1536]", "x=4,y=6", direct)
    *_, steps = in_rounds(Problem.plain(plan.before, plan.after))
    padded = verify(replace(plan, steps=tuple(steps)))
    move = to_jax(padded, JaxMesh(np.array(devices).reshape(4, 6), ("x", "y"), axis_types=(AxisType.Auto,) * 2))
    report = inspect(compiled(move))
    assert report.kinds == {"collective-permute": 4}
    assert report.received_bytes == 4 * sum(padded.received)


# -------------------------------------------------------------------------------------- synthesised


def random_type(rng, mesh, shape):
    axes = [[] for _ in shape]
    for name in rng.sample(mesh.names, len(mesh.names)):
        k = rng.randrange(len(shape) + 1)
        if k < len(shape):
            axes[k].append(name)
    sizes = {axis.name: axis.size for axis in mesh.axes}
    return DistType(
        tuple(
            DimType(n // int(np.prod([sizes[a] for a in cut], dtype=int)), tuple(cut), n)
            for n, cut in zip(shape, axes, strict=True)
        )
    )


@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize("mesh", ["x=2,y=4", "x=2,y=2,z=2", "x=3,y=4", "x=4,y=6", "x=2,y=3,z=4"])
def test_synthesised_plans(mesh, algorithm):
    rng = random.Random(f"{mesh} {algorithm}")
    mesh = Mesh.of(mesh)
    for _ in range(6):
        shape = (mesh.size,) * rng.randint(1, 3)
        source, target = random_type(rng, mesh, shape), random_type(rng, mesh, shape)
        check(synthesize(source, mesh, target, mesh, algorithm=algorithm))


@pytest.mark.parametrize("mesh", ["x=2,y=4", "x=2,y=2,z=2", "x=2,y=3,z=4"])
def test_scratch_of_synthesised_plans(mesh):
    """By default two tiles; sequentially half a tile beside the tiles between steps."""
    rng = random.Random(mesh)
    mesh = Mesh.of(mesh)
    for _ in range(5):
        shape = (48 if mesh.size == 24 else 64,) * 3
        source, target = random_type(rng, mesh, shape), random_type(rng, mesh, shape)
        plan = synthesize(source, mesh, target, mesh)
        tile = 4 * max(source.local_size, target.local_size)
        assert check(plan).scratch <= 2 * tile + 65536
        between = 4 * max([step.after.tile_size for step in plan.steps[:-1] if step.kind != "dynslice"], default=0)
        part = max(0.48 * tile - between, tile / 8)
        assert check(plan, "sequential").scratch <= between + 1.1 * part + 4096


def test_under_a_limit_tiles_between_steps_take_from_what_a_dense_step_may_use():
    mesh = Mesh.of("x=2,y=4")
    plan = synthesize(
        DistType.of("[2{x,y}16, 16, 4]"), mesh, DistType.of("[16, 4{y}16, 2{x}4]"), mesh, algorithm="paper"
    )
    assert [step.kind for step in plan.steps] == ["alltoall", "alltoall"]
    tile = plan.before.tile_size * plan.itemsize
    for tiles, kind in ((5, "all-to-all"), (4.5, "collective-permute")):  # source, target, one between, two to pack
        limited = replace(plan, memory_limit=int(tiles * tile))
        assert set(inspect(compiled(to_jax(limited, jax_mesh(mesh)))).kinds) == {kind}
    tight = replace(plan, memory_limit=2 * tile - 1)
    with pytest.raises(MemoryLimitError, match=f"source and target alone take {2 * tile:,} bytes per device") as caught:
        compiled(to_jax(tight, jax_mesh(mesh)))
    assert (caught.value.limit, caught.value.least) == (2 * tile - 1, 2 * tile)
    check(tight, "sequential")


def test_a_device_order_that_is_not_the_identity():
    """Positions of the JAX mesh are device numbers only up to the plan's own order."""
    order = (3, 1, 0, 2)
    mesh = Mesh(Mesh.of("x=4").axes, order)
    plan = synthesize(DistType.of("[2{x}8, 8]"), mesh, DistType.of("[8, 2{x}8]"), mesh)
    check(plan)
    spread = synthesize(DistType.of("[2{x}8]"), mesh, DistType.of("[8]"), mesh)
    check(spread)


def test_an_array_of_no_elements():
    plan = synthesize(DistType.of("[0{x}0, 8]"), Mesh.of("x=4"), DistType.of("[0, 2{x}8]"), Mesh.of("x=4"))
    f = to_jax(plan, jax_mesh(plan.source_mesh))
    assert f(jax.device_put(np.zeros((0, 8), np.float32), f.source_sharding)).shape == (0, 8)


def test_a_slice_and_a_permute_of_no_elements():
    mesh = Mesh.of("x=2,y=2")
    source, target = DistType.of("[0, 4{x}8]"), DistType.of("[0, 2{y,x}8]")
    before, after = placement_of(source, mesh), placement_of(target, mesh)
    cut = Placement(after.shape, after.grid, after.index[[1, 0, 3, 2]])
    steps = (DynSlice(before, cut), AllPermute(cut, after, [[0, 1], [1, 0], [2, 3], [3, 2]]))
    f = to_jax(replace(synthesize(source, mesh, target, mesh), steps=steps), jax_mesh(mesh))
    assert f(jax.device_put(np.zeros((0, 8), np.float32), f.source_sharding)).shape == (0, 8)


# ------------------------------------------------------------------------------------------- dtypes

DTYPES = [
    *("bool", "int2", "uint2", "int4", "uint4", "int8", "uint16", "int32", "float16", "bfloat16", "float32"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu"),
    *("float4_e2m1fn", "complex64"),
]
BELOW_A_BYTE = {"bool": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}
MOVES = [
    ("[2{x}16, 16]", "[16, 2{x}16]", "x=8"),
    ("[2{x}16, 16]", "[16, 16]", "x=8"),  # one collective and no copy
    ("[16, 2{x}16]", "[16, 16]", "x=8"),
    ("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6"),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_of_every_dtype(dtype):
    """Random bit patterns, signalling NaNs among them: what is moved is compared as bytes."""
    kind = jnp.dtype(dtype)
    rng = np.random.default_rng(0)
    for source, target, axes in MOVES:
        mesh = Mesh.of(axes)
        plan = synthesize(DistType.of(source), mesh, DistType.of(target), mesh, dtype=dtype)
        bits = BELOW_A_BYTE.get(dtype, 8)
        raw = rng.integers(0, 2**bits, size=(*plan.shape, kind.itemsize), dtype=np.uint8)
        if dtype in ("int2", "int4"):
            whole = (raw[..., 0].astype(np.int8) - 2 ** (bits - 1)).astype(kind)
        else:
            whole = raw.view(kind).reshape(plan.shape)
        f = to_jax(plan, jax_mesh(mesh))
        moved = f(jax.device_put(whole, f.source_sharding))
        assert moved.dtype == kind
        for shard in moved.addressable_shards:
            assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(whole[shard.index]).tobytes()


def test_random_keys_are_moved():
    mesh = Mesh.of("x=8")
    keys = jax.random.split(jax.random.key(7), (16, 16))
    before, after = DistType.of("[2{x}16, 16]"), DistType.of("[16, 2{x}16]")
    steps = synthesize(before, mesh, after, mesh).steps
    plan = Plan(before, mesh, after, mesh, str(keys.dtype), 8, steps, "by hand", "none", 0, "elements")
    f = to_jax(plan, jax_mesh(mesh))
    moved = f(jax.device_put(keys, f.source_sharding))
    assert moved.dtype == keys.dtype
    assert moved.sharding.is_equivalent_to(f.target_sharding, 2)
    np.testing.assert_array_equal(jax.random.key_data(moved), jax.random.key_data(keys))


# --------------------------------------------------------------------------- under transformations


def pair(kind=AxisType.Auto, source="[2{x}8, 8]", target="[8, 4{y}8]", mesh="x=4,y=2"):
    mesh = Mesh.of(mesh)
    there = synthesize(DistType.of(source), mesh, DistType.of(target), mesh)
    back = synthesize(DistType.of(target), mesh, DistType.of(source), mesh)
    return there, back, jax_mesh(mesh, kind)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("given", ["plan", "function", "nothing"])
@pytest.mark.parametrize(
    ("source", "target"),
    [("[2{x}8, 8]", "[8, 4{y}8]"), ("[8, 8]", "[2{x}8, 8]"), ("[1{x,y}8, 8]", "[8, 8]"), ("[4{y}8, 8]", "[2{x}8, 8]")],
)
def test_derivatives_are_those_of_the_identity(kind, given, source, target):
    """Replicated sources and targets included, where summing over copies would count too often."""
    there, back, mesh = pair(kind, source, target)
    reverse = {"plan": back, "function": lambda: back, "nothing": None}[given]
    f = to_jax(there, mesh, reverse=reverse)
    weights = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(weights + 1, f.source_sharding)
    w = jax.device_put(weights, f.target_sharding)

    def loss(x):
        return jnp.sum(jnp.sin(f(x)) * w)

    expected = jax.grad(lambda x: jnp.sum(jnp.sin(x) * weights))(weights + 1)
    gradient = jax.jit(jax.grad(loss))(x)
    np.testing.assert_allclose(np.asarray(gradient), expected, rtol=1e-6)
    tangent = jax.device_put(weights - 3, f.source_sharding)
    out, moved = jax.jit(lambda x, t: jax.jvp(f, (x,), (t,)))(x, tangent)
    np.testing.assert_array_equal(np.asarray(out), weights + 1)
    np.testing.assert_array_equal(np.asarray(moved), weights - 3)
    second = jax.jit(lambda x, t: jax.jvp(jax.grad(loss), (x,), (t,))[1])(x, tangent)  # forward over reverse
    np.testing.assert_allclose(np.asarray(second), -np.sin(weights + 1) * weights * (weights - 3), rtol=1e-5)


def test_the_cotangent_travels_by_the_reverse_plan():
    there, back, mesh = pair(source="[2{x}8, 8]", target="[8, 2{x}8]")
    f = to_jax(there, mesh, reverse=back)
    x = jax.device_put(np.ones((8, 8), np.float32), f.source_sharding)
    program = jax.jit(lambda x, ct: jax.vjp(f, x)[1](ct)).lower(x, f(x)).compile()
    assert inspect(program).kinds == collectives_of(back)


def test_integers_pass_through_a_differentiated_function():
    there, _, mesh = pair()
    ints = synthesize(there.source, there.source_mesh, there.target, there.target_mesh, dtype="int32")
    f = to_jax(ints, mesh)
    table = jax.device_put(np.arange(64, dtype=np.int32).reshape(8, 8), f.source_sharding)
    assert jax.grad(lambda s: jnp.sum(s * f(table)))(2.0) == 63 * 32


def test_under_jit_auto_axes_are_constrained_to_the_source():
    there, _, mesh = pair()
    f = to_jax(there, mesh)
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    elsewhere = jax.device_put(whole, NamedSharding(mesh, P(None, "x")))
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: f(x) + 1)(elsewhere)), whole + 1)


def test_a_donated_source_is_given_up():
    there, _, mesh = pair(source="[2{x}8, 8]", target="[8, 2{x}8]")  # tiles of equal size, so the buffer can be used
    f = to_jax(there, mesh, donate=True)
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(whole, f.source_sharding)
    np.testing.assert_array_equal(np.asarray(f(x)), whole)
    assert x.is_deleted()
    kept = jax.device_put(whole, f.source_sharding)
    to_jax(there, mesh)(kept)
    assert not kept.is_deleted()


# ------------------------------------------------------------------------------------------- errors


def message(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_arrays_that_are_not_the_source_are_refused():
    there, _, mesh = pair()
    f = to_jax(there, mesh)
    ones = np.ones((8, 8), np.float32)
    assert message(SourceArrayError, lambda: f(ones)) == (
        "a plan runs on a jax.Array that lives on its mesh, got ndarray; "
        "place the value first: jax.device_put(value, f.source_sharding)"
    )
    assert message(SourceArrayError, lambda: f(jnp.ones((8, 4)))) == (
        "the plan starts from an array of shape (8, 8), got (8, 4); plan for this shape"
    )
    assert message(SourceArrayError, lambda: f(jnp.ones((8, 8), jnp.int32))) == (
        "the plan starts from an array of dtype float32, got int32; plan for this dtype, or convert the array"
    )
    wrong = jax.device_put(ones, NamedSharding(mesh, P("y")))
    assert message(SourceArrayError, lambda: f(wrong)) == (
        "the plan starts from an array of sharding P('x', None) on mesh {x:4, y:2}, got "
        "P('y',) on mesh {x:4, y:2}; place it with jax.device_put(array, f.source_sharding), "
        "or plan from where it is"
    )


def test_another_device_order_is_refused():
    there, _, mesh = pair()
    f = to_jax(there, mesh)
    turned = JaxMesh(mesh.devices[::-1], mesh.axis_names, axis_types=mesh.axis_types)
    elsewhere = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(turned, P("x")))
    assert "the plan starts from an array of sharding" in message(SourceArrayError, lambda: f(elsewhere))


def test_explicit_axes_under_jit_refuse_another_sharding():
    there, _, mesh = pair(AxisType.Explicit)
    f = to_jax(there, mesh)
    elsewhere = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P(None, "x")))
    assert message(SourceArrayError, lambda: jax.jit(f)(elsewhere)) == (
        "the plan starts from an array of sharding P('x', None), got P(None, 'x'); "
        "move it with jax.sharding.reshard, or plan from where it is"
    )


def test_other_meshes_are_refused():
    there, _, _ = pair()
    small = JaxMesh(np.array(jax.devices()[:4]), ("x",))
    assert message(ForeignMeshError, lambda: to_jax(there, small)) == (
        "the plan is for mesh {x:4, y:2} with 8 devices, the JAX mesh is {x:4} with 4; "
        "pass a mesh of the same axes in the same order, or plan for this one"
    )
    a, b = Mesh.of("x=4"), Mesh.of("r=2,c=2")
    across = synthesize(DistType.of("[2{x}8]"), a, DistType.of("[4{r}8]"), b)
    assert message(ForeignMeshError, lambda: to_jax(across, small)) == (
        "the plan goes from mesh {x:4} to mesh {r:2, c:2}; a function under one JAX mesh needs source and target "
        "types over the same mesh and device order, use redistrib.reshard to move between meshes"
    )


def test_inside_a_shard_map_there_is_no_global_array():
    there, _, mesh = pair()
    f = to_jax(there, mesh)

    def call():
        tile = jax.ShapeDtypeStruct((32, 16), jnp.float32)
        jax.eval_shape(jax.shard_map(f, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")), tile)

    assert message(TracedError, call) == (
        "inside a shard_map over 'x', 'y' an array is already a tile; call the plan's function outside, "
        "on the global array"
    )


def test_unknown_schedules_are_refused():
    there, _, mesh = pair()
    assert message(ChoiceError, lambda: to_jax(there, mesh, schedule="fast")) == (
        "there is no schedule 'fast'; choose 'overlap' or 'sequential'"
    )
