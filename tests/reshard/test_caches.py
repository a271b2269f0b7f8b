"""What `reshard` remembers: plans, programs and trees, each within its limit, and programs that leaves share."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.buckets.compiled import CompiledBucket
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.xla_cpu import quirks
from redistrib.cost.exact import ExactCost
from redistrib.launches import buckets
from redistrib.resharding import planning
from tests.messages import exactly
from tests.reshard.arrays import COLUMNS, EIGHT, GRID, ROWS, matrix

from .cases import same_shards


@pytest.mark.usefixtures("fresh", "by_collectives")
def test_second_call_plans_and_compiles_nothing() -> None:
    tree = {f"w{k}": matrix() for k in range(5)} | {"odd": matrix((8, 64), dtype=np.int32)}
    rd.reshard(tree, COLUMNS)
    first = rd.cache_info()
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    rd.reshard(tree, COLUMNS)
    assert not [event for event in compiled if "compile" in event]
    jax.jit(lambda x: x + 17)(1.0)
    assert [event for event in compiled if "compile" in event]  # so compilations are counted
    second = rd.cache_info()
    for name in ("trees", "routes", "plans", "programs"):
        assert second[name].misses == first[name].misses
    assert second["trees"].hits == first["trees"].hits + 1
    assert first["plans"].size == 2
    assert first["programs"].size == 1  # leaves of two kinds, in one launch
    rd.reshard([tree["odd"], *[tree[f"w{k}"] for k in range(5)]], COLUMNS)  # another tree, with the same launch
    third = rd.cache_info()
    assert third["trees"].misses == second["trees"].misses + 1
    for name in ("routes", "plans", "programs"):
        assert third[name].misses == second[name].misses
        assert third[name].hits > second[name].hits
    rd.clear_caches()
    assert all(info.size == info.hits == info.misses == 0 for info in rd.cache_info().values())


def test_leaves_of_one_kind_share_a_program_and_small_ones_its_collectives() -> None:
    plan = rd.reshard_plan([matrix() for _ in range(40)], COLUMNS)
    assert len(plan.batches) == 1
    program: Any = plan.batches[0].program
    assert [entry.stacked for entry in program.entries] == [True]
    assert program.hlo().count(" all-to-all(") == 1
    large = rd.reshard_plan([matrix((512, 1024)) for _ in range(3)], COLUMNS)
    assert [entry.stacked for entry in large.batches[0].program.entries] == [False]


def test_small_tiles_that_travel_whole_share_collectives_across_kinds() -> None:
    tree = [matrix(shape) for shape in [*[(64,), (8, 8), (16, 4)] * 3, (512, 1024)]]
    plan = rd.reshard_plan(tree, NamedSharding(EIGHT, P()))
    (batch,) = plan.batches
    program: Any = batch.program
    assert {entry.plan.shape: entry.stacked for entry in program.entries} == {
        (64,): True,
        (8, 8): True,
        (16, 4): True,
        (512, 1024): False,
    }
    assert program.hlo().count(" all-gather(") == 2
    for moved, leaf in zip(rd.reshard(tree, NamedSharding(EIGHT, P())), tree, strict=True):
        np.testing.assert_array_equal(moved, leaf)


@pytest.mark.usefixtures("fresh")
def test_leaves_of_several_kinds_travel_in_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [(16, 32), (64, 256), (16, 32), (8, 8), (64, 256)]
    tree = [matrix(shape, dtype=dtype) for shape, dtype in zip(shapes, [*[np.float32] * 4, np.int16], strict=True)]
    plan = rd.reshard_plan(tree, COLUMNS)
    (batch,) = plan.batches
    assert [[item.index for item in group] for group, _ in batch.parts] == [[1], [4], [0, 2], [3]]
    assert plan.received_bytes == plan.lower_bound_bytes == sum(8 * x.nbytes // 4 * 7 // 8 for x in tree)
    assert str(plan).count("alltoall") == 4
    for moved, array in zip(rd.reshard(tree, COLUMNS), tree, strict=True):
        assert same_shards(moved, jax.device_put(np.asarray(array), COLUMNS))
    # A kind that fills launches has them to itself, and one program for all; what is left shares the rest.
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 3 * 64 * 256)
    rd.clear_caches()
    many = [matrix((64, 256)) for _ in range(4)] + [matrix((16, 32)), matrix((8, 8))]
    plan = rd.reshard_plan(many, COLUMNS)
    assert sorted(tuple(item.index for item in batch.items) for batch in plan.batches) == [(0, 1), (2, 3), (4, 5)]
    assert len({id(batch.program) for batch in plan.batches}) == 2
    for moved, array in zip(rd.reshard(many, COLUMNS), many, strict=True):
        assert same_shards(moved, jax.device_put(np.asarray(array), COLUMNS))


def test_leaves_over_other_devices_travel_apart() -> None:
    half = NamedSharding(Mesh(np.array(jax.devices()[4:8]), ("x",)), P("x"))
    across = NamedSharding(Mesh(np.array(jax.devices()[4:8]), ("x",)), P(None, "x"))
    tree = {"all": matrix(), "half": matrix(sharding=half)}
    plan = rd.reshard_plan(tree, {"all": COLUMNS, "half": across})
    assert [batch.items[0].path for batch in plan.batches] == ["all", "half"]
    moved = rd.reshard(tree, {"all": COLUMNS, "half": across})
    assert same_shards(moved["half"], jax.device_put(np.asarray(tree["half"]), across))


@pytest.mark.usefixtures("fresh")
def test_what_is_remembered_of_a_tree_holds_none_of_its_arrays() -> None:
    here = {id(array) for array in jax.live_arrays()}
    tree = [matrix(), matrix((8, 8))]
    moved = rd.reshard(tree, COLUMNS)
    again = rd.reshard([array + 1 for array in tree], COLUMNS)
    assert np.array_equal(again[0], np.asarray(tree[0]) + 1)  # not those of the first call
    assert rd.cache_info()["trees"].hits == 1
    del tree, moved, again
    gc.collect()
    left = [array.shape for array in jax.live_arrays() if id(array) not in here]
    assert all(shape == () for shape in left), left  # numbers that programs are given


@pytest.mark.usefixtures("fresh")
def test_no_plan_is_remembered_for_another_tree() -> None:
    """Paths, shapes, dtypes, placements, donation, limits and cost models all tell trees apart."""
    tree = {"a": matrix(), "b": matrix((8, 8))}
    ways: list[Callable[[], Any]] = [
        lambda: rd.reshard_plan(tree, COLUMNS),
        lambda: rd.reshard_plan({"c": tree["a"], "b": tree["b"]}, COLUMNS),
        lambda: rd.reshard_plan({"a": tree["a"], "b": matrix((8, 16))}, COLUMNS),
        lambda: rd.reshard_plan({"a": tree["a"], "b": matrix((8, 8), dtype=np.int32)}, COLUMNS),
        lambda: rd.reshard_plan({"a": tree["a"], "b": matrix((8, 8), sharding=COLUMNS)}, COLUMNS),
        lambda: rd.reshard_plan(tree, {"a": COLUMNS, "b": ROWS}),
        lambda: rd.reshard_plan(tree, COLUMNS, donate=True),
        lambda: rd.reshard_plan({"a": tree["a"], "b": tree["b"], "d": tree["a"]}, COLUMNS, donate=True),
        lambda: rd.reshard_plan({"a": tree["a"], "b": tree["b"], "d": matrix()}, COLUMNS, donate=True),
        lambda: rd.reshard_plan(tree, COLUMNS, memory_limit=10**6),
        lambda: rd.reshard_plan(tree, COLUMNS, machine="exact"),
    ]
    found = []
    for expected, way in enumerate(ways, start=1):
        found.append(way())
        assert (rd.cache_info()["trees"].misses, rd.cache_info()["trees"].hits) == (expected, 0)
    for way in ways:
        way()
    assert rd.cache_info()["trees"].hits == len(ways)
    for way, plan in zip(ways, found, strict=True):  # nor a program or a plan of another leaf
        rd.clear_caches()
        alone = way()
        assert str(plan) == str(alone)
        assert loads_of(plan) == loads_of(alone)


def loads_of(plan: Any) -> list[Any]:
    """All that the programs of a tree's plan do."""
    return [
        (entry.plan.to_json(), entry.dtype, entry.count, entry.stacked, entry.reused)
        for batch in plan.batches
        for entry in batch.program.entries
    ]


