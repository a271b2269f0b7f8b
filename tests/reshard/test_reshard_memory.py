"""Donation and memory limits, held against the buffers that are really alive."""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import ChoiceError, MemoryLimitError
from redistrib.launches import buckets
from redistrib.resharding import eager
from tests.messages import exactly
from tests.reshard.arrays import COLUMNS, EIGHT, GRID, ROWS

WHOLE = NamedSharding(GRID, P())
KIB = 1024


def matrix(sharding: Any = ROWS, shape: tuple[int, ...] = (256, 256)) -> jax.Array:
    made: jax.Array = jax.block_until_ready(
        jax.device_put(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), sharding)
    )
    return made


def live_bytes() -> Counter[int]:
    """Bytes of live buffers by device id; a buffer that several arrays share counts once."""
    gc.collect()
    found: dict[tuple[int, int], int] = {}
    for array in jax.live_arrays():
        if not array.is_deleted():
            for shard in array.addressable_shards:
                found[shard.device.id, shard.data.unsafe_buffer_pointer()] = shard.data.nbytes
    total: Counter[int] = Counter()
    for (device, _), size in found.items():
        total[device] += size
    return total


def added(before: Counter[int]) -> set[int]:
    """Bytes that the eight devices hold more than before."""
    now = live_bytes()
    return {now[device] - before[device] for device in range(8)}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("target", [COLUMNS, NamedSharding(GRID, P("b", "a")), WHOLE])
def test_donation_frees_the_source(target: NamedSharding) -> None:
    empty = live_bytes()
    array = matrix()
    assert added(empty) == {32 * KIB}
    moved = jax.block_until_ready(rd.reshard(array, target, donate=True))
    assert array.is_deleted()
    rd.clear_caches()  # which keep numbers for programs on the devices
    assert added(empty) == {moved.addressable_shards[0].data.nbytes}
    assert np.array_equal(moved, np.arange(256 * 256, dtype=np.float32).reshape(256, 256))


@pytest.mark.usefixtures("fresh")
def test_without_donation_the_source_stays() -> None:
    empty = live_bytes()
    array = matrix()
    moved = jax.block_until_ready(rd.reshard(array, COLUMNS))
    rd.clear_caches()
    assert added(empty) == {32 * KIB + 64 * KIB}
    assert np.array_equal(array, moved)


def test_tied_leaves_are_donated_once_and_kept_leaves_survive() -> None:
    tied = matrix()
    moved = rd.reshard(
        {"a": tied, "b": tied, "c": rd.reshard(tied, NamedSharding(GRID, P(("a", "b"))))}, COLUMNS, donate=True
    )
    assert all(np.array_equal(leaf, moved["a"]) for leaf in moved.values())
    assert tied.is_deleted()
    kept = matrix()
    moved = rd.reshard({"a": kept, "b": kept}, {"a": ROWS, "b": COLUMNS}, donate=True)
    assert np.array_equal(moved["a"], moved["b"])
    assert not moved["a"].is_deleted()


# --------------------------------------------------------------------------------------- limits


def model(layers: int = 4) -> tuple[dict[str, Any], dict[str, Any]]:
    """Leaves that grow, shrink and keep their size when they move."""
    rows = {f"grow{k}": matrix() for k in range(layers)}
    rows |= {f"shrink{k}": matrix(WHOLE, (128, 64 * (1 + k % 2))) for k in range(layers)}
    rows |= {f"turn{k}": matrix(NamedSharding(GRID, P("a", "b"))) for k in range(layers)}
    shardings = {
        name: COLUMNS
        if name.startswith("grow")
        else ROWS
        if name.startswith("shrink")
        else NamedSharding(GRID, P("b", "a"))
        for name in rows
    }
    return rows, shardings


