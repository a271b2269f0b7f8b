"""Coalesced whole tiles against the reference: every pattern of small plans, tiles of one size and of several."""

from __future__ import annotations

from functools import cache, partial
from itertools import product

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.buckets.coalesced import TilePattern, coalesced, coalescing_key, pattern_of
from redistrib.backends.jax.buckets.compiled import numbers
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.with_sharding import argument, with_sharding
from redistrib.plans import reference
from redistrib.plans.plan import Plan

MESH = "x=2, y=2, z=2"
DEVICES = 8
FLAT = Mesh(np.array(jax.devices()[:DEVICES]), ("devices",))
SIDES = {
    (16,): ("[16]", "[2{x,y,z}16]", "[2{z,y,x}16]", "[4{y,x}16]", "[8{z}16]"),
    (2, 24): ("[2, 24]", "[2, 3{x,y,z}24]", "[2, 3{y,z,x}24]", "[1{x}2, 6{y,z}24]", "[2, 12{x}24]"),
    (8, 6, 2): ("[8, 6, 2]", "[1{x,y,z}8, 6, 2]", "[2{y,x}8, 3{z}6, 2]", "[4{x}8, 3{y}6, 1{z}2]", "[4{z}8, 6, 2]"),
}


@cache
def plans() -> list[Plan]:
    """Small plans that have patterns, and such as have none."""
    pairs = [pair for sides in SIDES.values() for pair in product(sides, repeat=2)]
    return [rd.synthesize(source, target, MESH) for source, target in pairs]


@cache
def patterns() -> dict[TilePattern, list[Plan]]:
    found: dict[TilePattern, list[Plan]] = {}
    for plan in plans():
        pattern = pattern_of(plan)
        if pattern is not None:
            found.setdefault(pattern, []).append(plan)
    return found


def values(plan: Plan) -> np.ndarray:
    return np.random.default_rng(plan.before.tile_size).integers(0, 1 << 30, plan.shape, dtype=np.int32)


def moved(several: list[Plan], pattern: TilePattern, numbered: bool) -> list[np.ndarray]:
    """`[devices, ...]` tiles after one array of each plan has moved, coalesced."""
    context = LoweringContext(("devices",), (DEVICES,), tuple(range(DEVICES)))

    def run(numbers: tuple[jax.Array, ...], *tiles: jax.Array) -> list[jax.Array]:
        numbered_context = LoweringContext(context.names, context.sizes, context.order, numbers=numbers)
        done = coalesced([lax.squeeze(tile, (0,)) for tile in tiles], several, pattern, numbered_context)
        return [lax.expand_dims(tile, (0,)) for tile in done]

    tiles = [np.stack(reference.scatter(values(plan), plan.before)) for plan in several]
    numbers = tuple(np.int32(k) for k in range(len(several))) if numbered else ()
    specs = (P(), *[P("devices")] * len(tiles))
    program = jax.shard_map(run, mesh=FLAT, in_specs=specs, out_specs=P("devices"), check_vma=False)
    return [np.asarray(tile) for tile in jax.jit(program)(numbers, *tiles)]


def test_the_sample_has_every_kind_of_pattern() -> None:
    kinds = {(bool(pattern.pairs), bool(pattern.groups)) for pattern in patterns()}
    assert kinds == {(True, False), (False, True), (True, True)}
    assert any(len({plan.before.tile_size for plan in several}) > 1 for several in patterns().values())
    assert any(pattern_of(plan) is None for plan in plans() if plan.steps)


@pytest.mark.parametrize("numbered", [False, True])
def test_every_pattern_moves_what_the_reference_moves(numbered: bool) -> None:
    for pattern, several in patterns().items():
        by_size: dict[int, list[Plan]] = {}
        for plan in several:
            by_size.setdefault(plan.before.tile_size, []).append(plan)
        for group in (several, *by_size.values()):
            for plan, tiles in zip(group, moved(group, pattern, numbered), strict=True):
                wanted = reference.run(plan, reference.scatter(values(plan), plan.before))
                np.testing.assert_array_equal(tiles, np.stack(wanted), err_msg=str(plan))


