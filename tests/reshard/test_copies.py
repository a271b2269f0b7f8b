"""Moves by copies between the CPU devices of one process, against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.xla_cpu.copies import CopyRates, TileCopies
from redistrib.errors import ChoiceError
from redistrib.resharding import events

SPECS = [P(), P("x"), P("y"), P(("x", "y")), P(("y", "x")), P("x", "y"), P("y", "x"), P(None, "x"), P(None, ("y", "x"))]


def mesh_of(*numbers: int) -> Mesh:
    return Mesh(np.array([jax.devices()[k] for k in numbers]).reshape(2, -1), ("x", "y"))


# The same devices in two orders, some of them, and others.
MESHES = [mesh_of(0, 1, 2, 3), mesh_of(3, 1, 0, 2), mesh_of(2, 3, 4, 5), mesh_of(4, 5, 6, 7)]


def values(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype)


def check(whole: np.ndarray[Any, Any], result: jax.Array, target: Any) -> None:
    """Every device has its box of the whole array, by JAX's own indices."""
    assert result.sharding == target and result.dtype == whole.dtype and result.committed
    for device, index in target.devices_indices_map(whole.shape).items():
        tile = next(shard.data for shard in result.addressable_shards if shard.device == device)
        assert tile.devices() == {device}
        assert np.asarray(tile).tobytes() == np.ascontiguousarray(whole[index]).tobytes()


def addresses(array: jax.Array) -> list[tuple[int, int]]:
    return [
        (shard.data.unsafe_buffer_pointer(), shard.data.unsafe_buffer_pointer() + shard.data.nbytes)
        for shard in array.addressable_shards
    ]


def apart(one: jax.Array, other: jax.Array) -> bool:
    """Whether two arrays have no byte in common."""
    return all(a[1] <= b[0] or b[1] <= a[0] for a in addresses(one) for b in addresses(other))


@pytest.mark.parametrize("mesh", MESHES)
def test_shards_are_found_however_the_source_was_made(mesh: Mesh) -> None:
    """Of an array put there, of a result of `jit`, of buffers in another order, and of a view of an array's buffers."""
    whole = np.arange(96, dtype=np.float32).reshape(8, 12)
    source, target = NamedSharding(mesh, P("y", "x")), NamedSharding(MESHES[0], P(None, ("x", "y")))
    put = jax.device_put(whole, source)
    shuffled = [shard.data for shard in put.addressable_shards][::-1]
    sources = [
        put,
        jax.jit(lambda x: x + 0, out_shardings=source)(put),
        jax.make_array_from_single_device_arrays(whole.shape, source, shuffled),
        jax.make_array_from_callback(whole.shape, source, whole.__getitem__),
        rd.reshard(jax.device_put(whole, NamedSharding(mesh, P("x"))), source, via="collectives"),
    ]
    for array in sources:
        assert [array.addressable_data(k).devices() for k in range(4)] == [
            {device} for device in source.addressable_devices_indices_map(whole.shape)
        ]
        check(whole, rd.reshard(array, target, via="copies"), target)


@pytest.mark.parametrize("target_mesh", MESHES)
def test_every_pair_of_shardings(target_mesh: Mesh) -> None:
    whole = values((8, 12))
    for before, after in itertools.product(SPECS, SPECS):
        source, target = NamedSharding(MESHES[0], before), NamedSharding(target_mesh, after)
        array = jax.device_put(whole, source)
        result = rd.reshard(array, target, via="copies")
        check(whole, result, target)
        check(whole, TileCopies(whole.shape, source, target)(array), target)
        assert not array.is_deleted()


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([4, 8, 12]), min_size=1, max_size=3), st.data(), st.sampled_from([2, 4]), st.integers(0, 9)
)
def test_larger_arrays(sizes: list[int], data: Any, columns: int, seed: int) -> None:
    devices = np.random.default_rng(seed).permutation(jax.devices()[: 2 * columns])
    meshes = [
        Mesh(np.array(jax.devices()[: 2 * columns]).reshape(2, columns), ("x", "y")),
        Mesh(devices.reshape(columns, 2), ("a", "b")),
    ]
    shape = tuple(8 * size for size in sizes)

    def sharding(mesh: Mesh) -> NamedSharding:
        names = data.draw(st.permutations([*mesh.axis_names, *[None] * len(shape)]))
        return NamedSharding(mesh, P(*names[: len(shape)]))

    source, target = map(sharding, meshes)
    whole = values(shape)
    array = jax.device_put(whole, source)
    result = rd.reshard(array, target, via="copies")
    check(whole, result, target)


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "uint8", "int32", "float16", "bfloat16", "float8_e4m3fn", "complex64"]
)
@pytest.mark.parametrize("size", [8, 1024])  # tiles below and above the size at which JAX takes a buffer
def test_element_types(dtype: str, size: int) -> None:
    whole = values((size, size), jnp.dtype(dtype))
    source, target = NamedSharding(MESHES[0], P("x", "y")), NamedSharding(MESHES[0], P(None, ("x", "y")))
    result = rd.reshard(jax.device_put(whole, source), target, via="copies")
    check(whole, result, target)


