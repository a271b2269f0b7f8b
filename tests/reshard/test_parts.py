"""Large leaves that go to other devices in parts: bit exact, each part one launch, memory as it is told."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.buckets.parted import PartedMove
from redistrib.launches import buckets

LAUNCH = 2**14  # bytes of tiles in a launch, here


@pytest.fixture(autouse=True)
def small_launches(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET_BYTES", LAUNCH)


def _sharding(devices: slice | list[int], shape: tuple[int, ...], spec: P) -> NamedSharding:
    return NamedSharding(Mesh(np.array(jax.devices())[devices].reshape(shape), ("x", "y")[: len(shape)]), spec)


LOW, HIGH = slice(0, 4), slice(4, 8)
MOVES = {
    "rows to columns": (_sharding(LOW, (4,), P("x")), _sharding(HIGH, (4,), P(None, "x"))),
    "rows to replicated": (_sharding(LOW, (4,), P("x")), _sharding(HIGH, (4,), P())),
    "eight to six": (_sharding(slice(0, 8), (8,), P("x")), _sharding(slice(0, 6), (6,), P(None, "x"))),
    "six to eight": (_sharding(slice(0, 6), (6,), P("x")), _sharding(slice(0, 8), (8,), P("x"))),
    "overlapping": (_sharding(LOW, (2, 2), P("y", "x")), _sharding([5, 3, 2, 4], (4,), P(None, "x"))),
}


def _values(dtype: Any = np.float32) -> np.ndarray:
    bits = np.random.default_rng(1).integers(0, 256, 192 * 192 * np.dtype(dtype).itemsize, np.uint8)
    return bits.view(dtype).reshape(192, 192)  # numbers that are none as well


def _placed(values: np.ndarray, sharding: NamedSharding) -> jax.Array:
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index], dtype=values.dtype)


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_large_leaves_travel_part_by_part(name: str, dtype: Any) -> None:
    source, target = MOVES[name]
    values = _values(dtype)
    array = _placed(values, source)
    plan = rd.reshard_plan(array, target, machine="exact")
    (batch,) = plan.batches
    assert isinstance(batch.program, PartedMove)
    (entry,) = batch.program.entries
    size = sum(int(np.prod(side.shard_shape(array.shape))) for side in (source, target)) * values.itemsize
    assert entry.times >= size / LAUNCH > 1
    assert f"{entry.times} parts, " in str(plan)
    assert plan.received_bytes == plan.lower_bound_bytes
    with jax.transfer_guard("disallow_explicit"):
        moved = jax.block_until_ready(rd.reshard(array, target, machine="exact", donate=True))
    assert moved.sharding == target and moved.dtype == dtype and array.is_deleted()
    assert np.array_equal(np.asarray(moved).view(np.uint8), values.view(np.uint8))


def test_beside_the_array_there_is_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices without data stand in with tiles of a part; the whole, not cut, has them stand in with whole tiles."""
    source, target = MOVES["rows to columns"]
    array = _placed(_values(), source)
    tile = array.nbytes // 4
    plan = rd.reshard_plan(array, target)
    (batch,) = plan.batches
    assert isinstance(batch.program, PartedMove)
    launch = batch.program._program.added_bytes
    part = tile // batch.program.entries[0].times
    assert part <= launch <= 4 * part  # its output and scratch
    assert plan.peak_bytes == tile + part + launch  # an end of the array, a part's source, and what moves it
    parted = _least(array, target)
    assert parted <= plan.peak_bytes
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 2**30)
    rd.clear_caches()
    assert rd.reshard_plan(array, target).peak_bytes >= 2 * tile
    assert _least(array, target) >= 2 * tile > 1.3 * parted


def _least(array: jax.Array, target: NamedSharding) -> int:
    """The least memory limit under which an array is moved."""
    with pytest.raises(rd.errors.MemoryLimitError) as caught:
        rd.reshard_plan(array, target, memory_limit=1)
    least: int = caught.value.least
    with pytest.raises(rd.errors.MemoryLimitError):
        rd.reshard_plan(array, target, memory_limit=least - 1)
    assert rd.reshard_plan(array, target, memory_limit=least).peak_bytes <= least
    moved = rd.reshard(array, target, memory_limit=least)
    assert np.array_equal(np.asarray(moved).view(np.uint8), np.asarray(array).view(np.uint8))
    return least


def test_large_and_small_leaves_go_together() -> None:
    source, target = MOVES["rows to columns"]
    other, there = MOVES["overlapping"]
    tree = {
        "large": _placed(_values(), source),
        "small": _placed(_values()[:16], source),
        "other": _placed(_values(), other),
    }
    targets = {"large": target, "small": target, "other": there}
    moved = rd.reshard(tree, targets)
    for name, array in tree.items():
        assert moved[name].sharding == targets[name]
        assert np.array_equal(np.asarray(moved[name]).view(np.uint8), np.asarray(array).view(np.uint8))


def test_keys_and_packed_elements_stay_whole() -> None:
    source, target = MOVES["rows to columns"]
    small = jax.device_put(jnp.ones((512, 512), jnp.int4), source)
    keys = jax.device_put(jax.random.split(jax.random.key(3), (192, 192)), source)
    for array in (small, keys):
        (batch,) = rd.reshard_plan(array, target).batches
        assert not isinstance(batch.program, PartedMove)


def test_on_the_same_devices_leaves_stay_whole() -> None:
    source, _ = MOVES["rows to columns"]
    (batch,) = rd.reshard_plan(_placed(_values(), source), _sharding(LOW, (4,), P(None, "x"))).batches
    assert not isinstance(batch.program, PartedMove)