def test_coalesced_tiles_take_one_collective_for_each_step() -> None:
    context = LoweringContext(("devices",), (DEVICES,), tuple(range(DEVICES)))
    pattern, several = max(
        patterns().items(), key=lambda entry: (bool(entry[0].pairs and entry[0].groups), len(entry[1]))
    )
    assert len(several) > 1
    program = jax.shard_map(
        lambda *tiles: coalesced(tiles, several, pattern, context),
        mesh=FLAT,
        in_specs=P("devices"),
        out_specs=P("devices"),
        check_vma=False,
    )
    rows = [(DEVICES * plan.before.tile[0], *plan.before.tile[1:]) for plan in several]
    text = jax.jit(program).lower(*[jax.ShapeDtypeStruct(shape, np.int32) for shape in rows]).as_text()
    assert text.count("stablehlo.collective_permute") == 1
    assert text.count('stablehlo.all_gather"') == 1


def test_leaves_of_several_dtypes_move_on_these_devices_and_then_on_those() -> None:
    for first in (0, DEVICES):
        mesh = Mesh(np.array(jax.devices()[first : first + DEVICES]), ("devices",))
        kinds = ("float32", "int32", "bfloat16") * 4
        whole = [(np.arange(16) + 100 * k).astype(kind) for k, kind in enumerate(kinds)]
        moved = rd.reshard(jax.device_put(whole, NamedSharding(mesh, P("devices"))), NamedSharding(mesh, P()))
        for array, wanted in zip(moved, whole, strict=True):
            assert array.sharding == NamedSharding(mesh, P())
            assert array.dtype == wanted.dtype
            for shard in array.addressable_shards:
                assert np.array_equal(shard.data, wanted)


def test_numbers_lie_on_the_devices_that_they_are_asked_for() -> None:
    for devices in (jax.devices()[:DEVICES], jax.devices()[DEVICES : 2 * DEVICES], jax.devices()[2:7]):
        for count in (1, 3, 2):
            found = numbers(frozenset(devices), count)
            assert [int(number) for number in found] == list(range(count))
            assert all(number.sharding.device_set == set(devices) for number in found)


def test_numbers_are_compiled_by_nothing_and_known_where_something_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[jax.Array] = []
    compiles: list[object] = []
    lower = jax.stages.Lowered.compile
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *given: (compiles.append(given), lower(*given))[1])
    rd.clear_caches()
    jax.jit(lambda x: (found.extend(numbers(frozenset(jax.devices()), 3)), x)[1])(1.0)
    assert [int(number) for number in found] == [0, 1, 2]
    assert not compiles


def test_what_is_cut_or_sent_and_kept_has_no_pattern() -> None:
    cut = rd.synthesize("[2{x,y,z}16, 8]", "[16, 1{x,y,z}8]", MESH)
    assert [step.kind for step in cut.steps] == ["alltoall"]
    assert pattern_of(cut) is None
    assert pattern_of(rd.synthesize("[2{x,y,z}16]", "[2{x,y,z}16]", MESH)) is None


def test_keys_and_numbers_below_four_bits_are_not_coalesced() -> None:
    (plan,) = [plan for plan in plans() if str(plan.source) == "[2{x,y,z}16]" and str(plan.target) == "[16]"]
    assert coalescing_key(plan, np.dtype(np.int8), Quirks()) is not None
    assert coalescing_key(plan, jax.numpy.dtype("int2"), Quirks()) is None
    assert coalescing_key(plan, jax.random.key(0).dtype, Quirks()) is None


def test_an_array_on_the_same_devices_in_the_same_order_is_an_argument_as_it_is() -> None:
    asked = NamedSharding(FLAT, P("devices"))
    names = Mesh(np.array(jax.devices()[:DEVICES]).reshape(2, 4), ("a", "b"))
    turned = Mesh(np.array(jax.devices()[:DEVICES])[::-1], ("devices",))
    put = partial(jax.device_put, np.arange(16))
    same = put(NamedSharding(names, P(("a", "b"))))
    assert argument(same, (16,), asked) is same
    for other in (put(NamedSharding(names, P("a"))), put(NamedSharding(turned, P("devices")))):
        shape = (DEVICES * other.addressable_shards[0].data.size,)
        taken = argument(other, shape, asked)
        assert taken is not other
        assert taken.sharding == asked
        assert np.array_equal(taken, with_sharding(other, shape, asked, weak=False))
