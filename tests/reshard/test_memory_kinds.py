"""Kinds of memory: what goes to host memory, comes from it or stays in it is as `jax.device_put` leaves it."""

from __future__ import annotations

from collections.abc import Callable
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
from redistrib.backends.jax import private

from .cases import TreeCase, same_shards, tree_cases, tree_of

DEVICES = np.array(jax.devices()[:4]).reshape(2, 2)
AUTO, EXPLICIT = (Mesh(DEVICES, ("x", "y"), axis_types=(kind,) * 2) for kind in (AxisType.Auto, AxisType.Explicit))
KINDS = ("device", "pinned_host", "unpinned_host")
VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)
knows_memory = pytest.mark.skipif(not private.jit_knows_memory_of_cpus(), reason="JAX keeps CPU arrays in one memory")


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
    expected = PADDED if edge == "padding" else jax.device_put(array, sharding)
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
    assert plan.before_bytes == 0 and plan.put == ("['same']",)
    copies = {(copy.source, copy.target): (copy.leaves, copy.bytes) for copy in plan.memory_copies}
    size = VALUES.nbytes
    assert copies == {
        ("pinned_host", "device"): (2, 2 * size),
        ("device", "pinned_host"): (1, size),
        ("pinned_host", "unpinned_host"): (1, size),
    }
    assert "load + all_to_all + store" in str(plan)
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


def test_jit_refuses_memory_that_it_does_not_know() -> None:
    with pytest.raises(rd.errors.LeafError, match="unpinned_host is neither"):
        jax.jit(lambda v: rd.reshard({"w": v}, columns("unpinned_host"), source=rows()))(VALUES)


def test_a_jax_that_keeps_arrays_of_cpus_in_one_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "jit_knows_memory_of_cpus", lambda: False)
    with pytest.raises(rd.errors.TracedError, match="no array of CPU devices in pinned_host under jit"):
        jax.jit(lambda v: rd.reshard(v, columns("pinned_host"), source=rows()))(VALUES)