def test_weak_types_stay_weak() -> None:
    source, target = NamedSharding(MESHES[0], P("x")), NamedSharding(MESHES[0], P("y"))
    weak = jax.device_put(jnp.broadcast_to(jnp.asarray(2.0), (8,)), source)
    assert weak.aval.weak_type
    result = rd.reshard(weak, target, via="copies")
    assert result.aval.weak_type and result.sharding == target
    assert (np.asarray(result) == 2.0).all()


def test_a_single_device_is_a_source_and_a_target() -> None:
    whole, one = values((8, 8)), SingleDeviceSharding(jax.devices()[5])
    rows = NamedSharding(MESHES[0], P("x"))
    scattered = rd.reshard(jax.device_put(whole, one), rows, via="copies")
    check(whole, scattered, rows)
    check(whole, rd.reshard(scattered, one, via="copies"), one)


@pytest.mark.parametrize("size", [8, 1024])
@pytest.mark.parametrize("after", [P(), P("x"), P(None, "y")])
def test_no_target_shares_memory_with_its_source(size: int, after: P) -> None:
    array = jax.device_put(values((size, size)), NamedSharding(MESHES[0], P()))
    result = TileCopies(array.shape, array.sharding, NamedSharding(MESHES[0], after))(array)
    assert apart(array, result)
    array.delete()
    assert (np.asarray(result) == values((size, size))).all()


@pytest.mark.parametrize("size", [8, 1024])
def test_replicas_survive_a_donation_to_jit(size: int) -> None:
    array = jax.device_put(values((size, size)), NamedSharding(MESHES[0], P("x")))
    whole = NamedSharding(MESHES[0], P())
    one, other = (rd.reshard(array, whole, via="copies") for _ in range(2))
    added = jax.jit(lambda x: x + 1, donate_argnums=0)(one)
    check(values((size, size)) + 1, added, whole)
    check(values((size, size)), other, whole)


def test_donated_sources_are_deleted_and_shared_ones_last() -> None:
    source, target = NamedSharding(MESHES[0], P("x")), NamedSharding(MESHES[0], P(None, "x"))
    array, tied = (jax.device_put(values((8, 8)), source) for _ in range(2))
    tree = rd.reshard({"a": array, "b": tied, "c": tied}, target, donate=True, via="copies")
    assert array.is_deleted() and tied.is_deleted()
    for leaf in tree.values():
        check(values((8, 8)), leaf, target)


def test_an_error_on_the_way_loses_no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = NamedSharding(MESHES[0], P("x")), NamedSharding(MESHES[0], P(None, "x"))
    arrays = {name: jax.device_put(values((8, 8)), source) for name in "ab"}
    calls = iter([True, False])
    original = TileCopies.__call__

    def failing(self: TileCopies, array: jax.Array) -> jax.Array:
        if not next(calls):
            raise MemoryError("no memory")
        return original(self, array)

    monkeypatch.setattr(TileCopies, "__call__", failing)
    with pytest.raises(MemoryError) as caught:
        rd.reshard(arrays, target, donate=True, via="copies")
    partial = caught.value.partial  # type: ignore[attr-defined]
    check(values((8, 8)), partial["a"], target)
    check(values((8, 8)), partial["b"], source)


def test_memory_is_that_of_the_target_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's allocations are traced by `tracemalloc`; the array has 4 MiB, and of its replicas one is written."""
    import tracemalloc

    array = jax.block_until_ready(jax.device_put(values((1024, 1024)), NamedSharding(MESHES[0], P("x"))))
    for after in (P(None, ("x", "y")), P("y"), P()):
        copies = TileCopies(array.shape, array.sharding, NamedSharding(MESHES[0], after))
        copies(array)
        tracemalloc.start()
        try:
            result = jax.block_until_ready(copies(array))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert 4 * 2**20 <= peak <= 4 * 2**20 + 2**16, (after, peak)
        del result


