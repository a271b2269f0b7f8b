"""`reshard` between device sets that differ, in one process: bit exact, by plans, memory as it is told."""

from __future__ import annotations

import itertools
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.sharding import named_sharding
from redistrib.testing import all_types
from tests.sets.cases import PAIRS, SETS, alpa_on_eight, m2n, prime_mesh

MOVED = [name for name in PAIRS if name not in ("rows to rows", "replicated to replicated")]


def _sharding(mesh: rd.Mesh, dist_type: rd.DistType) -> NamedSharding:
    devices = np.array(jax.devices())[list(mesh.devices)].reshape(mesh.shape)
    return named_sharding(dist_type, mesh, jax.sharding.Mesh(devices, mesh.names))


def _ends(name: str) -> tuple[tuple[int, ...], NamedSharding, NamedSharding]:
    sides = [(rd.Mesh.of(mesh, devices), rd.DistType.parse(text)) for mesh, devices, text in PAIRS[name]]
    return (sides[0][1].global_shape, *(_sharding(*side) for side in sides))  # type: ignore[return-value]


def _values(shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jnp.arange(np.prod(shape)).astype(dtype).reshape(shape)


def _check(source: jax.Array, target: NamedSharding, **options: Any) -> jax.Array:
    expected = np.asarray(source)
    with jax.transfer_guard("disallow_explicit"):
        moved = jax.block_until_ready(rd.reshard(source, target, **options))
    assert moved.sharding == target and moved.dtype == source.dtype
    assert np.array_equal(np.asarray(moved).view(np.uint8), expected.view(np.uint8))
    return moved


def _check_at_the_bound(array: jax.Array, target: NamedSharding) -> None:
    plan = rd.reshard_plan(array, target, machine="exact")
    if plan.by_device_put:  # whole tiles are copied to other devices
        assert np.array_equal(rd.reshard(array, target), array)
    else:
        assert plan.received_bytes == plan.lower_bound_bytes
        _check(array, target, machine="exact")


@pytest.mark.parametrize("name", MOVED)
def test_pairs_move_at_the_bound_without_the_host(name: str) -> None:
    shape, source, target = _ends(name)
    array = jax.device_put(_values(shape, jnp.float32), source)
    plan = rd.reshard_plan(array, target, machine="exact")
    assert not plan.by_device_put and plan.received_bytes == plan.lower_bound_bytes
    _check(array, target, machine="exact", donate=name == MOVED[0])
    assert array.is_deleted() == (name == MOVED[0])


def test_same_tiles_on_other_devices_are_copied_by_device_put() -> None:
    for name in ("rows to rows", "replicated to replicated"):
        shape, source, target = _ends(name)
        array = jax.device_put(_values(shape, jnp.float32), source)
        assert rd.reshard_plan(array, target).by_device_put == ("",)
        assert np.array_equal(rd.reshard(array, target), array)


@pytest.mark.long
@pytest.mark.parametrize("half", [4, 8])
def test_nccls_cases_move_at_the_bound(half: int) -> None:
    for ends in m2n(half):
        source, target = (_sharding(rd.Mesh.of(mesh, devices), rd.DistType.parse(text)) for mesh, devices, text in ends)
        _check_at_the_bound(jax.device_put(_values((40, 40), jnp.bfloat16), source), target)


@pytest.mark.long
def test_alpas_cases_move_at_the_bound() -> None:
    for ends in alpa_on_eight():
        source, target = (_sharding(rd.Mesh.of(mesh, devices), rd.DistType.parse(text)) for mesh, devices, text in ends)
        _check_at_the_bound(jax.device_put(_values((48, 16, 8), jnp.float32), source), target)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int8, jnp.int4, jnp.complex64, jnp.bool_])
def test_dtypes_keep_their_bits(dtype: Any) -> None:
    shape, source, target = _ends("rows to columns")
    array = jax.device_put(_values(shape, dtype), source)
    moved = rd.reshard(array, target)
    assert moved.dtype == dtype and moved.sharding == target
    assert np.array_equal(np.asarray(moved), np.asarray(array))


def test_keys_move() -> None:
    _, source, target = _ends("rows to half replicated")
    keys = jax.device_put(jax.random.split(jax.random.key(3), (16, 16)), source)
    moved = rd.reshard(keys, target)
    assert moved.sharding == target
    assert np.array_equal(jax.random.key_data(moved), jax.random.key_data(keys))