def test_copies_that_differ_in_where_they_start_are_compiled_once() -> None:
    """XLA:CPU makes every other loop anew, and takes longer for each than for all else."""
    (batch,) = rd.reshard_plan([matrix((512, 1024)) for _ in range(3)], NamedSharding(EIGHT, P(None, "x"))).batches
    assert isinstance(batch.program, CompiledBucket)
    text = batch.program.hlo()
    assert text.count("calls=") == 3 * 8
    loops = re.findall(r"^%fused_computation[^{]*[{]$(.*?)^[}]", text, re.MULTILINE | re.DOTALL)
    nameless = {re.sub(r"metadata=[{][^}]*[}]|%[\w.-]+|stack_frame_id=\d+", "", loop) for loop in loops}
    assert len(loops) == 3 * 8
    assert len(nameless) <= 2  # those of share 0 may say so in another way


def with_options(**options: Any) -> Quirks:
    """The quirks of one process, with these options against the widening of bfloat16."""
    assert quirks.ONE_PROCESS.widening is not None
    return replace(quirks.ONE_PROCESS, widening=replace(quirks.ONE_PROCESS.widening, options=options))


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("known", [True, False])
def test_every_bfloat16_arrives_as_it_was(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """As it is where the compiler leaves it so; as integers where it would widen it, and a NaN lose its payload."""
    if not known:
        monkeypatch.setattr(quirks, "ONE_PROCESS", with_options())  # as if XLA:CPU had another name for what widens
    every = np.resize(np.arange(2**16, dtype=np.uint16), (512, 1024)).view(jnp.bfloat16)
    whole = NamedSharding(EIGHT, P())
    for source, target in ((ROWS, COLUMNS), (ROWS, whole), (COLUMNS, whole), (COLUMNS, NamedSharding(GRID, P("b")))):
        tree = [jax.device_put(every, source)] * 2
        plan = rd.reshard_plan(tree, target)
        for batch in plan.batches:
            assert isinstance(batch.program, CompiledBucket)
            if (source, target) != (ROWS, whole):  # nothing but an all-gather, which not all compilers widen
                assert ("bitcast-convert" in batch.program.hlo()) != known
        for moved in rd.reshard(tree, target):
            assert moved.dtype == jnp.bfloat16
            assert moved.sharding == target
            assert np.array_equal(np.asarray(moved).view(np.uint16), every.view(np.uint16))


ODD = np.concatenate([np.arange(0x80), np.arange(0x7F80, 0x8080), np.arange(0xFF80, 0x10000)]).astype(np.uint16)


@pytest.mark.usefixtures("fresh")
def test_copies_without_emitters_of_fusions_leave_bfloat16_as_it_was() -> None:
    """XLA:CPU widens them without these emitters, as tests have it, and NaNs lost their payload."""
    devices = np.array(jax.devices()[:24])
    source = NamedSharding(Mesh(devices[::-1].reshape(6, 2, 2), ("x", "y", "z")), P(None, ("x", "y"), "z"))
    target = NamedSharding(Mesh(devices.reshape(2, 12), ("a", "b")), P("b", "a"))
    every = np.resize(ODD, (24, 12, 4)).view(jnp.bfloat16)
    for shard in rd.reshard(jax.device_put(every, source), target).addressable_shards:
        assert np.array_equal(np.asarray(shard.data).view(np.uint16), every[shard.index].view(np.uint16))


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("width", [2, 700])
def test_a_program_that_chooses_between_bfloat16_leaves_each_as_it_was(width: int) -> None:
    """Unoptimized, XLA:CPU widens what it chooses from: numbers below the least normal one became 0."""
    devices = np.array(jax.devices()[:24])
    source = NamedSharding(Mesh(devices.reshape(6, 2, 2), ("x", "y", "z")), P("z", "y"))
    target = NamedSharding(Mesh(devices.reshape(8, 3), ("a", "b")), P(None, "b"))
    every = np.resize(ODD, (10, 12, width)).view(jnp.bfloat16)
    (batch,) = rd.reshard_plan(jax.device_put(every, source), target).batches
    assert isinstance(batch.program, CompiledBucket)
    assert "bitcast-convert" in batch.program.hlo()
    for shard in rd.reshard(jax.device_put(every, source), target).addressable_shards:
        assert np.array_equal(np.asarray(shard.data).view(np.uint16), every[shard.index].view(np.uint16))


@pytest.mark.usefixtures("fresh", "by_collectives")
def test_a_compiler_that_does_not_know_the_options_is_asked_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quirks, "ONE_PROCESS", with_options(xla_cpu_no_such_option=1))
    np.testing.assert_array_equal(rd.reshard(matrix(dtype=jnp.bfloat16), COLUMNS), matrix(dtype=jnp.bfloat16))
    monkeypatch.setattr(quirks, "ONE_PROCESS", with_options(xla_backend_optimization_level="x"))
    with pytest.raises(
        jax.errors.JaxRuntimeError,
        match=exactly(
            "INVALID_ARGUMENT: While setting option xla_backend_optimization_level, 'x' is not a valid int32 value."
        ),
    ):
        rd.reshard(matrix((8, 8), dtype=jnp.bfloat16), COLUMNS)


