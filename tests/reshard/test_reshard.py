"""`reshard` outside jit: where arrays go, what is shared, what is refused."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.sharding_impls import GSPMDSharding  # what XLA returns where it chose itself
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import xla_cpu
from redistrib.backends.jax.buckets.compiled import CompiledBucket
from redistrib.cost.exact import ExactCost
from redistrib.errors import LeafError, TreeMismatchError
from redistrib.packing import buckets
from redistrib.resharding import eager, planning

from .cases import bits, jax_mesh, same_shards

EIGHT = jax_mesh((("x", 8),), tuple(range(8)))
GRID = jax_mesh((("a", 2), ("b", 4)), tuple(range(8)))
TURNED = jax_mesh((("p", 2), ("q", 2), ("r", 2)), (3, 1, 4, 0, 5, 2, 7, 6))
ROWS = NamedSharding(EIGHT, P("x"))
COLUMNS = NamedSharding(GRID, P(None, "b"))


def matrix(shape: tuple[int, ...] = (16, 32), sharding: Any = ROWS, dtype: Any = np.float32) -> jax.Array:
    return jax.device_put(np.arange(np.prod(shape)).reshape(shape).astype(dtype), sharding)


# ---------------------------------------------------------------------------------------- trees


def test_one_sharding_for_all_a_prefix_and_a_whole_tree() -> None:
    tree = {"a": matrix(), "b": [matrix(), matrix((8, 8))]}
    one = rd.reshard(tree, COLUMNS)
    assert all(leaf.sharding == COLUMNS for leaf in jax.tree.leaves(one))
    prefix = rd.reshard(tree, {"a": COLUMNS, "b": ROWS})
    assert [leaf.sharding for leaf in jax.tree.leaves(prefix)] == [COLUMNS, ROWS, ROWS]
    whole = rd.reshard(tree, {"a": ROWS, "b": [COLUMNS, ROWS]})
    assert [leaf.sharding for leaf in jax.tree.leaves(whole)] == [ROWS, COLUMNS, ROWS]
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(tree), strict=True))


def test_none_in_the_tree_stays() -> None:
    assert rd.reshard({"a": None, "b": matrix()}, {"a": None, "b": COLUMNS})["a"] is None
    assert rd.reshard({"a": None, "b": matrix()}, COLUMNS)["a"] is None


class Pair(NamedTuple):
    """A pytree of JAX's own making."""

    first: Any
    second: Any


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    """A pytree that a user registered, with a field that is no leaf."""

    kernel: Any
    heads: Pair
    name: str = field(default="layer", metadata={"static": True})


def test_named_tuples_and_dataclasses() -> None:
    tree = Layer(matrix(), Pair(matrix((8, 8)), {"scale": matrix((32,))}), "attention")
    everywhere = NamedSharding(GRID, P())
    for shardings in (everywhere, Layer(COLUMNS, Pair(COLUMNS, everywhere), "attention")):
        moved = rd.reshard(tree, shardings)
        assert jax.tree.structure(moved) == jax.tree.structure(tree)
        assert moved.name == "attention"
        for before, after in zip(jax.tree.leaves(tree), jax.tree.leaves(moved), strict=True):
            assert np.array_equal(before, after)
        assert moved.heads.second["scale"].sharding == everywhere
    wrong = Layer(COLUMNS, Pair(COLUMNS, NamedSharding(GRID, P(None, "a"))), "attention")
    with pytest.raises(LeafError, match=r"leaf \.heads\.second\['scale'\]: the partition spec has 2 entries"):
        rd.reshard(tree, wrong)


def test_no_leaves() -> None:
    assert rd.reshard({}, ROWS) == {}


def test_partition_spec_under_set_mesh() -> None:
    with jax.set_mesh(GRID):
        moved = rd.reshard(matrix(), P("b"))
    assert moved.sharding == NamedSharding(GRID, P("b"))
    with pytest.raises(LeafError, match="names axes of no mesh"):
        rd.reshard(matrix(), P("b"))


def test_shardings_that_do_not_match() -> None:
    with pytest.raises(TreeMismatchError, match="prefix"):
        rd.reshard({"a": matrix()}, {"c": ROWS})
    with pytest.raises(LeafError, match=r"leaf \['a'\]: 'x' is no jax.sharding.Sharding"):
        rd.reshard({"a": matrix()}, {"a": "x"})


