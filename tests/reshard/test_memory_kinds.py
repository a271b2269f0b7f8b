"""Kinds of memory: what goes to host memory, comes from it or stays in it is as `jax.device_put` leaves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.platforms import quirks_of
from redistrib.backends.jax.xla_cpu import quirks

from .cases import TreeCase, same_shards, tree_cases, tree_of

DEVICES = np.array(jax.devices()[:4]).reshape(2, 2)
AUTO, EXPLICIT = (Mesh(DEVICES, ("x", "y"), axis_types=(kind,) * 2) for kind in (AxisType.Auto, AxisType.Explicit))
KINDS = ("device", "pinned_host", "unpinned_host")
VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)
KNOWS = quirks_of("cpu").knows_kinds_of_memory
knows_memory = pytest.mark.skipif(not KNOWS, reason="JAX keeps CPU arrays in one memory")


def rows(kind: str | None = None, mesh: Mesh = AUTO) -> NamedSharding:
    return NamedSharding(mesh, P(("x", "y")), memory_kind=kind)


def columns(kind: str | None = None, mesh: Mesh = AUTO) -> NamedSharding:
    return NamedSharding(mesh, P(None, ("x", "y")), memory_kind=kind)


def matrix(sharding: NamedSharding) -> jax.Array:
    return jax.device_put(VALUES.copy(), sharding)


# ------------------------------------------------------------------------------------ outside jit


OPTIONS: list[dict[str, Any]] = [{}, {"donate": True}, {"memory_limit": "1MiB"}, {"via": "collectives"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_kind_to_every_kind(options: dict[str, Any]) -> None:
    for source in KINDS:
        for target in (*(columns(kind) for kind in KINDS), *(rows(kind) for kind in KINDS), columns()):
            array = matrix(rows(source))
            moved = rd.reshard(array, target, **options)
            assert moved.sharding == target and np.array_equal(moved, VALUES)
            stays = source == target.memory_kind and target.spec == rows().spec
            assert array.is_deleted() == ("donate" in options and not stays)


def test_a_tree_gives_up_its_arrays_in_every_memory() -> None:
    places = [(source, target) for source in KINDS for target in KINDS]
    tree = {f"{source} to {target}": matrix(rows(source)) for source, target in places}
    tied = matrix(rows("pinned_host"))
    targets = {name: columns(target) for name, (_, target) in zip(tree, places, strict=True)}
    moved = rd.reshard({**tree, "a": tied, "b": tied}, {**targets, "a": columns(), "b": rows("device")}, donate=True)
    assert all(array.is_deleted() for array in (*tree.values(), tied))
    assert all(np.array_equal(array, VALUES) for array in moved.values())
    assert all(moved[name].sharding == target for name, target in targets.items())


PADDED = np.arange(40, dtype=np.float32).reshape(8, 5)
EDGES: dict[str, Callable[[str], tuple[Any, Any, dict[str, Any]]]] = {
    "padding": lambda kind: (
        jax.device_put(np.pad(PADDED, ((0, 0), (0, 3))), columns(kind)),
        jax.ShapeDtypeStruct((8, 5), np.float32, sharding=rows(kind)),
        {"logical_shape": (8, 5)},
    ),
    "keys": lambda kind: (jax.device_put(jax.random.split(jax.random.key(0), 8), rows(kind)), AUTO.devices, {}),
    "int4": lambda kind: (jax.device_put(jnp.arange(8, dtype="int4"), rows(kind)), AUTO.devices, {}),
    "nothing": lambda kind: (jax.device_put(jnp.zeros((0, 8)), columns(kind)), rows(kind), {}),
    "weak": lambda kind: (jax.device_put(jnp.asarray(2.5) + 1, NamedSharding(AUTO, P(), memory_kind=kind)), None, {}),
}


@pytest.mark.parametrize("edge", EDGES)
def test_edges_of_arrays_in_host_memory(edge: str) -> None:
    array, target, options = EDGES[edge]("pinned_host")
    if target is AUTO.devices:
        target = NamedSharding(Mesh(DEVICES[::-1], ("y", "x")), P("y"), memory_kind="pinned_host")
    elif target is None:
        target = NamedSharding(Mesh(DEVICES[:, 0], "x"), P(), memory_kind="pinned_host")
    moved = rd.reshard(array, target, **options)
    sharding = getattr(target, "sharding", target)
    assert moved.sharding == sharding
    expected = PADDED if edge == "padding" else array
    key = edge == "keys"
    found, wanted = ((jax.random.key_data(each) if key else np.asarray(each)) for each in (moved, expected))
    assert np.array_equal(found, wanted)
    assert moved.aval.weak_type == array.aval.weak_type


def test_partial_sums_reduce_on_their_way_to_the_host() -> None:
    with jax.set_mesh(EXPLICIT):
        left, right = (jax.device_put(VALUES, NamedSharding(EXPLICIT, spec)) for spec in (P(None, "x"), P("x", None)))
        sums = jax.jit(lambda a, b: jax.lax.dot(a, b, out_sharding=P(unreduced={"x"})))(left, right)
    target = rows("pinned_host", EXPLICIT)
    from_host = rd.reshard(sums, sums.sharding.with_memory_kind("pinned_host"))
    for summands in (sums, from_host):
        moved = rd.reshard(summands, target)
        assert moved.sharding == target and np.array_equal(moved, VALUES @ VALUES)


def test_other_devices_get_arrays_from_host_memory_to_host_memory() -> None:
    other = NamedSharding(Mesh(np.array(jax.devices()[4:6]), "z"), P(None, "z"), memory_kind="pinned_host")
    for kind in KINDS:
        for target in (other, other.with_memory_kind("device")):
            moved = rd.reshard(matrix(rows(kind)), target)
            assert moved.sharding == target and np.array_equal(moved, VALUES)


def test_the_plan_tells_of_copies_and_counts_only_the_memory_of_devices() -> None:
    tree = {name: matrix(rows("pinned_host")) for name in ("back", "inside", "same")}
    targets = {"back": columns(), "inside": columns("pinned_host"), "same": rows("unpinned_host")}
    plan = rd.reshard_plan(tree, targets)
    assert plan.before_bytes == 0 and plan.by_device_put == ("same",)
    copies = {(copy.source, copy.target): (copy.leaves, copy.bytes) for copy in plan.memory_copies}
    size = VALUES.nbytes
    assert copies == {
        ("pinned_host", "device"): (2, 2 * size),
        ("device", "pinned_host"): (1, size),
        ("pinned_host", "unpinned_host"): (1, size),
    }
    assert "load + alltoall + store" in str(plan)
    assert "copies between kinds of memory: 2 leaves from pinned_host to device, 512 bytes" in str(plan)
    # In host memory a hundred arrays take none of the devices' memory: each is there for its launch alone.
    many = [matrix(rows("pinned_host")) for _ in range(100)]
    limit = rd.reshard_plan(many[:1], columns("pinned_host")).peak_bytes
    assert rd.reshard_plan(many, columns("pinned_host"), memory_limit=limit).peak_bytes <= limit
    with pytest.raises(rd.errors.MemoryLimitError):
        rd.reshard_plan(many, columns(), memory_limit=limit)


def test_a_leaf_that_cannot_move_to_the_host_is_refused_before_another_is_donated() -> None:
    good, bad = matrix(rows("pinned_host")), jax.device_put(np.zeros((6, 6), np.float32), NamedSharding(AUTO, P()))
    with pytest.raises(rd.errors.LeafError, match="bad"):
        rd.reshard({"good": good, "bad": bad}, columns("pinned_host"), donate=True)
    assert not good.is_deleted() and not bad.is_deleted()


@settings(
    max_examples=3,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(tree_cases((4, 6), 8), st.lists(st.tuples(*[st.sampled_from(KINDS)] * 2), min_size=8, max_size=8))
def test_agrees_with_device_put(case: TreeCase, kinds: list[tuple[str, str]]) -> None:
    values, arrays, shardings = tree_of(case)
    for name, (source, target) in zip(arrays, kinds, strict=True):
        arrays[name] = jax.device_put(arrays[name], arrays[name].sharding.with_memory_kind(source))
        shardings[name] = shardings[name].with_memory_kind(target)
    moved = rd.reshard(arrays, shardings)
    for name, array in moved.items():
        expected = jax.device_put(values[name], shardings[name])
        assert array.sharding == expected.sharding and same_shards(array, expected), name
        assert array.aval.weak_type == arrays[name].aval.weak_type


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_through_a_function(options: dict[str, Any]) -> None:
    tree = {"a": matrix(rows("pinned_host")), "b": matrix(rows())}
    targets = {"sum": columns("pinned_host"), "half": columns("device")}

    def function(tree: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {"sum": tree["a"].T + tree["b"], "half": tree["a"].astype("bfloat16")}

    plan = rd.reshard_plan(tree, targets, through=function, donate="donate" in options)
    assert {(copy.source, copy.target, copy.bytes) for copy in plan.memory_copies} >= {("device", "pinned_host", 256)}
    assert "to pinned_host, 256 bytes" in " ".join(str(plan).split())
    # In one launch: the sources (64 bytes on a device each, one of them only then), the results, and scratch.
    assert (
        plan.peak_bytes
        == rd.reshard_plan(
            {name: jax.ShapeDtypeStruct((8, 8), np.float32, sharding=rows()) for name in tree},
            {name: target.with_memory_kind("device") for name, target in targets.items()},
            through=function,
        ).peak_bytes
    )
    moved = rd.reshard(tree, targets, through=function, **options)
    assert all(moved[name].sharding == target for name, target in targets.items())
    assert np.array_equal(moved["sum"], VALUES.T + VALUES) and np.array_equal(moved["half"], VALUES)
    assert [array.is_deleted() for array in tree.values()] == ["donate" in options] * 2


@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host"])
def test_files_are_written_from_host_memory_and_read_into_it(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    rd.save({"w": matrix(rows(kind)), "b": matrix(columns())}, tmp_path)
    for options in ({}, {"dtype": "bfloat16"}, {"through": lambda tensors: {"w": tensors["w"] * 1}}):
        read = rd.load(tmp_path, {"w": columns(kind)}, **options)["w"]
        assert read.sharding == columns(kind) and np.array_equal(read, VALUES)
        assert read.dtype == options.get("dtype", "float32")


def test_shardings_like_those_in_host_memory_are_in_host_memory() -> None:
    single = jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    for sharding in (rows("pinned_host"), single):
        state = rd.like({"w": sharding}, {"count": jnp.zeros(()), "mu": {"w": jnp.zeros((8, 8))}})
        assert state["mu"]["w"] == sharding and state["count"].memory_kind == "pinned_host"


def test_plans_without_devices_have_kinds_of_memory() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("x",))
    shape = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("x"), memory_kind="pinned_host"))
    plan = rd.reshard_plan(shape, NamedSharding(mesh, P(None, "x")))
    assert plan.before_bytes == 0 and [copy.source for copy in plan.memory_copies] == ["pinned_host"]


# ------------------------------------------------------------------------------------ under jit


def _source(mesh: Mesh) -> dict[str, Any]:
    return {} if mesh is EXPLICIT else {"source": rows()}


def on_device(array: jax.Array) -> jax.Array:
    return jax.device_put(array, jax.memory.Space.Device)


@knows_memory
@pytest.mark.parametrize("mesh", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_under_jit_every_kind_that_jit_knows_to_every_kind(mesh: Mesh) -> None:
    """Values lie where the target says, and gradients where the source lies, as those of `jax.device_put` do."""
    sources, targets = (rows("device", mesh), rows("pinned_host", mesh)), [columns(None, mesh)]
    targets += [columns("pinned_host", mesh), rows("pinned_host", mesh)]
    for source in sources:
        for target in targets:

            def move(array: jax.Array, target: NamedSharding = target) -> jax.Array:
                return rd.reshard(array, target, **_source(mesh))

            array = matrix(source)
            moved, gradient = jax.jit(
                lambda value, move=move: (move(value), jax.grad(lambda v: (on_device(move(v)) ** 2).sum())(value))
            )(array)
            assert moved.sharding.is_equivalent_to(target.with_memory_kind(target.memory_kind or "device"), 2)
            assert gradient.sharding.memory_kind == source.memory_kind
            assert np.array_equal(moved, VALUES) and np.array_equal(gradient, 2 * VALUES)


@knows_memory
def test_offloading_in_a_scan_with_remat() -> None:
    """A carry that waits in host memory, and a checkpointed body that brings its weights from there."""
    weights = jax.device_put(np.stack([np.eye(8, dtype=np.float32) * 2] * 3), NamedSharding(AUTO, P()))
    on_host = rd.reshard(weights, NamedSharding(AUTO, P(None, ("x", "y")), memory_kind="pinned_host"))

    @jax.checkpoint
    def layer(carry: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
        whole = rd.reshard(weight, NamedSharding(AUTO, P()), source=rows("pinned_host"))
        back = rd.reshard(carry, columns(), source=rows("pinned_host"))
        return rd.reshard(back @ whole, rows("pinned_host"), source=columns()), None

    def loss(weights: jax.Array, start: jax.Array) -> jax.Array:
        return on_device(jax.lax.scan(layer, start, weights)[0]).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(on_host, matrix(rows("pinned_host")))
    expected, wanted = jax.value_and_grad(lambda w: (VALUES @ w[0] @ w[1] @ w[2]).sum())(jnp.asarray(weights))
    assert value == expected and np.allclose(gradient, wanted) and gradient.sharding.memory_kind == "pinned_host"


def test_outside_jit_gradients_lie_where_their_arrays_lie() -> None:
    for source, target in (("device", "pinned_host"), ("unpinned_host", "device"), ("pinned_host", "unpinned_host")):
        array = matrix(rows(source))
        moved, back = jax.vjp(lambda v, t=target: rd.reshard(v, columns(t), source=rows()), array)
        (cotangent,) = back(moved)
        assert moved.sharding.memory_kind == target and cotangent.sharding.memory_kind == source
        assert np.array_equal(cotangent, VALUES)


@knows_memory
@pytest.mark.parametrize("mesh", [AUTO, EXPLICIT], ids=["auto", "explicit"])
def test_functions_of_plans_take_arrays_in_host_memory_under_jit_alone(mesh: Mesh) -> None:
    plan = rd.synthesize("[2{x,y}8, 8]", "[8, 2{x,y}8]", "x=2,y=2")
    move = rd.to_jax(plan, mesh)
    array = jax.device_put(VALUES, move.source_sharding.with_memory_kind("pinned_host"))
    with pytest.raises(rd.errors.SourceArrayError, match=r"in pinned_host; place it with jax\.device_put"):
        move(array)
    moved, gradient = jax.jit(lambda v: (move(v), jax.grad(lambda w: (move(w) ** 2).sum())(v)))(array)
    assert moved.sharding.memory_kind == "device" and gradient.sharding.memory_kind == "pinned_host"
    assert np.array_equal(moved, VALUES) and np.array_equal(gradient, 2 * VALUES)


def test_distributed_functions_take_arguments_from_host_memory_and_refuse_results_there() -> None:
    def function(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return a @ b, a + 1

    args = matrix(rows("pinned_host")), matrix(NamedSharding(AUTO, P()))
    schedule = [rd.along("x", {"a": 0})]
    distributed = rd.distribute(function, args, AUTO, schedule=schedule)
    for call in (distributed, jax.jit(distributed)) if KNOWS else (distributed,):
        product, more = call(*args)
        assert np.array_equal(product, VALUES @ VALUES) and np.array_equal(more, VALUES + 1)
        assert {array.sharding.memory_kind for array in (product, more)} == {"device"}
    for where in ({"in_shardings": (rows("pinned_host"), None)}, {"out_shardings": (None, rows("unpinned_host"))}):
        with pytest.raises(rd.errors.ProgramError, match="host, and the arrays of a program are in the devices' own"):
            rd.distribute(function, args, AUTO, schedule=schedule, **where)
    with pytest.raises(rd.errors.ProgramError, match="the function puts result 1 in pinned_host"):
        rd.distribute(lambda a, b: (a @ b, jax.device_put(a, jax.memory.Space.Host)), args, AUTO, schedule=schedule)


def test_jit_refuses_memory_that_it_does_not_know() -> None:
    with pytest.raises(rd.errors.LeafError, match="unpinned_host is neither"):
        jax.jit(lambda v: rd.reshard({"w": v}, columns("unpinned_host"), source=rows()))(VALUES)


def test_a_jax_that_keeps_arrays_of_cpus_in_one_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quirks, "ONE_PROCESS", replace(quirks.ONE_PROCESS, knows_kinds_of_memory=False))
    with pytest.raises(rd.errors.TracedError, match="no array of CPU devices in pinned_host under jit"):
        jax.jit(lambda v: rd.reshard(v, columns("pinned_host"), source=rows()))(VALUES)