def test_caches_are_bounded() -> None:
    from redistrib.cache import Cache

    cache: Cache[int] = Cache(2)
    assert [cache.get(key, lambda key=key: key * 10) for key in (1, 2, 1, 3, 2)] == [10, 20, 10, 30, 20]
    assert (cache.info.hits, cache.info.misses, cache.info.size) == (1, 4, 2)


def test_the_limits_of_the_caches_are_those_of_the_documentation() -> None:
    page = (Path(rd.__file__).parents[1] / "docs" / "leaves.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\d+) \|$", page, re.MULTILINE)
    stated = {name: int(most) for name, most in rows}
    assert stated == {name: info.limit for name, info in rd.cache_info().items()}


@pytest.mark.usefixtures("fresh", "by_collectives")
def test_caches_keep_within_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """More shapes than a cache keeps: those longest unused are planned and compiled anew, and still right."""
    for cache in (planning.TREES, planning.PLANS, planning.PROGRAMS):
        monkeypatch.setattr(cache, "limit", 2)
    for rows in (16, 24, 32, 16):
        assert np.array_equal(rd.reshard(matrix((rows, 8)), COLUMNS), matrix((rows, 8)))
    info = rd.cache_info()
    for name in ("trees", "plans", "programs"):
        assert (info[name].size, info[name].misses) == (2, 4)


