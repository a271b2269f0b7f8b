"""`reshard` with a function on the way: the results of `jax.jit`, under the shardings, in the fewest bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError, MemoryLimitError, SpecError, ThroughError
from redistrib.explain.profiling.inspect import inspect
from redistrib.resharding.through import planning, prepared
from tests.messages import exactly

from .arrays import DELETED


def line(first: int, count: int, name: str = "x") -> Mesh:
    return Mesh(np.array(jax.devices()[first : first + count]), (name,))


SOURCE, TARGET = line(0, 4, "fsdp"), line(4, 4, "tp")


def tree() -> dict[str, jax.Array]:
    rng = np.random.default_rng(0)
    shapes = {"q": (16, 24), "k": (16, 24), "v": (16, 24), "o": (24, 16), "scale": ()}
    specs = {"q": P("fsdp"), "k": P("fsdp"), "v": P(None, "fsdp"), "o": P("fsdp"), "scale": P()}
    return {
        name: jax.device_put(rng.normal(size=shape).astype(np.float32), NamedSharding(SOURCE, specs[name]))
        for name, shape in shapes.items()
    }


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], P]] = {
    "as it is": (lambda t: t["q"], P("tp")),
    "cast": (lambda t: t["q"].astype(jnp.bfloat16), P(None, "tp")),
    "cast and back": (lambda t: t["q"].astype(jnp.bfloat16).astype(jnp.float32), P("tp")),
    "fused, rows": (lambda t: jnp.concatenate([t["q"], t["k"], t["v"]]), P("tp")),
    "fused, columns": (lambda t: jnp.concatenate([t["q"], t["k"], t["v"]], 1), P(None, "tp")),
    "fused, transposed": (lambda t: jnp.concatenate([t["q"].T, t["o"]], 0).astype(jnp.bfloat16), P("tp")),
    "stacked": (lambda t: jnp.stack([t["q"], t["k"], t["v"], t["o"].T]), P("tp")),
    "stacked inside": (lambda t: jnp.stack([t["q"], t["k"]], 1), P(None, None, "tp")),
    "heads": (lambda t: t["q"].reshape(16, 6, 4).transpose(1, 0, 2), P(None, "tp")),
    "heads, cut inside": (lambda t: t["q"].reshape(16, 6, 4), P(None, None, "tp")),
    "merged": (lambda t: t["q"].reshape(384), P("tp")),
    "regrouped": (lambda t: t["q"].reshape(12, 32), P("tp")),
    "split": (lambda t: jnp.split(t["q"], [5, 9], 1)[1], P("tp")),
    "sliced": (lambda t: t["o"][3:15, 2:6], P("tp")),
    "strided": (lambda t: t["o"][:, ::2], P("tp")),
    "reversed": (lambda t: t["q"][::-1], P("tp")),
    "scaled": (lambda t: (t["q"] * 0.5 - 3).astype(jnp.float16), P("tp")),
    "scaled by an array": (lambda t: t["q"] * t["scale"], P("tp")),
    "sum of two": (lambda t: t["q"] + t["o"].T, P("tp")),
    "summed": (lambda t: t["q"].sum(0), P("tp")),
    "padded": (lambda t: jnp.pad(t["q"], ((1, 3), (0, 0))), P("tp")),
    "one of a constant": (lambda t: jnp.concatenate([t["q"], jnp.ones((4, 24))]), P("tp")),
    "repeated": (lambda t: jnp.broadcast_to(t["q"][:1], (8, 24)), P("tp")),
    "twice the same": (lambda t: jax.jit(jnp.transpose)(t["q"]) + jax.jit(jnp.transpose)(t["k"]), P("tp")),
    "added axis": (lambda t: jnp.squeeze(t["q"][None, :, None], 0), P("tp")),
    "unstacked": (lambda t: jnp.unstack(t["q"].reshape(4, 4, 24), axis=1)[2], P("tp")),
    "tiled": (lambda t: jnp.tile(t["q"], (2, 3)), P(None, "tp")),
    "rolled": (lambda t: jnp.roll(t["q"], 3, 0), P("tp")),
    "each repeated": (lambda t: jnp.repeat(t["q"], 2, 0), P("tp")),
    "number": (lambda t: t["scale"] * 2, P()),
    "constant": (lambda t: jnp.arange(8), P("tp")),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("same_devices", [False, pytest.param(True, marks=pytest.mark.long)])
def test_results_are_those_of_jit(name: str, same_devices: bool) -> None:
    function, spec = FUNCTIONS[name]
    target = NamedSharding(line(0, 4, "tp") if same_devices else TARGET, spec)
    before = tree()
    plan = rd.reshard_plan(before, target, through=function)
    moved = rd.reshard(before, target, through=function)
    expected = np.asarray(jax.jit(function)(before))
    assert moved.sharding == target and moved.dtype == expected.dtype and moved.shape == expected.shape
    if name == "summed":  # in another order than jit
        assert np.allclose(np.asarray(moved), expected, atol=1e-5)
    else:
        assert np.asarray(moved).tobytes() == expected.tobytes()
    assert plan.received_bytes == plan.bound_bytes
    sent = sum(inspect(bucket.program.hlo).received_bytes for bucket in plan.buckets if bucket.program.hlo)
    assert sent == plan.received_bytes


def test_many_results_and_replicas() -> None:
    before = tree()
    grid = Mesh(np.array(jax.devices()[2:10]).reshape(2, 4), ("dp", "tp"))

    def fused(t: dict[str, jax.Array]) -> dict[str, Any]:
        qkv = jnp.concatenate([t["q"], t["k"], t["v"]], 1).astype(jnp.bfloat16)
        return {"layers": [{"qkv": qkv, "o": t["o"].astype(jnp.bfloat16)}], "scale": t["scale"]}

    shardings = {
        "layers": [{"qkv": NamedSharding(grid, P(None, "tp")), "o": NamedSharding(grid, P("tp"))}],
        "scale": NamedSharding(grid, P()),
    }
    moved = rd.reshard(before, shardings, through=fused)
    expected = jax.jit(fused)(before)
    assert jax.tree.structure(moved) == jax.tree.structure(expected)
    assert jax.tree.all(
        jax.tree.map(lambda a, b: np.array_equal(a, b), jax.device_get(moved), jax.device_get(expected))
    )
    assert jax.tree.map(lambda array: array.sharding, moved) == shardings


def test_bytes_are_those_of_the_narrower_type() -> None:
    before = {name: array for name, array in tree().items() if name in "qkv"}
    target = NamedSharding(TARGET, P(None, "tp"))

    def fused(t: dict[str, jax.Array]) -> jax.Array:
        return jnp.concatenate([t["q"], t["k"], t["v"]], 1).astype(jnp.bfloat16)

    plan = rd.reshard_plan(before, target, through=fused)
    assert plan.received_bytes == plan.bound_bytes == 3 * 16 * 24 * 2
    assert "the bound of the fewest bits on the way is 2,304 (1.00x)" in str(plan)
    back = jax.device_put(before["q"].astype(jnp.bfloat16), NamedSharding(SOURCE, P("fsdp")))
    plan = rd.reshard_plan(back, NamedSharding(TARGET, P("tp")), through=lambda q: q.astype(jnp.float32) * 2)
    assert plan.received_bytes == 16 * 24 * 2


def test_a_matrix_product_is_refused_by_name() -> None:
    with pytest.raises(ThroughError, match=r"dot_general \(.*test_through.py:\d+\) is neither a view") as caught:
        rd.reshard(tree(), NamedSharding(TARGET, P("tp")), through=lambda t: t["q"] @ t["o"])
    assert caught.value.primitive == "dot_general" and "apply it before or after" in str(caught.value)


def test_donation_gives_up_what_has_moved() -> None:
    before = tree()
    moved = rd.reshard(
        before, NamedSharding(TARGET, P()), through=lambda t: {"q": t["q"].T, "s": t["scale"]}, donate=True
    )
    assert before["q"].is_deleted() and before["scale"].is_deleted()
    assert not before["k"].is_deleted()  # it is no part of the result
    assert moved["q"].shape == (24, 16)
    tied = tree()["q"]
    other = rd.reshard(tied, NamedSharding(Mesh(SOURCE.devices, ("other",)), P("other")))
    rd.reshard(tied, NamedSharding(TARGET, P()), through=lambda q: q * 2, donate=True)
    assert not other.is_deleted() and np.asarray(other).shape == (16, 24)


def test_limits_and_bad_input() -> None:
    before, target = tree(), NamedSharding(TARGET, P())
    nowhere, gone = NamedSharding(TARGET.abstract_mesh, P()), jnp.ones(8) * 2
    gone.delete()
    plan = rd.reshard_plan(before, target, through=lambda t: t["q"])
    rd.reshard(before, target, through=lambda t: t["q"], memory_limit=plan.peak_bytes)
    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard(before, target, through=lambda t: t["q"], memory_limit=plan.peak_bytes - 1)
    assert caught.value.least == plan.peak_bytes and not before["q"].is_deleted()
    for values, error, message in (
        (np.ones(3), LeafError, "ndarray is no array on devices"),
        (jax.random.key(0), LeafError, "elements of key<fry> go through no function"),
        ([gone], LeafError, exactly(f"leaf 0: {DELETED}")),
        ([jax.ShapeDtypeStruct((8,), "float32")], LeafError, "leaf 0: a ShapeDtypeStruct must say where its array is"),
        ([jax.ShapeDtypeStruct((8,), "float32", sharding=target)], LeafError, "leaf 0: a ShapeDtypeStruct has no"),
        ([jax.ShapeDtypeStruct((8,), "float32", sharding=nowhere)], LeafError, "leaf 0: .* names no devices"),
    ):
        with pytest.raises(error, match=message):
            rd.reshard(values, target, through=lambda value: value)
    with pytest.raises(SpecError, match="cannot cut into 4 equal tiles"):
        rd.reshard(before, NamedSharding(TARGET, P("tp")), through=lambda t: t["q"][:3])
    with pytest.raises(ThroughError, match="leave source= and logical_shape= out"):
        rd.reshard(before, target, through=lambda t: t["q"], logical_shape=(3, 3))
    with pytest.raises(ThroughError, match="different sets of devices"):
        rd.reshard(
            [before["q"], jax.device_put(jnp.ones((16, 24)), jax.devices()[9])], target, through=lambda t: t[0] + t[1]
        )


def test_bits_of_what_is_not_a_number_survive() -> None:
    bits = np.random.default_rng(0).integers(0, 2**16, (16, 8)).astype(np.uint16).view(jnp.bfloat16)
    array = jax.device_put(bits, NamedSharding(SOURCE, P("fsdp")))
    moved = rd.reshard(
        array, NamedSharding(TARGET, P(None, "tp")), through=lambda x: x.reshape(4, 4, 8).transpose(2, 1, 0)
    )
    assert np.asarray(moved).tobytes() == np.ascontiguousarray(bits.reshape(4, 4, 8).transpose(2, 1, 0)).tobytes()


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, Any]]]:
    """A shape and views of an array of it, one after the other."""
    shape = tuple(draw(st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=1, max_size=3)))
    first, views = shape, []
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["transpose", "reshape", "slice", "double", "rev"]))
        if kind == "transpose":
            order = draw(st.permutations(range(len(shape))))
            shape = tuple(shape[k] for k in order)
            views.append((kind, tuple(order)))
        elif kind == "reshape":
            size = math.prod(shape)
            a = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
            b = draw(st.sampled_from([d for d in range(1, size // a + 1) if size // a % d == 0]))
            shape = (a, b, size // a // b)
            views.append((kind, shape))
        elif kind == "slice":
            dim = draw(st.integers(0, len(shape) - 1))
            start = draw(st.integers(0, shape[dim] - 1))
            stop = draw(st.integers(start + 1, shape[dim]))
            shape = tuple(stop - start if k == dim else n for k, n in enumerate(shape))
            views.append((kind, (dim, start, stop)))
        elif kind == "double":
            dim = draw(st.integers(0, len(shape) - 1))
            shape = tuple(2 * n if k == dim else n for k, n in enumerate(shape))
            views.append((kind, dim))
        else:
            views.append((kind, draw(st.integers(0, len(shape) - 1))))
    return first, views


def viewed(array: Any, views: list[tuple[str, Any]]) -> Any:
    for kind, how in views:
        if kind == "transpose":
            array = array.transpose(how)
        elif kind == "reshape":
            array = array.reshape(how)
        elif kind == "slice":
            dim, start, stop = how
            array = array[tuple(slice(start, stop) if k == dim else slice(None) for k in range(array.ndim))]
        elif kind == "double":
            array = (jnp if isinstance(array, jax.core.Tracer) else np).concatenate([array, array], how)
        else:
            array = (jnp if isinstance(array, jax.core.Tracer) else np).flip(array, how)
    return array


def cut(shape: tuple[int, ...], mesh: Mesh, turn: int) -> NamedSharding:
    dims = [k for k, n in enumerate(shape) if n % 2 == 0]
    spec: list[Any] = [None] * len(shape)
    if dims:
        spec[dims[turn % len(dims)]] = mesh.axis_names[0]
    return NamedSharding(mesh, P(*spec))


@settings(max_examples=25, deadline=None)
@given(chain=chains(), turn=st.integers(0, 5))
def test_any_chain_of_views(chain: tuple[tuple[int, ...], list[tuple[str, Any]]], turn: int) -> None:
    shape, views = chain
    values = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    array = jax.device_put(values, cut(shape, line(0, 2), turn))
    expected = viewed(values, views)
    target = cut(expected.shape, line(1, 2, "y"), turn // 2)
    try:
        moved = rd.reshard(array, target, through=lambda x: viewed(x, views))
    except ThroughError as error:
        assert "scatters a tile over" in str(error)
        return
    assert moved.sharding == target and np.array_equal(moved, expected)


def layers(count: int) -> tuple[dict[str, jax.Array], Callable[[Any], Any], dict[str, NamedSharding]]:
    """So many layers of q, k, v and o, a function that fuses them, and the shardings of its result."""
    rng = np.random.default_rng(0)
    values = {f"{k}.{name}": rng.normal(size=(16, 24)).astype(np.float32) for k in range(count) for name in "qkvo"}
    before = jax.device_put(values, NamedSharding(SOURCE, P("fsdp")))

    def fused(t: Any) -> Any:
        qkv = {f"{k}.qkv": jnp.concatenate([t[f"{k}.{name}"] for name in "qkv"], 1) for k in range(count)}
        rest = {f"{k}.o": t[f"{k}.o"].T.astype(jnp.bfloat16) for k in range(count)}
        return {name: array.astype(jnp.bfloat16) for name, array in qkv.items()} | rest

    specs = {"qkv": P(None, "tp"), "o": P("tp")}
    targets = {f"{k}.{name}": NamedSharding(TARGET, spec) for k in range(count) for name, spec in specs.items()}
    return before, fused, targets


def test_layers_share_a_program() -> None:
    before, fused, targets = layers(12)
    plan = rd.reshard_plan(before, targets, through=fused)
    assert len(plan.buckets) == 12 and len({id(bucket.program) for bucket in plan.buckets}) == 1
    assert plan.received_bytes == plan.bound_bytes == 12 * 4 * 16 * 24 * 2
    moved = rd.reshard(before, targets, through=fused, progress=False)
    expected = jax.jit(fused)(before)
    assert all(np.asarray(moved[name]).tobytes() == np.asarray(expected[name]).tobytes() for name in expected)


def test_devices_that_do_the_same_share_code() -> None:
    before, fused, targets = layers(1)
    (bucket,) = rd.reshard_plan(before, targets, through=fused).buckets
    pack, unpack = bucket.program._pack.hlo, bucket.program._unpack.hlo
    assert "conditional" not in pack  # all senders cut the same boxes, at other places
    assert unpack.count("branch_computations") == 1  # quarters of q, k and v side by side have other parts
    before = {"w": before["0.q"]}
    plan = rd.reshard_plan(before, NamedSharding(TARGET, P("tp")), through=lambda t: t["w"].T * 2)
    program = plan.buckets[0].program
    assert "conditional" not in program._pack.hlo + program._unpack.hlo


def test_a_limit_on_memory_makes_launches_smaller() -> None:
    values = {str(k): jnp.full((64 + 4 * k, 64), k, jnp.float32) for k in range(2)}  # not alike
    before = jax.device_put(values, NamedSharding(SOURCE, P("fsdp")))
    target = NamedSharding(TARGET, P("tp"))

    def turned(t: Any) -> Any:
        return {name: array.T for name, array in t.items()}

    whole = rd.reshard_plan(before, target, through=turned)
    assert len(whole.buckets) == 1
    plan = rd.reshard_plan(before, target, through=turned, memory_limit=whole.peak_bytes - 1)
    assert len(plan.buckets) == 2 and plan.peak_bytes < whole.peak_bytes
    moved = rd.reshard(before, target, through=turned, memory_limit=plan.peak_bytes)
    assert all(np.array_equal(moved[name], np.asarray(before[name]).T) for name in before)
    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard(before, target, through=turned, memory_limit=plan.peak_bytes - 1)
    assert caught.value.least == plan.peak_bytes


def test_a_bar_shows_the_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    before, fused, targets = layers(1)
    rd.reshard(before, targets, through=fused, progress=True)
    assert "resharding" in capsys.readouterr().err
    rd.reshard(before, targets, through=fused)
    assert not capsys.readouterr().err


def test_partial_sums_and_traced_arrays_are_refused() -> None:
    explicit = Mesh(SOURCE.devices, ("fsdp",), axis_types=(AxisType.Explicit,))
    summands = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=NamedSharding(explicit, P(unreduced={"fsdp"})))
    with pytest.raises(LeafError, match="its tiles are partial sums; reshard it without through= first"):
        rd.reshard_plan(summands, NamedSharding(TARGET, P()), through=lambda x: x.T)
    with pytest.raises(ThroughError, match="under jit, reshard the function's result"):
        jax.jit(lambda x: rd.reshard(x, NamedSharding(SOURCE, P()), through=lambda x: x.T))(tree()["q"])


VECTOR, COLUMN, FULL = (
    np.random.default_rng(k).normal(size=shape).astype(np.float32) for k, shape in enumerate([(24,), (16, 1), (16, 24)])
)
CAPTURED: dict[str, Callable[[], Any]] = {  # made in each test: by the devices of a mesh
    "vector of NumPy": lambda: VECTOR,
    "vector of JAX": lambda: jnp.asarray(VECTOR),
    "column": lambda: COLUMN,
    "scalar": lambda: jnp.float32(2.5),
    "cut as the tree": lambda: jax.device_put(FULL, NamedSharding(SOURCE, P(None, "fsdp"))),
    "cut as the tree, a vector": lambda: jax.device_put(VECTOR, NamedSharding(SOURCE, P("fsdp"))),
    "on the target's mesh": lambda: jax.device_put(FULL, NamedSharding(TARGET, P("tp"))),
    "on a third mesh": lambda: jax.device_put(VECTOR, NamedSharding(line(1, 2), P())),
}
USES: dict[str, Callable[[Any, Any], Any]] = {
    "added": lambda t, c: t["q"] + c,
    "in a function of jit, cast": lambda t, c: jax.jit(lambda q: (q * c).astype(jnp.bfloat16))(t["q"]),
    "first changed": lambda t, c: t["q"] * jnp.cumsum(jnp.atleast_1d(c), 0)[-1:],
    "beside": lambda t, c: jnp.concatenate([t["q"], jnp.broadcast_to(c, (16, 24))]).T,
    "chosen": lambda t, c: jnp.where(jnp.broadcast_to(c, (16, 24)) > 0, t["q"], 0),
}


@pytest.mark.long
@pytest.mark.parametrize("use", USES)
def test_captured_arrays_of_every_kind(use: str) -> None:
    before = {"q": tree()["q"]}
    for target in (NamedSharding(TARGET, P("tp")), NamedSharding(line(0, 4, "tp"), P(None, "tp"))):
        for kind, make in CAPTURED.items():
            captured = make()
            plan = rd.reshard_plan(before, target, through=partial(_use, USES[use], captured))
            moved = rd.reshard(before, target, through=partial(_use, USES[use], captured))
            expected = np.asarray(USES[use]({"q": jnp.asarray(np.asarray(before["q"]))}, np.asarray(captured)))
            assert (moved.dtype, moved.sharding) == (expected.dtype, target), kind
            assert np.allclose(np.asarray(moved, np.float32), np.asarray(expected, np.float32), rtol=1e-2), kind
            assert plan.received_bytes == plan.bound_bytes


def _use(use: Callable[[Any, Any], Any], captured: Any, t: Any) -> Any:
    return use(t, captured)


@pytest.mark.usefixtures("fresh")
def test_new_captured_values_are_planned_once_and_never_those_of_an_earlier_call() -> None:
    """Each array dies after its call, and the next may have its id; also inside a function that is called."""
    before, target, rng = tree(), NamedSharding(TARGET, P(None, "tp")), np.random.default_rng(0)
    after: list[int] = []
    for k in range(24):
        vector, scalar = jnp.asarray(rng.normal(size=24).astype(np.float32)), jnp.float32(k)
        moved = rd.reshard(before, target, through=lambda t: jax.jit(lambda q: q * vector)(t["q"] + scalar))  # noqa: B023
        assert np.array_equal(moved, (np.asarray(before["q"]) + np.float32(k)) * np.asarray(vector))
        after.append(prepared._PLANS.info.misses + planning._PROGRAMS.info.misses)
    assert after == [2] * 24


def test_a_captured_scalar_is_taken_before_the_move() -> None:
    scale = jnp.float32(3)
    plan = rd.reshard_plan(
        tree()["q"], NamedSharding(TARGET, P("tp")), through=lambda q: (q * scale).astype(jnp.bfloat16)
    )
    assert plan.received_bytes == plan.bound_bytes == 16 * 24 * 2


def test_captured_arrays_are_never_given_up() -> None:
    values = [np.full((16, 24), k, np.float32) for k in range(3)]
    a, b, c = (jax.device_put(value, NamedSharding(SOURCE, P("fsdp"))) for value in values)
    target = NamedSharding(TARGET, P("tp"))
    moved = rd.reshard([a, b], target, through=lambda t: [t[0] * c, t[1] + b], donate=True)
    assert a.is_deleted() and not c.is_deleted()
    assert np.array_equal(moved[0], values[0] * values[2]) and np.array_equal(moved[1], values[1] * 2)
    assert np.array_equal(c, values[2])


def test_what_cannot_be_captured_is_refused() -> None:
    q, target, key, packed = tree()["q"], NamedSharding(TARGET, P()), jax.random.key(0), jnp.ones(24, jnp.int4)
    dead = jnp.ones(24) * 2
    dead.delete()
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: jax.jit(lambda c: rd.reshard(q, target, through=lambda q: q * c))(VECTOR), "captures a traced array"),
        (lambda: jax.grad(lambda c: rd.reshard(q, target, through=lambda q: q * c).sum())(1.0), "a traced array"),
        (lambda: rd.reshard(q, target, through=lambda q: q * dead), "donated or deleted; capture one that is alive"),
        (
            lambda: rd.reshard(q, target, through=lambda q: q * _drawn(key)),
            "whose elements go through no",
        ),
        (lambda: rd.reshard(q, target, through=lambda q: q * packed.astype(q.dtype)), "int4.* go through no function"),
    ]
    for call, message in cases:
        with pytest.raises(ThroughError, match=message):
            call()


def _drawn(key: jax.Array) -> jax.Array:
    return jax.random.uniform(key, (24,))


def test_a_concrete_tree_moves_inside_a_traced_function() -> None:
    q = tree()["q"]
    moved = jax.jit(lambda x: x + rd.reshard(q, NamedSharding(TARGET, P("tp")), through=lambda q: q + VECTOR)[0, 0])(
        1.0
    )
    assert moved == np.asarray(q)[0, 0] + VECTOR[0] + 1


def test_results_without_elements_and_padding_by_an_array() -> None:
    before, target = tree(), NamedSharding(TARGET, P("tp"))
    assert rd.reshard(before, target, through=lambda t: t["q"][:, :0]).shape == (16, 0)
    padded = rd.reshard(before, target, through=lambda t: jax.lax.pad(t["q"], t["scale"], ((1, 3, 0), (0, 0, 0))))
    assert np.array_equal(padded, np.pad(before["q"], ((1, 3), (0, 0)), constant_values=before["scale"]))


def test_types_are_those_of_jit_for_weak_types_and_64_bits() -> None:
    weak = rd.reshard(jnp.asarray(2.0), NamedSharding(SOURCE, P()))
    for function in (lambda x: x * 2, lambda x: x * jnp.ones(4, jnp.bfloat16)):
        moved, expected = rd.reshard(weak, NamedSharding(TARGET, P()), through=function), jax.jit(function)(weak)
        assert (moved.dtype, moved.aval.weak_type) == (expected.dtype, expected.aval.weak_type)
    with jax.enable_x64(True):
        wide = jax.device_put(FULL.astype(np.float64), NamedSharding(SOURCE, P("fsdp")))
        moved = rd.reshard(wide, NamedSharding(TARGET, P("tp")), through=lambda q: q * np.pi)
        assert np.array_equal(moved, FULL.astype(np.float64) * np.pi)
    with pytest.raises(LeafError, match="computes no float64 while jax_enable_x64 is off; set it, or cast"):
        rd.reshard(wide, NamedSharding(TARGET, P("tp")), through=lambda q: q * np.pi)