def events_of(run: Any) -> tuple[list[str], list[int]]:
    names: list[str] = []
    sizes: list[int] = []

    def on_event(name: str, **_: Any) -> None:
        names.append(name)

    def on_scalar(name: str, value: Any, **_: Any) -> None:
        if name == events.RECEIVED_BYTES:
            sizes.append(int(value))

    jax.monitoring.register_event_listener(on_event)
    jax.monitoring.register_scalar_listener(on_scalar)
    try:
        run()
    finally:
        jax.monitoring.clear_event_listeners()  # JAX 0.8 cannot take one away
    return [name for name in names if name in (events.LAUNCH, events.COPIES)], sizes


def test_the_user_chooses_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    array = jax.device_put(values((8, 8)), NamedSharding(MESHES[0], P("x")))
    target = NamedSharding(MESHES[0], P(None, "x"))
    expected = [4 * 8 * 4 // 2 * 4]  # four devices lack half of a tile of 8 * 4 elements of 4 bytes
    assert events_of(lambda: rd.reshard(array, target, via="copies")) == ([events.COPIES], expected)
    assert events_of(lambda: rd.reshard(array, target, via="collectives")) == ([events.LAUNCH], expected)
    assert events_of(lambda: rd.reshard(array, target, via="auto"))[0] == [events.COPIES]
    monkeypatch.setenv("REDISTRIB_VIA", "copies")
    assert events_of(lambda: rd.reshard(array, target))[0] == [events.COPIES]
    monkeypatch.delenv("REDISTRIB_VIA")
    assert events_of(lambda: rd.reshard(array, target))[0] == [events.COPIES]
    assert events_of(lambda: rd.reshard(array, target, memory_limit="1MiB"))[0] == [events.LAUNCH]
    with pytest.raises(ChoiceError, match="via 'mail'; choose 'auto', 'collectives' or 'copies'"):
        rd.reshard(array, target, via="mail")  # type: ignore[arg-type]


@pytest.mark.parametrize("level", ["disallow", "disallow_explicit"])
def test_guards_of_transfers_let_copies_pass(level: str) -> None:
    array = jax.device_put(values((8, 8)), NamedSharding(MESHES[0], P("x")))
    target = NamedSharding(MESHES[0], P(None, "x"))
    with jax.transfer_guard(level):
        result = rd.reshard(array, target, via="copies")
    check(values((8, 8)), result, target)


def test_plans_say_what_is_copied() -> None:
    array = jax.device_put(values((8, 8)), NamedSharding(MESHES[0], P("x")))
    target = NamedSharding(MESHES[0], P(None, "x"))
    plan = rd.reshard_plan({"w": array}, target, via="copies")
    assert plan.copied == ("w",) and not plan.batches
    assert plan.received_bytes == plan.lower_bound_bytes == 256
    assert plan.peak_bytes == 2 * 8 * 4 * 4
    assert "by copies: 1" in str(plan)
    assert not rd.reshard_plan({"w": array}, target).copied


def test_padding_sums_and_keys_move_by_collectives() -> None:
    rows, columns = NamedSharding(MESHES[0], P("x")), NamedSharding(MESHES[0], P("y"))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), rows)
    assert rd.reshard_plan(keys, columns, via="copies").order == ("",)
    padded = jax.device_put(values((8, 8)), rows)
    assert rd.reshard_plan(padded, columns, logical_shape=(7, 8), via="copies").order == ("",)


def test_the_rule_takes_the_quicker_way() -> None:
    """Rates decide: of boxes, bytes and launches."""
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
    whole, rows, columns = (NamedSharding(mesh, spec) for spec in (P(), P("x"), P(None, "x")))
    large, small = (8192, 8192), (64, 64)
    assert CopyRates().prefers_copies(TileCopies(large, rows, columns), 4)
    assert CopyRates().prefers_copies(TileCopies(small, rows, columns), 4)
    assert not CopyRates(byte=0.2e-9).prefers_copies(TileCopies(large, whole, rows), 4)
    assert CopyRates(byte=0.2e-9).prefers_copies(TileCopies(large, rows, whole), 4)
    assert not CopyRates(box=1e-4).prefers_copies(TileCopies(small, rows, columns), 4)