def test_trees_move_between_sets_together_with_leaves_that_stay() -> None:
    devices = np.array(jax.devices()[:8])
    train = jax.sharding.Mesh(devices[:4], ("fsdp",))
    serve = jax.sharding.Mesh(devices[4:].reshape(2, 2), ("data", "tensor"))
    tree = {
        "layers": [
            jax.device_put(_values((16, 8 + 8 * k), jnp.float32), NamedSharding(train, P("fsdp"))) for k in (0, 1)
        ],
        "step": jax.device_put(jnp.int32(7), NamedSharding(train, P())),
        "kept": jax.device_put(_values((8,), jnp.float32), NamedSharding(serve, P("tensor"))),
    }
    targets = {
        "layers": NamedSharding(serve, P(None, "tensor")),
        "step": NamedSharding(serve, P()),
        "kept": NamedSharding(serve, P("tensor")),
    }
    plan = rd.reshard_plan(tree, targets)
    assert (plan.kept, plan.by_device_put) == (("kept",), ("step",))
    assert set(plan.order) == {"layers/0", "layers/1"}
    moved = rd.reshard(tree, targets, donate=True)
    assert moved["step"] == 7
    for k, leaf in enumerate(moved["layers"]):
        assert leaf.sharding.is_equivalent_to(targets["layers"], 2)
        assert np.array_equal(leaf, _values((16, 8 + 8 * k), jnp.float32))
        assert tree["layers"][k].is_deleted()


def test_tiles_that_stand_for_data_count_as_memory() -> None:
    _, source, target = _ends("rows to columns")
    array = jax.device_put(_values((1024, 1024), jnp.float32), source)
    tile = 2**20
    plan = rd.reshard_plan(array, target)
    (batch,) = plan.batches
    assert plan.peak_bytes == tile + batch.program.added_bytes  # on the target's devices, a tile of zeros
    assert plan.before_bytes == tile
    with pytest.raises(rd.errors.MemoryLimitError) as caught:
        rd.reshard_plan(array, target, memory_limit=2 * tile - 1)
    assert caught.value.least >= 2 * tile
    limited = rd.reshard_plan(array, target, memory_limit=caught.value.least)
    assert limited.peak_bytes <= caught.value.least
    _check(array, target, memory_limit=caught.value.least)


@pytest.mark.usefixtures("fresh")
def test_many_leaves_move_without_the_host() -> None:
    shape, source, target = _ends("rows to columns")
    tree = [jax.device_put(_values(shape, jnp.float32), source) for _ in range(8)]
    with jax.transfer_guard("disallow_explicit"):
        moved = jax.block_until_ready(rd.reshard(tree, target))
    assert all(np.array_equal(one, other) for one, other in zip(moved, tree, strict=True))


def test_a_second_call_plans_and_compiles_nothing() -> None:
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
    shape, source, target = _ends("rows to columns")
    tree = [jax.device_put(_values(shape, dtype), source) for dtype in (jnp.float32, jnp.int32)]
    tree.append(jax.device_put(jax.random.split(jax.random.key(3), shape), source))
    jax.block_until_ready(rd.reshard(tree, target))
    before = rd.cache_info()
    compiled.clear()
    jax.block_until_ready(rd.reshard(tree, target))
    assert not any("backend_compile" in event for event in compiled)
    assert {name: cache.misses for name, cache in rd.cache_info().items()} == {
        name: cache.misses for name, cache in before.items()
    }


@pytest.mark.parametrize(("name", "count"), [pytest.param(name, 1, id=name) for name in SETS])
def test_a_sample_of_all_pairs_moves_right(name: str, count: int) -> None:
    _check_sample(name, count)


@pytest.mark.long
@pytest.mark.parametrize("name", SETS)
def test_a_large_sample_of_all_pairs_moves_right(name: str) -> None:
    _check_sample(name, 84)


def _check_sample(name: str, count: int) -> None:
    meshes = [prime_mesh(devices) for devices in SETS[name]]
    pairs = list(itertools.product(*(list(all_types(mesh, (24, 24))) for mesh in meshes)))
    for types in random.Random(11).sample(pairs, min(count, len(pairs))):
        source, target = (_sharding(mesh, side) for mesh, side in zip(meshes, types, strict=True))
        array = jax.device_put(_values((24, 24), jnp.int32), source)
        moved = rd.reshard(array, target)
        assert moved.sharding == target and np.array_equal(moved, _values((24, 24), jnp.int32))
