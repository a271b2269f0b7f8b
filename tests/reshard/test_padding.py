"""`reshard(..., logical_shape=)`: arrays in larger ones, of which neither side reads the padding of the other."""

from __future__ import annotations

import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError, TracedError, UnevenTypeError
from redistrib.run import on_virtual_devices
from tests.messages import exactly

DEVICES = np.array(jax.devices())


def _over(spec: P, *sizes: int, start: int = 0, kind: AxisType = AxisType.Auto) -> NamedSharding:
    count = int(np.prod(sizes))
    mesh = jax.sharding.Mesh(
        DEVICES[start : start + count].reshape(sizes), ("x", "y")[: len(sizes)], axis_types=(kind,) * len(sizes)
    )
    return NamedSharding(mesh, spec)


def _padded(values: np.ndarray, shape: tuple[int, ...], fill: Any) -> np.ndarray:
    whole = np.full(shape, fill, values.dtype)
    whole[tuple(slice(n) for n in values.shape)] = values
    return whole


def _values(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return (1 + np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)


def _least(sharding: NamedSharding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """What the shape is padded to: worked out from the spec."""
    result = []
    for size, entry in zip(shape, (*sharding.spec, *[None] * len(shape)), strict=False):
        names = () if entry is None else (entry,) if isinstance(entry, str) else entry
        tiles = int(np.prod([sharding.mesh.shape[name] for name in names], dtype=int))
        result.append(-(-size // tiles) * tiles)
    return tuple(result)


def _moved(
    logical: tuple[int, ...], shape: tuple[int, ...], source: NamedSharding, target: NamedSharding, **options: Any
) -> jax.Array:
    """Move an array whose padding is what no value is, and look at every element of what comes out."""
    dtype = options.pop("dtype", np.float32)
    values = _values(logical, dtype)
    fill = np.nan if np.issubdtype(values.dtype, np.floating) else 99
    array = jax.device_put(_padded(values, shape, fill), source)
    with jax.transfer_guard("disallow_explicit"):
        moved = jax.block_until_ready(rd.reshard(array, target, logical_shape=logical, **options))
    assert moved.sharding == target
    assert moved.shape == _least(target, logical)
    np.testing.assert_array_equal(np.asarray(moved), _padded(values, moved.shape, 0))
    return moved


def test_a_vocabulary_padded_otherwise_on_each_side() -> None:
    there = _moved((50257, 2), (50264, 2), _over(P("x"), 8), _over(P("x"), 4, 2))
    assert there.shape == (50260, 2)
    back = rd.reshard(there, _over(P("x"), 8), logical_shape=(50257, 2))
    assert back.shape == (50264, 2)
    np.testing.assert_array_equal(np.asarray(back)[:50257], np.asarray(there)[:50257])
    plan = rd.reshard_plan(there, _over(P("x"), 8), logical_shape=(50257, 2), machine="exact")
    assert plan.received_bytes == plan.lower_bound_bytes  # of the array: no padding is sent
    assert plan.lower_bound_bytes < rd.reshard_plan(there, _over(P(), 8), machine="exact").lower_bound_bytes


CASES = {
    "rows to columns": ((9, 7), (12, 7), _over(P("x"), 4), _over(P(None, "x"), 4)),
    "to replicated": ((9, 7), (12, 7), _over(P("x"), 4), _over(P(), 4)),
    "from replicated": ((9, 7), (9, 7), _over(P(), 4), _over(P("x"), 4)),
    "more padding than is needed": ((9, 7), (32, 8), _over(P("x"), 4), _over(P("x"), 4)),
    "both dimensions": ((9, 7), (12, 8), _over(P("x", "y"), 4, 2), _over(P("y", "x"), 4, 2)),
    "two axes on one": ((9, 7), (16, 7), _over(P(("x", "y")), 4, 2), _over(P(("y", "x")), 4, 2)),
    "other meshes": ((9, 7), (12, 7), _over(P("x"), 4, 2), _over(P("y"), 2, 4)),
    "other devices": ((9, 7), (12, 7), _over(P("x"), 4), _over(P("x"), 3, start=4)),
    "fewer devices": ((9, 7), (16, 7), _over(P("x"), 8), _over(P("x"), 6)),
    "whole tiles of padding": ((3, 2), (8, 2), _over(P("x"), 8), _over(P("x"), 2, 4)),
    "only padding is dropped": ((9, 7), (16, 7), _over(P("x"), 8), _over(P("x"), 8)),
    "nothing but zeros": ((9, 8), (12, 8), _over(P("x"), 4), _over(P("x"), 4)),
    "to one device": ((9, 7), (12, 7), _over(P("x"), 4), _over(P(), 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_padding_is_neither_sent_nor_read(name: str) -> None:
    logical, shape, source, target = CASES[name]
    _moved(logical, shape, source, target, machine="exact" if len(name) % 2 else "tpu")


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.bool_, np.complex64])
def test_every_dtype(dtype: Any) -> None:
    values = np.asarray(jnp.asarray(_values((9, 7)) % 2, dtype))
    array = jax.device_put(_padded(values, (12, 7), np.ones((), values.dtype)), _over(P("x"), 4))
    moved = rd.reshard(array, _over(P(None, "x"), 4), logical_shape=(9, 7))
    assert np.asarray(moved).tobytes() == _padded(values, (9, 8), np.zeros((), values.dtype)).tobytes()


def test_keys_travel_too() -> None:
    keys = jax.device_put(jax.random.split(jax.random.key(3), 8), _over(P("x"), 4))
    moved = rd.reshard(keys, _over(P("x"), 2, 2), logical_shape=(5,))
    assert moved.shape == (6,)
    data = np.asarray(jax.random.key_data(moved))
    np.testing.assert_array_equal(data[:5], np.asarray(jax.random.key_data(keys))[:5])
    assert not data[5:].any()


@pytest.mark.parametrize(
    ("seed", "pairs"),
    [pytest.param(18, 25, marks=pytest.mark.long), pytest.param(19, 100, marks=pytest.mark.exhaustive)],
)
def test_drawn_pairs(seed: int, pairs: int) -> None:
    draw = random.Random(seed)
    specs = [P("x"), P("y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")), P()]
    for _ in range(pairs):
        meshes = [draw.choice([(2, 2), (4, 2), (2, 4), (3, 2)]) for _ in range(2)]
        source, target = (_over(draw.choice(specs), *sizes, start=draw.choice([0, 0, 3])) for sizes in meshes)
        logical = (draw.randint(1, 13), draw.randint(1, 9))
        shape = tuple(
            n + draw.choice([0, 1]) * step
            for n, step in zip(_least(source, logical), _least(source, (1, 1)), strict=True)
        )
        _moved(logical, shape, source, target, machine=draw.choice(["exact", "cpu", "tpu"]))


def test_a_tree_of_which_some_leaves_have_padding(fresh: None) -> None:
    values = _values((9, 7))
    target = _over(P(None, "x"), 4)
    tree = {
        "embedding": jax.device_put(_padded(values, (12, 7), np.nan), _over(P("x"), 4)),
        "rest": [jax.device_put(_values((8, 8)), _over(P("x"), 4)) for _ in range(2)],
    }
    shapes = {"embedding": jax.ShapeDtypeStruct((9, 7), jnp.float32), "rest": None}  # or (9, 7)
    for options in ({}, {"donate": True, "memory_limit": "1MiB"}):
        given = jax.tree.map(lambda leaf: leaf + 0, tree)
        moved = rd.reshard(given, target, logical_shape=shapes, **options)
        np.testing.assert_array_equal(np.asarray(moved["embedding"]), _padded(values, (9, 8), 0))
        for leaf in moved["rest"]:
            np.testing.assert_array_equal(np.asarray(leaf), _values((8, 8)))
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given)) == bool(options)
    text = str(rd.reshard_plan(tree, target, logical_shape=shapes))
    assert "[3{x}9+3, 7] -> [9, 2{x}7+1]" in text


@pytest.mark.usefixtures("by_collectives")
def test_without_padding_nothing_is_new(fresh: None) -> None:
    array, target = jax.device_put(_values((8, 8)), _over(P("x"), 4)), _over(P(None, "x"), 4)
    rd.reshard(array, target)
    rd.reshard(array, target, logical_shape=(8, 8))
    assert rd.cache_info()["plans"].misses == 1
    kept = rd.reshard(array, _over(P("x"), 4), logical_shape=(8, 8))
    assert kept.unsafe_buffer_pointer is not None
    assert rd.reshard_plan(array, _over(P("x"), 4), logical_shape=(8, 8)).kept == ("",)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("same", [True, False])
def test_inside_jit_and_under_differentiation(kind: AxisType, same: bool) -> None:
    source = _over(P("x"), 4, 2, kind=kind)
    target = _over(P(None, "y"), 4, 2, kind=kind) if same else _over(P(None, "y"), 2, 4, kind=kind)
    values = _values((9, 7))
    array = jax.device_put(_padded(values, (12, 7), np.nan), source)

    def move(x: jax.Array) -> jax.Array:
        return rd.reshard(x, target, source=source, logical_shape=(9, 7))

    want = _padded(values, _least(target, (9, 7)), 0)
    np.testing.assert_array_equal(np.asarray(jax.jit(move)(array)), want)
    found = jax.jit(jax.grad(lambda x: (move(x) ** 2).sum()))(array)
    assert found.shape == (12, 7)
    np.testing.assert_array_equal(np.asarray(found), _padded(2 * values, (12, 7), 0))
    out, tangent = jax.jvp(jax.jit(move), (array,), (array,))
    np.testing.assert_array_equal(np.asarray(out), np.asarray(tangent))


def test_a_plan_of_padded_types_as_a_function() -> None:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    there, back = (
        rd.synthesize(*ends, "x=4") for ends in (("[3{x}9+3, 7]", "[9, 2{x}7+1]"), ("[9, 2{x}7+1]", "[3{x}9+3, 7]"))
    )
    move = rd.to_jax(there, mesh, reverse=back)
    values = _values((9, 7))
    array = jax.device_put(_padded(values, (12, 7), np.nan), move.source_sharding)
    np.testing.assert_array_equal(np.asarray(move(array)), _padded(values, (9, 8), 0))
    found = jax.jit(jax.grad(lambda x: (move(x) ** 3).sum()))(array)
    np.testing.assert_array_equal(np.asarray(found), _padded(3 * values**2, (12, 7), 0))
    with pytest.raises(
        TracedError,
        match=exactly(
            "from [3{x}9+3, 7] to [9, 2{x}7+1] arrays change their padding, so only a plan knows "
            "the way of a cotangent back; give one as reverse="
        ),
    ):
        jax.jit(jax.grad(lambda x: rd.to_jax(there, mesh)(x).sum()))(array)
    with pytest.raises(
        rd.errors.SourceArrayError,
        match=exactly("the plan starts from an array of shape (12, 7), got (9, 7); plan for this shape"),
    ):
        move(jnp.zeros((9, 7)))


def test_padding_as_it_is_wanted() -> None:
    values, target = _values((9, 7)), _over(P("x"), 4, 2)
    array = jax.device_put(_padded(values, (12, 7), np.nan), _over(P("x"), 4))
    wanted = jax.ShapeDtypeStruct((32, 8), np.float32, sharding=target)
    moved = rd.reshard(array, wanted, logical_shape=(9, 7))
    assert (moved.shape, moved.sharding) == ((32, 8), target)
    np.testing.assert_array_equal(np.asarray(moved), _padded(values, (32, 8), 0))
    for shape in ((8, 7), (30, 7), (32, 7, 1), (32, 6)):
        with pytest.raises(
            LeafError,
            match=exactly(
                f"the shape {shape} has no room for (9, 7) in equal tiles on the target; each size must be "
                "a multiple of (4, 1) and at least (12, 7)"
            ),
        ):
            rd.reshard(array, jax.ShapeDtypeStruct(shape, np.float32, sharding=target), logical_shape=(9, 7))
    with pytest.raises(
        LeafError,
        match=exactly(f"ShapeDtypeStruct of shape {wanted.shape} is no jax.sharding.Sharding; give a NamedSharding"),
    ):
        rd.reshard(array, wanted)


# ------------------------------------------------------------------------------------------ what is refused


def test_types_that_no_array_of_jax_has() -> None:
    mesh = jax.make_mesh((4,), ("x",))
    for pair in (("[3~{x}9, 7]", "[9, 7]"), ("[9, 7]", "[3^{x}9, 7]")):
        uneven = max(pair, key=len)
        with pytest.raises(
            UnevenTypeError,
            match=exactly(
                f"JAX takes tiles of one size, and those of {uneven} are of unequal size or padded; keep "
                "the array in one with padding, as redistrib.reshard(..., logical_shape=) does, or use MPI"
            ),
        ):
            rd.to_jax(rd.synthesize(*pair, "x=4"), mesh)
    padded = rd.synthesize("[3{x}9+3]", "[9]", "x=4")
    with pytest.raises(
        UnevenTypeError,
        match=exactly(
            "a run beside XLA takes tiles of one size, and those of [3{x}9+3] are of unequal size "
            "or padded; take axes that divide the array, or an array with padding as elements like "
            "any others"
        ),
    ):
        on_virtual_devices(padded)


@pytest.mark.parametrize("logical", [(9,), (13, 7), (0, 7), (9, 7, 1), (-1, 7), 9])
def test_a_logical_shape_that_is_no_part_of_the_array(logical: Any) -> None:
    array = jax.device_put(_values((12, 7)), _over(P("x"), 4))
    why = (
        f"the logical shape {logical} is not at the front of an array of shape (12, 7); give one "
        "size for each dimension, from 1 to that of the array"
    )
    with pytest.raises(LeafError, match=exactly(why)):
        rd.reshard(array, _over(P(), 4), logical_shape=logical)
    with pytest.raises(LeafError, match=exactly(f"leaf w: {why}")):
        rd.reshard({"w": array}, _over(P(), 4), logical_shape={"w": logical})


def test_a_value_of_the_host_has_no_padding() -> None:
    with pytest.raises(LeafError, match=exactly("ndarray has no padding; give a jax.Array, or no logical shape")):
        rd.reshard(np.ones((12, 7)), _over(P(), 4), logical_shape=(9, 7))


def test_shapes_that_are_no_prefix_of_the_tree() -> None:
    array = jax.device_put(_values((12, 7)), _over(P("x"), 4))
    with pytest.raises(LeafError):
        rd.reshard({"w": array}, _over(P(), 4), logical_shape={"v": (9, 7)})


def test_summands_have_no_padding() -> None:
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    array = rd.reshard(
        jax.device_put(_values((12, 8)), NamedSharding(mesh, P())), NamedSharding(mesh, P("x", unreduced={"y"}))
    )
    with pytest.raises(
        ValueError,
        match=exactly(
            "a reduction takes tiles of one size, and those of [3{x}9+3, 8] sum{y} are of unequal "
            "size or padded; take axes that divide the array, or an array with padding as elements "
            "like any others"
        ),
    ):
        rd.reshard(array, NamedSharding(mesh, P("x")), logical_shape=(9, 8))
