"""`reshard` of arrays whose tiles are summands, outside jit and inside; and replicas that differ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import primitive
from redistrib.errors import LeafError, MemoryLimitError, ReductionError, ReplicaError, TracedError
from redistrib.explain.profiling.inspect import inspect
from redistrib.lang.specs import spec_entries
from redistrib.testing import check_replicas
from tests.messages import exactly
from tests.reshard.meshes import AUTO, EXPLICIT, on

NAMES = ("x", "y")
pytestmark = pytest.mark.usefixtures("on_explicit_axes")
TURNED = Mesh(
    np.array(jax.devices())[[3, 1, 4, 0, 5, 2, 7, 6]].reshape(2, 4), ("p", "q"), axis_types=(AxisType.Explicit,) * 2
)


def unreduced(stack: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """An array of summands, numbered along the axes in the order of their names."""
    spec = sharding.spec
    if not stack.size:  # JAX 0.12 has no function with such a result
        tile = np.zeros(sharding.shard_shape(stack.shape[1:]), stack.dtype)
        tiles = [jax.device_put(tile, device) for device in sharding.mesh.devices.flat]
        return jax.make_array_from_single_device_arrays(stack.shape[1:], sharding, tiles)
    first = P(tuple(sorted(spec.unreduced))[::-1], *spec_entries(spec))
    make = jax.shard_map(lambda slab: slab[0], mesh=sharding.mesh, in_specs=first, out_specs=spec, check_vma=False)
    return jax.jit(make)(jax.device_put(stack, NamedSharding(sharding.mesh, first)))


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


STACKS = {
    "rows": numbers(2, 16, 8),
    "half": numbers(8, 16, 8, dtype=jnp.bfloat16),
    "loss": numbers(8),
    "none": numbers(2, 0, 8),
    "int8": numbers(4, 16, 8, dtype=np.int8),
}
SOURCES = {
    "rows": P("x", None, unreduced={"y"}),
    "half": P(unreduced={"x", "y"}),
    "loss": P(unreduced={"x", "y"}),
    "none": P("x", None, unreduced={"y"}),
    "int8": P("y", unreduced={"x"}),
}
WHOLE = numbers(16, 8)
WANTED = {name: stack.astype(np.float64).sum(axis=0) for name, stack in STACKS.items()} | {"whole": WHOLE}
TO_WHOLE = {
    "rows": on(EXPLICIT, None, ("y", "x")),
    "half": on(EXPLICIT, "x", "y"),
    "loss": on(EXPLICIT),
    "none": on(EXPLICIT, None, "y"),
    "int8": on(EXPLICIT, None, None),
    "whole": on(EXPLICIT, "y", None, reduced={"x"}),
}
TO_PARTIAL = {
    "rows": on(EXPLICIT, None, "y", unreduced={"x"}),
    "half": on(EXPLICIT, "x", None, unreduced={"y"}),
    "loss": on(EXPLICIT, unreduced={"x"}),
    "none": on(EXPLICIT, None, None, unreduced={"x"}),
    "int8": on(EXPLICIT, None, None, unreduced={"x", "y"}),
    "whole": on(EXPLICIT, None, None, unreduced={"x", "y"}),
}


@pytest.fixture
def tree() -> dict[str, jax.Array]:
    made = {name: unreduced(stack, NamedSharding(EXPLICIT, SOURCES[name])) for name, stack in STACKS.items()}
    return made | {"whole": jax.device_put(WHOLE, on(EXPLICIT, "x", "y"))}


def check_values(moved: dict[str, jax.Array]) -> None:
    for name, array in moved.items():
        assert np.array_equal(np.asarray(array).astype(np.float64), WANTED[name]), name


@pytest.mark.parametrize("options", [{}, {"memory_limit": "16KiB"}, {"order": "fixed"}], ids=str)
def test_a_tree_of_summands_and_parts(tree: dict[str, jax.Array], options: dict[str, Any]) -> None:
    moved = rd.reshard(tree, TO_WHOLE, **options)
    assert {name: array.sharding for name, array in moved.items()} == TO_WHOLE
    check_values(moved)


def test_summands_are_made_at_no_cost_and_reduced_again(tree: dict[str, jax.Array]) -> None:
    made = rd.reshard(tree, TO_PARTIAL)
    assert {name: array.sharding for name, array in made.items()} == TO_PARTIAL
    plan = rd.reshard_plan({"whole": tree["whole"]}, {"whole": TO_PARTIAL["whole"]})
    assert plan.received_bytes == plan.lower_bound_bytes == 0
    check_values(rd.reshard(made, on(EXPLICIT)))


def test_on_another_mesh_in_another_order_of_devices(tree: dict[str, jax.Array]) -> None:
    targets = {name: on(TURNED) if name == "loss" else on(TURNED, None, "q") for name in tree}
    check_values(rd.reshard(tree, targets))
    partial = rd.reshard(tree, {name: on(TURNED, unreduced={"q"}) for name in tree})
    check_values(rd.reshard(partial, on(TURNED)))


def test_donation(tree: dict[str, jax.Array]) -> None:
    moved = rd.reshard(tree, TO_WHOLE, donate=True)
    assert all(array.is_deleted() for name, array in tree.items() if name != "none")
    check_values(moved)


def test_what_is_there_already_is_kept(tree: dict[str, jax.Array]) -> None:
    same = Mesh(EXPLICIT.devices, ("a", "b"), axis_types=EXPLICIT.axis_types)
    plan = rd.reshard_plan(tree["rows"], on(same, "a", None, unreduced={"b"}))
    assert plan.kept == ("",) and not plan.batches
    kept = rd.reshard(tree["rows"], on(same, "a", None, unreduced={"b"}))
    assert kept.sharding == on(same, "a", None, unreduced={"b"})
    pointers = [array.addressable_data(3).unsafe_buffer_pointer() for array in (kept, tree["rows"])]
    assert pointers[0] == pointers[1]
    replicated = rd.reshard_plan(tree["rows"], on(EXPLICIT, "x", None))
    assert len(replicated.order) == 1  # the same cuts, and yet not the same


def test_the_bytes_of_a_plan_are_at_the_bound() -> None:
    array = unreduced(STACKS["rows"], on(EXPLICIT, "x", None, unreduced={"y"}))
    plan = rd.reshard_plan(array, TO_WHOLE["rows"], machine="exact")
    assert plan.received_bytes == plan.lower_bound_bytes == 4 * 224
    assert "reduce_scatter" in str(plan)


def test_a_memory_limit_counts_summands_whole(tree: dict[str, jax.Array]) -> None:
    with pytest.raises(MemoryLimitError) as caught:
        rd.reshard(tree["half"], TO_WHOLE["half"], memory_limit=200)
    moved = rd.reshard(tree["half"], TO_WHOLE["half"], memory_limit=caught.value.least)
    assert np.array_equal(np.asarray(moved).astype(np.float64), WANTED["half"])


def test_sums_of_16_bits_are_fixed_unless_asked_otherwise(tree: dict[str, jax.Array]) -> None:
    def steps(name: str, **options: Any) -> Any:
        plan = rd.reshard_plan(tree[name], TO_WHOLE[name], **options)
        (entry,) = plan.batches[0].program.entries
        return entry.plan

    assert (steps("half").order, steps("half").accumulate) == ("fixed", "float32")
    assert (steps("half", order="any").order, steps("rows").order) == ("any", "any")
    assert steps("half", accumulate=jnp.bfloat16).accumulate is None
    assert steps("rows", order="fixed").order == "fixed"


def test_weak_types_stay() -> None:
    make = jax.shard_map(
        lambda: jnp.asarray(2.0) * 1.0, mesh=EXPLICIT, in_specs=(), out_specs=P(unreduced={"x"}), check_vma=False
    )
    weak = jax.jit(make)()
    assert weak.weak_type
    moved = rd.reshard(weak, on(EXPLICIT))
    assert moved.weak_type and moved == 8


# -------------------------------------------------------------------------------------------------- inside jit


def test_inside_jit_the_type_says_what_are_summands(tree: dict[str, jax.Array]) -> None:
    moved = jax.jit(lambda t: rd.reshard(t, TO_WHOLE))(tree)
    assert all(array.sharding.is_equivalent_to(TO_WHOLE[name], array.ndim) for name, array in moved.items())
    assert moved["whole"].sharding.spec.reduced == {"x"}
    check_values(moved)
    del tree["none"]  # JAX 0.12 refuses to return it
    targets = {name: TO_PARTIAL[name] for name in tree}
    made = jax.jit(lambda t: rd.reshard(t, targets))(tree)
    assert all(array.sharding.spec.unreduced == targets[name].spec.unreduced for name, array in made.items())
    check_values(rd.reshard(made, on(EXPLICIT)))


def test_inside_jit_summands_without_elements_change_axes(tree: dict[str, jax.Array]) -> None:
    """XLA of JAX 0.12 ends the process if they are not whole in between, and some versions return no such arrays."""
    there, back = TO_PARTIAL["none"], TO_WHOLE["none"]

    def moved(x: jax.Array) -> jax.Array:
        again = rd.reshard(rd.reshard(x, there), back)
        assert jax.typeof(again).sharding.spec == back.spec and again.shape == (0, 8)
        return jnp.sum(again)

    if not primitive.RETURNS_EMPTY_SUMS:
        with pytest.raises(TracedError, match="returns no partial sums without elements"):
            jax.jit(moved)(tree["none"])
    else:
        assert jax.jit(moved)(tree["none"]) == 0
        made = jax.jit(lambda x: rd.reshard(x, there))(tree["none"])
        assert made.shape == (0, 8) and made.sharding.spec.unreduced == there.spec.unreduced


def test_summands_without_elements_where_jit_cannot_return_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitive, "RETURNS_EMPTY_SUMS", False)
    monkeypatch.setattr(primitive, "_compiled", None)  # nothing compiles outside `jit`
    marked = jax.device_put(np.zeros((0, 8), np.float32), on(EXPLICIT, None, None, reduced={"x"}))
    back = jax.vjp(lambda x: rd.reshard(x, on(EXPLICIT)), marked)[1]
    (cotangent,) = back(jnp.zeros((0, 8), out_sharding=on(EXPLICIT)))
    assert cotangent.shape == (0, 8) and cotangent.sharding.spec.unreduced == {"x"}
    f = rd.to_jax(rd.synthesize("[0, 8]", "[0, 8] sum{x}", "x=4,y=2", dtype="float32"), EXPLICIT)
    for move in (lambda x: rd.reshard(x, on(EXPLICIT, None, None, unreduced={"x"})), back, f):
        with pytest.raises(TracedError, match=r"returns no .* here of shape \(0, 8\) on .*; call redistrib.reshard"):
            jax.jit(move)(jax.device_put(np.zeros((0, 8), np.float32), on(EXPLICIT)))


OTHERS = [((2, 4), ("p", "q")), ((8,), ("p",)), ((2, 2, 2), ("p", "q", "r"))]


@pytest.mark.parametrize(("shape", "names"), OTHERS, ids=str)
def test_inside_jit_to_another_mesh(tree: dict[str, jax.Array], shape: tuple[int, ...], names: tuple[str, ...]) -> None:
    """XLA of JAX 0.12 ends the process where the programs name devices by several axes of the other mesh."""
    other = Mesh(EXPLICIT.devices.reshape(shape), names, axis_types=(AxisType.Explicit,) * len(names))
    last, every = {name: on(other) if name == "loss" else on(other, None, names[-1]) for name in tree}, on(other)
    parts = {name: on(other) if name in ("loss", "none") else on(other, names[0], names[1:] or None) for name in tree}
    for targets in (last, parts, dict.fromkeys(tree, every)):
        check_values(jax.jit(lambda t, targets=targets: rd.reshard(t, targets))(tree))


def test_inside_jit_on_to_other_axes_of_another_mesh(tree: dict[str, jax.Array]) -> None:
    """XLA of JAX 0.12 ends the process at collectives over axes that are parts of axes of the first mesh."""
    other = Mesh(EXPLICIT.devices.reshape(2, 4), ("p", "q"), axis_types=EXPLICIT.axis_types)
    for partial in (on(other, "p", None, unreduced={"q"}), on(other, None, None, unreduced={"p", "q"})):
        for name in ("whole", "rows"):
            there_and_on = jax.jit(lambda x, partial=partial: rd.reshard(rd.reshard(x, partial), on(other)))
            with jax.set_mesh(other):
                check_values({name: there_and_on(tree[name])})


def test_derivatives(tree: dict[str, jax.Array]) -> None:
    weights = jnp.arange(8.0)
    expected = np.broadcast_to(np.arange(8.0), (16, 8))
    target = on(EXPLICIT, "x", "y")
    gradient = jax.jit(jax.grad(lambda x: (rd.reshard(x, target) * weights).sum()))(tree["rows"])
    assert gradient.sharding.spec.reduced == {"y"} and np.array_equal(gradient, expected)
    back = jax.jit(lambda x, ct: jax.vjp(lambda v: rd.reshard(v, target), x)[1](ct)[0])
    kinds = inspect(back.lower(tree["rows"], jax.device_put(WHOLE, target)).compile()).kinds
    assert kinds == {"all-gather": 1}

    partial = on(EXPLICIT, "x", None, unreduced={"y"})
    there = jax.grad(lambda x: (jax.sharding.reshard(rd.reshard(x, partial), P("x", None)) * weights).sum())
    for gradient in (there(tree["whole"]), jax.jit(there)(tree["whole"])):
        assert np.array_equal(gradient, expected)
        assert gradient.sharding.is_equivalent_to(tree["whole"].sharding, 2)

    marked = jax.device_put(WHOLE, on(EXPLICIT, "x", None, reduced={"y"}))
    gradient = jax.jit(jax.grad(lambda x: (rd.reshard(x, target) * weights).sum()))(marked)
    assert gradient.sharding.spec.unreduced == {"y"}
    assert np.array_equal(rd.reshard(gradient, target), expected)


REDUCED = [  # from an array that is marked reduced, and the bytes that its gradient takes
    (P("x", None, reduced={"y"}), P("x", "y"), 0),
    (P(None, None, reduced={"x"}), P("x", None), 0),
    (P(None, None, reduced={"x", "y"}), P("y", "x"), 0),
    (P("y", None, reduced={"x"}), P(None, None), 0),
    (P(None, None, reduced={"x"}), P("y", "x"), 8 * 64),
]


@pytest.mark.parametrize(("source", "target", "bytes_back"), REDUCED)
def test_the_gradient_of_a_reduced_array_is_made_of_its_tiles(source: P, target: P, bytes_back: int) -> None:
    """Each device's tile of the cotangent, in its place, is its summand, as JAX's own has it."""
    array, cotangent = jax.device_put(WHOLE, NamedSharding(EXPLICIT, source)), WHOLE[::-1] * 2
    there = NamedSharding(EXPLICIT, target)

    def back(move: Any) -> Any:
        return jax.jit(lambda x, ct: jax.vjp(lambda v: move(v, there), x)[1](ct)[0])

    given = array, jax.device_put(cotangent, there)
    ours, theirs = back(rd.reshard)(*given), back(jax.sharding.reshard)(*given)
    assert ours.sharding.spec.unreduced == source.reduced and jax.typeof(ours) == jax.typeof(theirs)
    for one, other in zip(ours.addressable_shards, theirs.addressable_shards, strict=True):
        assert np.array_equal(one.data, other.data)
    assert inspect(back(rd.reshard).lower(*given).compile()).received_bytes == bytes_back
    tangent = jax.jit(lambda x: jax.jvp(lambda v: rd.reshard(v, there), (x,), (x,))[1])(array)
    assert np.array_equal(tangent, WHOLE) and tangent.sharding.is_equivalent_to(there, 2)


def test_gradients_of_reduced_arrays_for_which_jax_ends_the_process(tree: dict[str, jax.Array]) -> None:
    """To axes of another mesh, and from one set of reduced axes to another."""
    other = Mesh(EXPLICIT.devices.reshape(2, 4), ("p", "q"), axis_types=EXPLICIT.axis_types)
    array = jax.device_put(WHOLE, on(EXPLICIT, None, None, reduced={"x"}))
    back = jax.jit(lambda x, ct: jax.vjp(lambda v: rd.reshard(v, on(other, "p", "q")), x)[1](ct)[0])
    gradient = back(array, jax.device_put(WHOLE, on(other, "p", "q")))
    assert gradient.sharding.spec.unreduced == {"x"}
    assert np.array_equal(rd.reshard(gradient, on(EXPLICIT)), WHOLE)
    there = on(EXPLICIT, "x", None, reduced={"y"})
    back = jax.jit(lambda x, ct: jax.vjp(lambda v: rd.reshard(v, there), x)[1](ct)[0])
    gradient = back(array, rd.reshard(tree["whole"], on(EXPLICIT, "x", None, unreduced={"y"})))
    assert gradient.sharding.spec.unreduced == {"x"}
    assert np.array_equal(rd.reshard(gradient, on(EXPLICIT)), WHOLE)


def replicas(scale: Any) -> jax.Array:
    """What JAX calls replicated along y, and is a summand of its own on every device."""
    make = jax.shard_map(
        lambda tile: tile * (1 + scale * lax.axis_index("y")).astype(tile.dtype),
        mesh=AUTO,
        in_specs=P("x"),
        out_specs=P("x"),
        check_vma=False,
    )
    with jax.set_mesh(AUTO):
        made: jax.Array = jax.jit(make)(jax.device_put(WHOLE, on(AUTO, "x")))
    return made


def test_inside_jit_on_auto_axes_source_may_say_it() -> None:
    array, target = replicas(1), on(AUTO, None, ("y", "x"))
    said = on(EXPLICIT, "x", None, unreduced={"y"})
    with jax.set_mesh(AUTO):
        move = jax.jit(lambda x: rd.reshard(x, target, source=said), out_shardings=target)
        assert np.array_equal(move(array), 3 * WHOLE)
        assert inspect(move.lower(array).compile()).received_bytes == 4 * 224
        with pytest.raises(
            TracedError,
            match=exactly(
                "under jit on a mesh of Auto axes XLA chooses where this array lies, and a target with unreduced axes "
                "needs a plan from there; say it with source=, a sharding or a tree of them, or use a mesh of Explicit "
                "axes"
            ),
        ):
            jax.jit(lambda x: rd.reshard(x, said))(array)
        with pytest.raises(
            TracedError,
            match=exactly(
                "an array whose replicas are partial sums has no derivative here; reduce the array inside "
                "the function instead"
            ),
        ):
            jax.grad(lambda x: jax.jit(lambda y: rd.reshard(y, target, source=said).sum())(x))(array)


# ---------------------------------------------------------------------------------------------------- refused


def test_what_jax_cannot_put_is_refused_before_anything_moves(tree: dict[str, jax.Array]) -> None:
    partial = on(EXPLICIT, None, None, unreduced={"y"})
    few = Mesh(EXPLICIT.devices[:2], NAMES, axis_types=EXPLICIT.axis_types)
    host = {"whole": tree["whole"], "host": WHOLE}
    with pytest.raises(
        LeafError,
        match=exactly(
            "leaf host: tiles of [16, 8] sum{y} are partial sums, and those are moved between "
            "jax.Arrays on the same devices alone; go by way of an array "
            f"without partial sums there ({partial.spec} on mesh {{x:4, y:2}}, for shape "
            "(16, 8))"
        ),
    ):
        rd.reshard(host, partial, donate=True)
    assert not tree["whole"].is_deleted()
    with pytest.raises(
        LeafError,
        match=exactly(
            "leaf a: tiles of [4{x}16, 8] sum{y} are partial sums, and those are moved between "
            "jax.Arrays on the same devices alone; go by way of an array "
            "without partial sums there (P() on mesh {x:2, y:2}, for shape (16, 8))"
        ),
    ):
        rd.reshard({"a": tree["rows"]}, on(few))


def test_bad_types_are_refused(tree: dict[str, jax.Array]) -> None:
    truth = unreduced(numbers(2, 16, 8) > 0, on(EXPLICIT, None, None, unreduced={"y"}))
    with pytest.raises(
        LeafError,
        match=exactly("leaf a: elements of bool have no sum; take max for 'any' and min for 'all', or an integer type"),
    ):
        rd.reshard({"a": truth}, on(EXPLICIT))
    with pytest.raises(
        ReductionError,
        match=exactly("sums of int8 cannot be accumulated in float32; give a type of the same kind, as wide or wider"),
    ):
        rd.reshard(tree["int8"], on(EXPLICIT), accumulate="float32")
    with (
        jax.set_mesh(AUTO),
        pytest.raises(
            LeafError,
            match="Unreduced axes can only refer to mesh axes",
        ),
    ):
        rd.reshard(tree["whole"], P(unreduced={"y"}))
    with pytest.raises(
        ValueError,
        match=r"partition spec|unreduced|Unreduced",
    ):
        rd.reshard(tree["whole"], NamedSharding(EXPLICIT, P("y", unreduced={"y"})))


# --------------------------------------------------------------------------------------------------- replicas


def test_replicas_that_differ_are_found() -> None:
    good = jax.device_put(WHOLE, on(AUTO, "x"))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), on(AUTO, "x"))
    half = jax.device_put(WHOLE.astype(jnp.bfloat16), on(AUTO, None, "y"))
    check_replicas({"a": good, "b": [good, 1, None, np.ones(3)], "keys": keys, "half": half})
    with pytest.raises(ReplicaError) as caught:
        check_replicas({"a": good, "b": [good, replicas(1)]})
    first = tuple(np.argwhere(WHOLE[:4])[0].tolist())
    assert (caught.value.path, caught.value.devices, caught.value.index) == ("b/1", (0, 1), first)
    assert str(caught.value).startswith("leaf b/1: devices 0 and 1 should hold the same tile, and at ")


def test_replicas_of_a_summand_are_compared_and_summands_are_not() -> None:
    check_replicas(unreduced(STACKS["rows"], on(EXPLICIT, "x", None, unreduced={"y"})))
    check_replicas(unreduced(STACKS["rows"], on(EXPLICIT, None, None, unreduced={"y"})))
    sharding = on(EXPLICIT, None, None, unreduced={"y"})
    tiles = [
        jax.device_put(np.full((2, 2), k == 5, np.int32), device) for k, device in enumerate(EXPLICIT.devices.flat)
    ]
    with pytest.raises(ReplicaError) as caught:
        check_replicas(jax.make_array_from_single_device_arrays((2, 2), sharding, tiles))
    assert (caught.value.devices, caught.value.index) == ((1, 5), (0, 0))


def test_reshard_looks_first_if_asked() -> None:
    array = replicas(1)
    assert rd.reshard(array, on(AUTO)).shape == WHOLE.shape  # moved without a word
    with pytest.raises(ReplicaError):
        rd.reshard({"a": array}, on(AUTO), check=True, donate=True)
    assert not array.is_deleted()
    rd.reshard(replicas(0), on(AUTO), check=True)