def test_cost_models() -> None:
    for model in ("exact", "tpu", "gpu", "cpu", ExactCost(), rd.LatencyBandwidth.from_json(_profile())):
        assert np.array_equal(rd.reshard(matrix(), COLUMNS, machine=model), matrix())


def _profile() -> str:
    from redistrib.cost.presets import PRESETS

    return PRESETS["cpu"].to_json()


WIDE = ["int64", "uint64", "float64", "complex128"]


@pytest.mark.parametrize("via", ["collectives", "copies"])
def test_arrays_of_64_bits_move_as_they_are_while_the_mode_is_off(via: Any) -> None:
    """As by `device_put`; host values in their tree become what they are outside."""
    host = {"narrow": np.arange(64.0), "number": 2.5}
    with jax.enable_x64(True):
        tree = {kind: jax.device_put(np.arange(128).reshape(16, 8).astype(kind), ROWS) for kind in WIDE}
    narrow = jax.device_put(np.arange(128, dtype=np.float32).reshape(16, 8), ROWS)
    there = NamedSharding(EIGHT, P(None, "x"))
    targets = dict.fromkeys([*tree, "f32"], there) | dict.fromkeys(host, NamedSharding(EIGHT, P()))
    for on in (False, True, False):
        with jax.enable_x64(on):
            moved = rd.reshard({**tree, "f32": narrow, **host}, targets, via=via)
            expected = jax.device_put({**tree, "f32": narrow, **host}, targets)
            for name, array in moved.items():
                assert (array.dtype, array.aval.weak_type) == (expected[name].dtype, expected[name].aval.weak_type)
                assert np.array_equal(array, expected[name])
    plan = rd.reshard_plan(tree, there)
    assert plan.received_bytes == plan.lower_bound_bytes == 7 * 16 * 8 * (8 + 8 + 8 + 16) // 8


CONFIGS: dict[str, Callable[[], Any]] = {
    "64 bits": lambda: jax.enable_x64(True),
    "strict promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "matmul precision": lambda: jax.default_matmul_precision("highest"),
    "random keys": lambda: jax.default_prng_impl("rbg"),
    "random numbers": lambda: jax.threefry_partitionable(False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_another_configuration_between_two_calls_changes_nothing(name: str) -> None:
    """In what was made before it: a function is traced and planned once."""
    mesh, values = NamedSharding(GRID, P("a")).mesh, np.arange(96, dtype=np.float32).reshape(8, 12)
    weights = np.arange(12, dtype=np.float32)

    def function(x: Any) -> Any:
        total, rows = jax.lax.scan(lambda s, row: (s + row.sum() * 2.0, row * 3), 0.0, x * weights + np.float32(0.5))
        return total, rows @ jnp.ones((12, 4)), jnp.argmax(x, 1), jax.random.uniform(jax.random.PRNGKey(3), (8,))

    array = jax.device_put(values, NamedSharding(mesh, P("a")))
    plan = rd.synthesize("[4{x}8, 12]", "[8, 6{x}12]", {"x": 2}, dtype="float32")
    line = Mesh(np.array(jax.devices()[:2]), ("x",))
    calls = {
        "distribute": rd.distribute(function, (values,), mesh, schedule=[rd.along("a", {"x": 0})]),
        "to_jax": partial(rd.to_jax(plan, line), jax.device_put(values, NamedSharding(line, P("x")))),
        "reshard": partial(rd.reshard, array, NamedSharding(mesh, P(None, "a")), via="collectives"),
        "through": partial(
            rd.reshard, array, NamedSharding(mesh, P(None, "a")), through=lambda x: x * weights + np.float32(0.5)
        ),
    }
    calls["distribute"] = partial(calls["distribute"], values)
    for kind, call in calls.items():
        results = []
        for context in (CONFIGS[name], nullcontext, CONFIGS[name]):
            with context():
                results.append([np.asarray(array) for array in jax.tree.leaves(call())])
        for other in (results[0], results[2]):
            for one, same in zip(results[1], other, strict=True):
                assert one.dtype == same.dtype and np.array_equal(one, same), kind