@pytest.mark.parametrize("donate", [False, True])
def test_every_launch_keeps_within_the_limit(donate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, shardings = model()
    values = {name: np.asarray(leaf) for name, leaf in tree.items()}
    free = rd.reshard_plan(tree, shardings, donate=donate)
    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard_plan(tree, shardings, donate=donate, memory_limit=1)
    least = caught.value.least
    with pytest.raises(MemoryLimitError) as again:
        rd.reshard_plan(tree, shardings, donate=donate, memory_limit=least - 1)
    assert again.value.least == least
    assert least < free.peak_bytes
    start = live_bytes()
    others = {device: start[device] - free.before_bytes for device in range(8)}
    seen: list[int] = []
    launched = eager.PreparedReshard._launched

    def watched(self: Any, batch: Any, results: Any) -> Any:
        moved = jax.block_until_ready(launched(self, batch, results))
        scratch = batch.program.added_bytes - sum(item.target_bytes for item in batch.items)
        if not donate:  # then all that was alive during the launch still is, but for scratch
            alive = live_bytes()
            seen.append(max(alive[device] - others[device] for device in range(8)) + max(scratch, 0))
            assert seen[-1] <= batch.peak_bytes <= least
        return moved

    monkeypatch.setattr(eager.PreparedReshard, "_launched", watched)
    plan = rd.reshard_plan(tree, shardings, donate=donate, memory_limit=least)
    assert plan.peak_bytes == least
    moved = rd.reshard(tree, shardings, donate=donate, memory_limit=least)
    assert donate or max(seen) == least
    for name, leaf in moved.items():
        assert leaf.sharding == shardings[name]
        assert np.array_equal(leaf, values[name])
    if donate:
        assert all(leaf.is_deleted() for leaf in tree.values())


@pytest.mark.usefixtures("fresh", "by_collectives")
def test_on_cpus_a_launch_starts_when_the_one_before_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches in flight share a pool of threads; enough of them wait for one another for ever."""
    launched, before = eager.PreparedReshard._launched, list[jax.Array]()
    unfinished: list[bool] = []

    def watched(self: Any, batch: Any, results: Any) -> Any:
        unfinished.append(not all(array.is_ready() for array in before))
        before[:] = launched(self, batch, results)
        return list(before)

    monkeypatch.setattr(eager.PreparedReshard, "_launched", watched)
    # Large enough that a launch takes far longer than it takes to start the next one, and that leaves do not share one.
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 1)
    tree = [matrix(shape=(1024 * (k + 1), 2048)) for k in range(4)]
    rd.reshard(tree, COLUMNS)
    assert unfinished == [False] * 4


@pytest.mark.usefixtures("fresh")
def test_on_cpus_all_has_arrived_when_the_call_returns() -> None:
    """What the caller starts next would run beside it, in the same pool of threads."""
    tree = [matrix(shape=(1024 * (k + 1), 2048)) for k in range(4)]
    for limit in (None, "1GiB"):
        rd.reshard_plan(tree, COLUMNS, memory_limit=limit)
        assert all(array.is_ready() for array in rd.reshard(tree, COLUMNS, memory_limit=limit))


def test_leaves_that_free_memory_go_first_and_the_others_by_what_they_leave() -> None:
    tree, shardings = model(2)
    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard_plan(tree, shardings, donate=True, memory_limit=1)
    plan = rd.reshard_plan(tree, shardings, donate=True, memory_limit=caught.value.least)
    kinds = [path[:4] for path in plan.order]
    assert kinds.index("grow") > max(k for k, kind in enumerate(kinds) if kind == "shri")


def test_the_order_is_the_best_of_all_orders() -> None:
    """The least limit, from the scheduler, against every order of the same leaves."""
    tree = {
        "a": matrix(shape=(256, 128)),
        "b": matrix(WHOLE, (64, 64)),
        "c": matrix(NamedSharding(GRID, P("a", "b")), (64, 256)),
        "d": matrix(WHOLE, (128, 128)),
        "e": matrix(shape=(64, 64)),
    }
    shardings = {"a": COLUMNS, "b": ROWS, "c": NamedSharding(GRID, P("b", "a")), "d": ROWS, "e": WHOLE}
    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard_plan(tree, shardings, donate=True, memory_limit=1)
    plan = rd.reshard_plan(tree, shardings, donate=True, memory_limit=caught.value.least)
    items = [item for batch in plan.batches for item in batch.items]
    from redistrib.resharding.planning import Planner

    least = {item.path: Planner(None).least(item, np.dtype("float32")) for item in items}

    def peak(order: Any) -> int:
        alive = worst = plan.before_bytes
        for item in order:
            worst = max(worst, alive + least[item.path])
            alive += item.target_bytes - item.source_bytes
        return worst

    assert caught.value.least == min(peak(order) for order in itertools.permutations(items))


def test_lower_and_lower_limits_one_after_the_other() -> None:
    """What was planned under a higher limit is no plan under a lower one."""
    tree, shardings = model(1)
    limits = [rd.reshard_plan(tree, shardings).peak_bytes]
    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard_plan(tree, shardings, memory_limit=1)
    least = caught.value.least
    limits += [least + (limits[0] - least) * part // 4 for part in (3, 2, 1, 0)]
    for limit in [*limits, *reversed(limits)]:
        plan = rd.reshard_plan(tree, shardings, memory_limit=limit)
        assert plan.memory_limit == limit
        assert plan.peak_bytes <= limit
        for batch in plan.batches:
            assert batch.program.added_bytes <= limit - plan.before_bytes
        for name, leaf in rd.reshard(tree, shardings, memory_limit=limit).items():
            assert np.array_equal(leaf, tree[name])


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("shape", [(8, 8), (64, 128)])
def test_what_a_leaf_needs_without_a_limit_is_a_limit_that_it_keeps(shape: tuple[int, ...]) -> None:
    """Of small tiles, what a program in parts needs to find its way is more than it saves."""
    leaf = matrix(COLUMNS, shape)
    target = NamedSharding(GRID, P(None, ("a", "b")))
    free = rd.reshard_plan(leaf, target, donate=True)
    kept = rd.reshard_plan(leaf, target, donate=True, memory_limit=free.peak_bytes)
    assert kept.peak_bytes <= free.peak_bytes


def test_every_limit_has_plans_and_programs_of_its_own() -> None:
    array = matrix()

    def planned(limit: int) -> Any:
        (batch,) = rd.reshard_plan(array, COLUMNS, memory_limit=limit).batches
        ((_, entry),) = batch.parts
        return tuple(step.kind for step in entry.plan.steps), entry.plan.to_json(), entry.schedule

    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard_plan(array, COLUMNS, memory_limit=1)
    rd.clear_caches()
    limits = [10**6, 220_000, 200_000, caught.value.least]
    found = list(map(planned, limits))
    assert len({kinds for kinds, _, _ in found}) == 3  # two of them for limits
    for limit, known in zip(limits, found, strict=True):
        rd.clear_caches()
        assert planned(limit) == known


@pytest.mark.usefixtures("fresh", "by_collectives")
def test_under_a_limit_programs_keep_no_numbers_on_the_devices() -> None:
    """Nor do they run as programs that do, compiled for the same leaf without one."""
    there, empty = NamedSharding(EIGHT, P(None, "x")), live_bytes()
    array = matrix()
    rd.reshard(array, there)
    assert min(added(empty)) > 32 * KIB
    rd.clear_caches()
    assert added(empty) == {32 * KIB}
    rd.reshard(array, there, memory_limit=10**6)
    assert added(empty) == {32 * KIB}
    plain, limited = (rd.reshard_plan(array, there, memory_limit=limit).batches[0].program for limit in (None, 10**6))
    assert plain is not limited


def test_what_device_put_brings_is_counted() -> None:
    host = np.zeros((64, 64), np.float32)
    far = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[8:16]), ("x",)), P())
    assert rd.reshard_plan(host, ROWS).before_bytes == host.nbytes // 8
    plan = rd.reshard_plan({"host": host, "far": matrix(WHOLE, (64, 64)), "near": matrix(ROWS, (64, 64))}, far)
    assert plan.by_device_put == ("far", "host") and plan.before_bytes == 2 * host.nbytes
    dummy = host.nbytes // 8  # a tile of zeros on each device that holds none of what moves by a plan
    assert plan.peak_bytes == plan.before_bytes + dummy + plan.batches[0].program.added_bytes
    both = rd.reshard_plan([host, matrix(ROWS, (64, 64))], [WHOLE, NamedSharding(EIGHT, P(None, "x"))])
    assert both.before_bytes == host.nbytes + host.nbytes // 8
    assert both.peak_bytes == both.before_bytes + both.batches[0].program.added_bytes


def test_devices_of_other_leaves_do_not_count() -> None:
    there = jax.sharding.Mesh(np.array(jax.devices()[8:16]), ("x",))
    large = matrix(NamedSharding(there, P()))
    across = [NamedSharding(EIGHT, P(None, "x")), large.sharding]
    for rows, limit in ((64, None), (64, "1MiB"), (2048, None)):
        small = matrix(ROWS, (rows, 256))
        plan = rd.reshard_plan([small, large], across, memory_limit=limit)
        (batch,) = plan.batches
        assert batch.peak_bytes == small.nbytes // 8 + batch.program.added_bytes
        assert plan.peak_bytes == max(large.nbytes, batch.peak_bytes)


def test_a_limit_given_as_text_and_limits_that_are_none() -> None:
    assert np.array_equal(rd.reshard(matrix(), COLUMNS, memory_limit="1 MiB"), matrix())
    with pytest.raises(ChoiceError):
        rd.reshard(matrix(), COLUMNS, memory_limit="much")


def test_nothing_is_donated_if_nothing_fits() -> None:
    array = matrix()
    with pytest.raises(
        MemoryLimitError,
        match=exactly("no plan fits in 40,960 bytes per device; the least memory_limit that one fits is 114,692 bytes"),
    ):
        rd.reshard({"w": array}, COLUMNS, donate=True, memory_limit=40 * KIB)
    assert not array.is_deleted()


def test_a_limit_is_cached_as_well() -> None:
    tree, shardings = model(1)
    for _ in range(2):
        rd.reshard(tree, shardings, memory_limit="2MiB")
        first = rd.cache_info()
    rd.reshard(tree, shardings, memory_limit="2MiB")
    second = rd.cache_info()
    assert [info.misses for info in second.values()] == [info.misses for info in first.values()]