# --------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("target", [COLUMNS, NamedSharding(TURNED, P(("q", "p"), "r")), NamedSharding(TURNED, P())])
def test_never_through_the_host(target: NamedSharding) -> None:
    array = matrix()
    with jax.transfer_guard("disallow_explicit"):
        moved = rd.reshard(array, target)
    assert moved.committed
    assert moved.sharding == target
    assert same_shards(moved, jax.device_put(np.asarray(array), target))


def test_agrees_with_device_put_of_the_array_itself() -> None:
    array = matrix()
    for spec in (P("a", "b"), P("b", "a"), P(("a", "b")), P(None, "a"), P()):
        target = NamedSharding(GRID, spec)
        assert same_shards(rd.reshard(array, target), jax.device_put(array, target))


@pytest.mark.usefixtures("fresh")
def test_equal_placements_share_their_buffers() -> None:
    array = matrix()
    for target in (ROWS, NamedSharding(GRID, P(("a", "b")))):
        moved = rd.reshard(array, target)
        assert moved.sharding == target
        before = {shard.device: shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}
        assert before == {shard.device: shard.data.unsafe_buffer_pointer() for shard in moved.addressable_shards}
    assert rd.cache_info()["programs"].size == 0


def test_scalars_and_weak_types() -> None:
    weak = jax.jit(lambda: 3.0, out_shardings=NamedSharding(EIGHT, P()))()
    assert weak.weak_type
    moved = rd.reshard(weak, NamedSharding(TURNED, P()))
    assert moved.weak_type
    assert (moved + jnp.int8(1)).dtype == jnp.float32
    cut = jax.jit(lambda: jax.lax.broadcast(2, (16,)), out_shardings=ROWS)()
    assert cut.weak_type
    assert rd.reshard(cut, NamedSharding(GRID, P("a"))).weak_type


def test_nan_payloads_survive_when_small_leaves_travel_stacked() -> None:
    values = np.arange(2**16, dtype=np.uint16).view(jnp.bfloat16).reshape(64, 1024)
    tree = [jax.device_put(values, ROWS) for _ in range(3)]
    for moved in rd.reshard(tree, COLUMNS):
        assert np.array_equal(bits(moved), bits(values))


def test_the_source_may_be_without_a_mesh() -> None:
    array = jax.jit(lambda: jnp.arange(64.0).reshape(8, 8), out_shardings=ROWS)()
    alone = jax.device_put(np.arange(4.0), jax.devices()[0])
    there = rd.reshard(alone, NamedSharding(jax_mesh((("x", 1),), (0,)), P("x")))
    assert isinstance(there.sharding, NamedSharding)
    flat = GSPMDSharding(tuple(jax.devices()[:8]), ROWS._to_xla_hlo_sharding(2))
    pieces = [shard.data for shard in array.addressable_shards]
    strange = jax.make_array_from_single_device_arrays((8, 8), flat, pieces)
    assert np.array_equal(rd.reshard(strange, COLUMNS), array)


def test_targets_without_a_mesh() -> None:
    flat = GSPMDSharding(tuple(jax.devices()[:8]), NamedSharding(GRID, P("b", "a"))._to_xla_hlo_sharding(2))
    moved = rd.reshard(matrix(), flat)
    assert moved.sharding == flat
    assert np.array_equal(moved, matrix())


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_under_a_mesh_context_of_the_caller(kind: AxisType) -> None:
    source = NamedSharding(jax_mesh((("x", 8),), tuple(range(8)), kind), P("x"))
    mesh = jax_mesh((("a", 2), ("b", 4)), (1, 0, 3, 2, 5, 4, 7, 6), kind)
    with jax.set_mesh(mesh):
        moved = rd.reshard(matrix(sharding=source), NamedSharding(mesh, P("b", "a")))
    assert np.array_equal(moved, matrix())


# ----------------------------------------------------------------------- what device_put has to do


def test_host_values_and_other_devices_go_by_device_put() -> None:
    other = NamedSharding(Mesh(np.array(jax.devices()[8:16]), ("y",)), P("y"))
    tree = {"host": np.arange(8.0), "number": 2.5, "far": matrix(), "near": matrix()}
    shardings = {"host": ROWS, "number": NamedSharding(EIGHT, P()), "far": other, "near": COLUMNS}
    plan = rd.reshard_plan(tree, shardings)
    assert plan.put == ("['far']", "['host']", "['number']")
    moved = rd.reshard(tree, shardings)
    assert {name: leaf.sharding for name, leaf in moved.items()} == shardings
    assert np.array_equal(moved["far"], matrix())
    assert moved["number"].weak_type == jax.device_put(2.5, shardings["number"]).weak_type
    assert rd.reshard(np.arange(3), jax.devices()[2]).sharding == SingleDeviceSharding(jax.devices()[2])


@pytest.mark.parametrize("there", ["pinned_host", "unpinned_host"])
def test_other_kinds_of_memory_go_by_device_put(there: str) -> None:
    """There and back; within one kind, whatever it is called, a plan moves the array."""
    away = COLUMNS.with_memory_kind(there)
    assert rd.reshard_plan(matrix(), away).put == ("",)
    moved = rd.reshard(matrix(), away)
    assert moved.sharding == away
    assert moved.sharding.memory_kind == there
    back = rd.reshard(moved, COLUMNS)
    assert back.sharding == COLUMNS
    assert np.array_equal(back, matrix())
    default = COLUMNS.with_memory_kind(jax.devices()[0].default_memory().kind)
    assert rd.reshard_plan(matrix(), default).order == ("",)
    assert rd.reshard(matrix(), default).sharding == default


# -------------------------------------------------------------------------------------- failures


def test_errors_name_the_leaf_and_nothing_is_donated() -> None:
    good, bad = matrix(), matrix((16, 6))
    with pytest.raises(LeafError, match=r"leaf \['bad'\]\[0\]: dimension 1 has 6 elements") as caught:
        rd.reshard({"a": good, "bad": [bad]}, COLUMNS, donate=True)
    assert caught.value.__cause__ is not None
    assert not good.is_deleted()
    assert not bad.is_deleted()
    with pytest.raises(LeafError, match=r"leaf \['b'\]: str is neither"):
        rd.reshard({"a": good, "b": "text"}, COLUMNS, donate=True)
    assert not good.is_deleted()
    gone = matrix()
    gone.delete()
    with pytest.raises(LeafError, match=r"leaf \['b'\]: the array has been donated or deleted"):
        rd.reshard({"a": good, "b": gone}, COLUMNS, donate=True)
    assert not good.is_deleted()
    with pytest.raises(LeafError, match="entries and the shape"):
        rd.reshard({"a": good, "b": matrix((8,))}, COLUMNS)


@pytest.mark.usefixtures("fresh")
def test_a_failing_compiler_names_the_leaf_and_nothing_is_donated(monkeypatch: pytest.MonkeyPatch) -> None:
    from redistrib.resharding import planning

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(planning, "CompiledBucket", fails)
    array = matrix()
    with pytest.raises(LeafError, match=r"leaf \['w'\]: no such kernel"):
        rd.reshard({"w": array}, COLUMNS, donate=True)
    assert not array.is_deleted()


# ---------------------------------------------------------------------------------------- caches


@pytest.mark.usefixtures("fresh")
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
    assert [batch.items[0].path for batch in plan.batches] == ["['all']", "['half']"]
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
        lambda: rd.reshard_plan(tree, COLUMNS, cost_model="exact"),
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
        (entry.plan.to_json(), entry.dtype, entry.count, entry.stacked, entry.reuses)
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


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("known", [True, False])
def test_every_bfloat16_arrives_as_it_was(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """As it is where the compiler leaves it so; as integers where it would widen it, and a NaN lose its payload."""
    if not known:
        monkeypatch.setattr(
            xla_cpu, "ONE_PROCESS", replace(xla_cpu.ONE_PROCESS, bfloat16_options={})
        )  # as if XLA:CPU had another name for what widens
    every = np.resize(np.arange(2**16, dtype=np.uint16), (512, 1024)).view(jnp.bfloat16)
    for source, target in ((ROWS, COLUMNS), (ROWS, NamedSharding(EIGHT, P())), (COLUMNS, NamedSharding(GRID, P("b")))):
        tree = [jax.device_put(every, source)] * 2
        plan = rd.reshard_plan(tree, target)
        for batch in plan.batches:
            assert isinstance(batch.program, CompiledBucket)
            assert ("bitcast-convert" in batch.program.hlo()) != known
        for moved in rd.reshard(tree, target):
            assert moved.dtype == jnp.bfloat16
            assert moved.sharding == target
            assert np.array_equal(np.asarray(moved).view(np.uint16), every.view(np.uint16))


@pytest.mark.usefixtures("fresh")
def test_a_compiler_that_does_not_know_the_options_is_asked_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_cpu.Quirks, "compiler_options", lambda *_: {"xla_cpu_no_such_option": 1})
    for dtype in (np.float32, jnp.bfloat16):
        np.testing.assert_array_equal(rd.reshard(matrix(dtype=dtype), COLUMNS), matrix(dtype=dtype))
    monkeypatch.setattr(xla_cpu.Quirks, "compiler_options", lambda *_: {"xla_backend_optimization_level": "x"})
    with pytest.raises(jax.errors.JaxRuntimeError, match="not a valid int"):
        rd.reshard(matrix((8, 8)), COLUMNS)


def test_leaves_of_a_launch_move_one_after_the_other_in_the_scratch_of_the_one_before() -> None:
    tree = [matrix((512, 1024)) for _ in range(3)]
    (batch,) = rd.reshard_plan(tree, NamedSharding(EIGHT, P(None, "x"))).batches
    tile = tree[0].nbytes // 8
    assert batch.program.added_bytes < 3 * tile + 2.1 * tile  # three results, and what one of them takes on the way


def test_caches_are_bounded() -> None:
    from redistrib.cache import Cache

    cache: Cache[int] = Cache(2)
    assert [cache.get(key, lambda key=key: key * 10) for key in (1, 2, 1, 3, 2)] == [10, 20, 10, 30, 20]
    assert (cache.info.hits, cache.info.misses, cache.info.size) == (1, 4, 2)


def test_the_limits_of_the_caches_are_those_of_the_documentation() -> None:
    page = (Path(rd.__file__).parents[1] / "docs" / "reshard.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\d+) \|$", page, re.MULTILINE)
    stated = {name: int(most) for name, most in rows}
    assert stated == {name: info.limit for name, info in rd.cache_info().items()}


@pytest.mark.usefixtures("fresh")
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
        assert np.array_equal(rd.reshard(matrix(), COLUMNS, cost_model=model), matrix())


def _profile() -> str:
    from redistrib.cost.presets import PRESETS

    return PRESETS["cpu"].to_json()


# ------------------------------------------------------------------------------ plans as values


def test_plan_of_abstract_arrays_and_its_table() -> None:
    abstract = {"w": jax.ShapeDtypeStruct((16, 32), jnp.float32, sharding=ROWS)}
    plan = rd.reshard_plan(abstract, COLUMNS)
    assert plan.order == ("['w']",)
    assert plan.received_bytes == plan.lower_bound_bytes == 8 * (16 * 8 - 16) * 4
    text = str(plan)
    assert "['w']" in text
    assert "alltoall" in text
    assert f"{plan.peak_bytes:,} at the peak" in text
    with pytest.raises(LeafError, match="must say where"):
        rd.reshard_plan(jax.ShapeDtypeStruct((16, 32), jnp.float32), COLUMNS)


def test_progress_bar_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    moved = rd.reshard(matrix(), COLUMNS, progress=True)
    assert np.array_equal(moved, matrix())
    shown = capsys.readouterr()
    assert "resharding" in shown.err
    assert not shown.out
    rd.reshard(matrix(), COLUMNS)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("terminal", "most", "shown"), [(True, 100, True), (False, 100, False), (True, 10_000, False)])
def test_progress_of_itself_on_terminals_and_for_long_moves(
    terminal: bool, most: int, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(eager, "LONG_MOVE", most)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    rd.reshard(matrix(), COLUMNS)
    assert ("resharding" in capsys.readouterr().err) == shown
