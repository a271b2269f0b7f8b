"""`reshard` where JAX traces, maps or has a mesh set, held against `jax.sharding.reshard` and `jax.device_put`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import LeafError, MemoryLimitError, TracedError
from redistrib.explain.profiling.inspect import inspect
from tests.messages import exactly
from tests.reshard.meshes import AUTO, EXPLICIT, on

NAMES = ("x", "y")
ABSTRACT = EXPLICIT.abstract_mesh
NUMBERS = np.arange(64, dtype=np.float32).reshape(8, 8)
Move = Callable[[Any, Any], Any]


def placed(values: Any = NUMBERS, mesh: Mesh = EXPLICIT, spec: P | None = None) -> jax.Array:
    return jax.device_put(values, NamedSharding(mesh, P("x", "y") if spec is None else spec))


def bits(array: jax.Array) -> bytes:
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array).tobytes()


def alike(ours: Any, theirs: Any) -> None:
    """The same elements, types and places, down to the devices of each tile."""
    assert jax.typeof(ours) == jax.typeof(theirs)
    assert ours.sharding.is_equivalent_to(theirs.sharding, ours.ndim)
    assert [device.id for device in ours.sharding._device_assignment] == [
        device.id for device in theirs.sharding._device_assignment
    ]
    assert ours.size == 0 or bits(ours) == bits(theirs)  # under jit XLA leaves empty arrays where NumPy finds none


# ------------------------------------------------------------------------------------------------------ values

VALUES: dict[str, Any] = {
    "array of NumPy": NUMBERS,
    "short floats": NUMBERS.astype(jnp.bfloat16),
    "int4": (NUMBERS % 7).astype(jnp.int4),
    "booleans": NUMBERS > 9,
    "complex numbers": NUMBERS * 1j,
    "no elements": NUMBERS[:0],
}
SCALARS: dict[str, Any] = {"number": 3.0, "integer": 3, "boolean": True, "scalar of NumPy": np.float32(3)}


@pytest.mark.parametrize(
    ("name", "abstract"),
    [*((name, True) for name in [*VALUES, *SCALARS]), ("array of NumPy", False), ("number", False)],
)
def test_values_that_are_constants_of_a_jitted_function(name: str, abstract: bool) -> None:
    """Every device has all of them, so nothing travels."""
    value = {**VALUES, **SCALARS}[name]
    spec = P() if name in SCALARS else P("y", "x")
    target = spec if abstract else NamedSharding(EXPLICIT, spec)
    with jax.set_mesh(EXPLICIT):
        ours, theirs = (jax.jit(lambda move=move: move(value, target)) for move in (rd.reshard, jax.sharding.reshard))
        alike(ours(), theirs())
        assert inspect(ours.lower().compile()).kinds == {}


@pytest.mark.parametrize("name", [*VALUES, *SCALARS])
def test_constants_on_auto_axes(name: str) -> None:
    value = {**VALUES, **SCALARS}[name]
    target = NamedSharding(AUTO, P() if name in SCALARS else P("y", "x"))
    ours = jax.jit(lambda: rd.reshard(value, target))()
    theirs = jax.jit(lambda: lax.with_sharding_constraint(jnp.asarray(value), target))()
    alike(ours, theirs)


def test_a_constant_that_is_an_array_on_one_device() -> None:
    array = jnp.asarray(NUMBERS)
    with jax.set_mesh(EXPLICIT):
        ours, theirs = (
            jax.jit(lambda move=move: move(array, P("y", "x")))() for move in (rd.reshard, jax.sharding.reshard)
        )
    alike(ours, theirs)


@pytest.mark.parametrize("value", [NUMBERS, jnp.asarray(NUMBERS), jax.device_put(NUMBERS, jax.devices()[5]), 3.0])
def test_what_is_on_no_mesh_under_jit(value: Any) -> None:
    """As an argument and as a constant, whether a mesh is set or not."""
    target = on(EXPLICIT, *(("y",) if np.ndim(value) else ()))
    theirs = jax.device_put(value, target)
    alike(jax.jit(lambda: rd.reshard(value, target))(), theirs)
    with jax.set_mesh(EXPLICIT):
        alike(jax.jit(lambda: rd.reshard(value, target))(), theirs)
        if getattr(value, "committed", None) is not True:
            alike(jax.jit(lambda v: rd.reshard(v, target))(value), theirs)
            alike(jax.jit(lambda v: rd.reshard(v, target.spec))(value), theirs)


def test_tangents_of_integers_stay_as_they_are() -> None:
    with jax.set_mesh(EXPLICIT):
        gradients = jax.grad(lambda tree: tree["w"].sum(), allow_int=True)({"w": placed(), "step": np.int32(3)})
    moved = rd.reshard(gradients, {"w": on(EXPLICIT, "y", "x"), "step": on(EXPLICIT)})
    assert moved["step"].dtype == jax.dtypes.float0 and moved["step"].shape == ()
    alike(moved["w"], jax.device_put(gradients["w"], on(EXPLICIT, "y", "x")))


def test_constants_beside_traced_leaves_are_differentiated() -> None:
    def loss(x: jax.Array, move: Move) -> jax.Array:
        return (move(NUMBERS, P("y", "x")) * move(x, P("y", "x"))).sum()

    with jax.set_mesh(EXPLICIT):
        ours, theirs = (jax.jit(jax.grad(loss), static_argnums=1)(placed(), move) for move in (rd.reshard, jax.reshard))
    alike(ours, theirs)


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys(implementation: str) -> None:
    keys = placed(jax.random.split(jax.random.key(0, impl=implementation), 8), spec=P("x"))
    target = on(EXPLICIT, "y")
    ours, theirs = (jax.jit(lambda k, move=move: move(k, target))(keys) for move in (rd.reshard, jax.sharding.reshard))
    alike(ours, theirs)
    alike(rd.reshard(keys, target), jax.device_put(keys, target))


def test_a_key_that_is_a_constant() -> None:
    key = jax.random.key(3)
    with jax.set_mesh(EXPLICIT):
        ours, theirs = (jax.jit(lambda move=move: move(key, P()))() for move in (rd.reshard, jax.sharding.reshard))
    alike(ours, theirs)


ON_A_MESH: dict[str, Any] = {
    "numbers": NUMBERS,
    "key": jax.random.key(3),
    "keys": jax.random.split(jax.random.key(0, impl="rbg"), 8),
    "no numbers": NUMBERS[:0],
}


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("name", ON_A_MESH)
def test_a_constant_that_lies_on_a_mesh_stays_where_it_was_moved(name: str, kind: AxisType) -> None:
    """Also a function that has no argument is compiled for its devices, and its result has the target's sharding."""
    mesh, other = (
        Mesh(EXPLICIT.devices.reshape(sizes), ("p", "q"), axis_types=(kind,) * 2) for sizes in ((2, 4), (8, 1))
    )
    rank = jnp.ndim(ON_A_MESH[name])
    array = placed(ON_A_MESH[name], mesh, P(*("p", None)[:rank]))
    for there in (mesh, other):
        target = NamedSharding(there, P(*(None, "p")[:rank][-1:]))
        moved = jax.jit(lambda target=target: rd.reshard(array, target))()
        if array.size:  # XLA leaves arrays without elements anywhere
            alike(moved, jax.device_put(array, target))


def test_a_constant_for_other_devices_than_those_of_the_function() -> None:
    half = Mesh(EXPLICIT.devices.flat[:4], ("p",))
    array = placed(mesh=half, spec=P("p"))
    with jax.set_mesh(EXPLICIT), pytest.raises(TracedError, match=r"the current mesh has 8 devices, and .* on 4"):
        jax.jit(lambda: rd.reshard(array, NamedSharding(half, P(None, "p"))))()


def test_keys_of_the_old_style_and_on_auto_axes() -> None:
    old, target = placed(jax.random.PRNGKey(0), spec=P()), on(EXPLICIT, "y")
    ours, theirs = (jax.jit(lambda k, move=move: move(k, target))(old) for move in (rd.reshard, jax.sharding.reshard))
    alike(ours, theirs)
    auto, there = placed(jax.random.split(jax.random.key(0), 8), AUTO, P("x")), on(AUTO, "y")
    ours = jax.jit(lambda k: rd.reshard(k, there, source=auto.sharding))(auto)
    alike(ours, jax.jit(lambda k: lax.with_sharding_constraint(k, there))(auto))


def test_objects_that_are_no_arrays_are_refused_under_jit_too() -> None:
    why = exactly("leaf w: str is neither an array nor a number")
    with jax.set_mesh(EXPLICIT), pytest.raises(LeafError, match=why):
        jax.jit(lambda: rd.reshard({"w": "text", "v": None}, P("x")))()


# -------------------------------------------------------------------------------------------------- vmap


@pytest.mark.parametrize(("spmd", "jitted", "axis"), [("x", True, 0), ("x", False, 1), (None, True, 1)])
def test_under_vmap(spmd: str | None, jitted: bool, axis: int) -> None:
    batch = placed(np.stack([NUMBERS] * 4, axis), spec=P("x", None, "y") if axis == 0 else P(None, "x", "y"))

    def run(move: Move) -> jax.Array:
        mapped = jax.vmap(lambda a: move(a, on(EXPLICIT, "y", None)), axis, axis, spmd_axis_name=spmd)
        return (jax.jit(mapped) if jitted else mapped)(batch)

    with jax.set_mesh(EXPLICIT):
        alike(run(rd.reshard), run(jax.sharding.reshard))


@pytest.mark.parametrize("spmd", ["x", None])
@pytest.mark.parametrize("there", [P("y"), P(None, "y"), P()], ids=str)
@pytest.mark.parametrize("here", [P("x"), P("x", None, "y")], ids=str)
def test_what_a_device_keeps_of_a_batch(here: P, there: P, spmd: str | None) -> None:
    """Which part that is, no axis of the batch says; nor does a mesh that is set."""
    batch, target = placed(np.stack([NUMBERS] * 4), spec=here), NamedSharding(EXPLICIT, there)
    ours, theirs = (
        jax.jit(jax.vmap(lambda a, move=move: move(a, target), spmd_axis_name=spmd))(batch)
        for move in (rd.reshard, jax.sharding.reshard)
    )
    alike(ours, theirs)


def test_a_memory_limit_holds_for_all_examples_together() -> None:
    batch, target = placed(np.stack([NUMBERS] * 8), spec=P("x")), on(EXPLICIT, "y")

    def run(limit: int) -> jax.Array:
        return jax.vmap(lambda a: rd.reshard(a, target, memory_limit=limit))(batch)

    alike(run(1024), jax.vmap(lambda a: jax.sharding.reshard(a, target))(batch))
    with pytest.raises(MemoryLimitError, match="no plan fits in 512 bytes per device"):
        run(512)


def test_under_vmap_on_auto_axes() -> None:
    batch, target = placed(np.stack([NUMBERS] * 4), AUTO, P("x", None, "y")), on(AUTO, "y", None)

    def run(move: Callable[[jax.Array], jax.Array]) -> jax.Array:
        return jax.jit(jax.vmap(move, spmd_axis_name="x"))(batch)

    alike(
        run(lambda a: rd.reshard(a, target, source=on(AUTO, None, "y"))),
        run(lambda a: lax.with_sharding_constraint(a, target)),
    )


def test_axes_of_the_batch_cut_nothing_else() -> None:
    batch = placed(np.stack([NUMBERS] * 4), spec=P("x", None, "y"))
    target = on(EXPLICIT, "x", None)
    with pytest.raises(Exception, match="duplicate entries for `x`"):
        jax.vmap(lambda a: jax.sharding.reshard(a, target))(batch)
    with pytest.raises(TracedError) as caught:
        jax.vmap(lambda a: rd.reshard(a, target))(batch)
    assert str(caught.value) == (
        "under this jax.vmap batches are cut along 'x', so no dimension can be cut by P('x', None); take other axes"
    )
    other = placed(spec=P(None, "y"))  # which has no batch
    run = jax.jit(lambda b, move: jax.vmap(lambda a: move(other, target).sum() + a.sum())(b), static_argnums=1)
    with jax.set_mesh(EXPLICIT):
        alike(run(batch, rd.reshard), run(batch, jax.sharding.reshard))


# --------------------------------------------------------------------------------------------- shard_map


def inside(move: Callable[[jax.Array], Any], axes: set[str], jitted: bool = True, mesh: Mesh = EXPLICIT) -> jax.Array:
    spec = P(*(name for name in NAMES if name in axes))
    mapped = jax.shard_map(move, mesh=mesh, in_specs=spec, out_specs=spec, axis_names=axes)
    with jax.set_mesh(mesh):
        return (jax.jit(mapped) if jitted else mapped)(placed(mesh=mesh))


@pytest.mark.parametrize("jitted", [False, True])
def test_beside_the_axes_of_a_shard_map(jitted: bool) -> None:
    functions: list[tuple[Callable[..., jax.Array], set[str]]] = [
        (lambda a, move: move(a, P("y", None)), {"x"}),
        (lambda a, move: move(a, NamedSharding(jax.sharding.get_abstract_mesh(), P("y", None))), {"x"}),
        (lambda a, move: a + move(NUMBERS[:2, :4], P(None, None)), {"x", "y"}),
    ]
    for function, axes in functions if jitted else functions[:1]:
        ours, theirs = (
            inside(lambda a, function=function, move=move: function(a, move), axes, jitted)
            for move in (rd.reshard, jax.sharding.reshard)
        )
        alike(ours, theirs)


def test_the_gradient_beside_the_axes_of_a_shard_map() -> None:
    def gradient(move: Move) -> jax.Array:
        def loss(tile: jax.Array) -> jax.Array:
            return lax.psum((move(tile, P("y", None)) * NUMBERS[:2]).sum(), "x")

        mapped = jax.shard_map(loss, mesh=EXPLICIT, in_specs=P("x"), out_specs=P(), axis_names={"x"})
        return jax.jit(jax.grad(mapped))(placed())

    with jax.set_mesh(EXPLICIT):
        alike(gradient(rd.reshard), gradient(jax.sharding.reshard))


@pytest.mark.parametrize(
    ("mesh", "axes", "target"),
    [
        (EXPLICIT, {"x", "y"}, lambda: on(EXPLICIT, "y", "x")),
        (AUTO, {"x", "y"}, lambda: on(AUTO, "y", "x")),
        (EXPLICIT, {"x"}, lambda: on(EXPLICIT, "y", None)),
        (EXPLICIT, {"x"}, lambda: P("x", None)),
        (AUTO, {"x"}, lambda: P("y", None)),
    ],
)
@pytest.mark.parametrize("jitted", [False, True])
def test_tiles_inside_a_shard_map_are_refused_where_jax_does(
    mesh: Mesh, axes: set[str], target: Callable[[], Any], jitted: bool
) -> None:
    with pytest.raises(ValueError, match=r"[Mm]anual"):
        inside(lambda a: jax.sharding.reshard(a, target()), axes, jitted, mesh)
    with pytest.raises(TracedError) as caught:
        inside(lambda a: rd.reshard(a, target()), axes, jitted, mesh)
    assert str(caught.value) == (
        f"inside a shard_map over {', '.join(map(repr, sorted(axes)))} an array is already a tile along them; call "
        "redistrib.reshard outside, on the global array, or give a partition spec over Explicit axes beside them, "
        "without a memory limit, for an array that is no partial sum"
    )


def test_a_limit_inside_a_shard_map_is_refused() -> None:
    with pytest.raises(TracedError, match="without a memory limit"):
        inside(lambda a: rd.reshard(a, P("y", None), memory_limit=1 << 20), {"x"})


# ---------------------------------------------------------------------------------------- meshes without devices


def test_abstract_meshes_outside_jit() -> None:
    """The array has the devices, or the mesh that is set."""
    other = AbstractMesh((2, 4), NAMES, axis_types=(AxisType.Explicit,) * 2)
    turned = Mesh(EXPLICIT.devices[::-1], NAMES, axis_types=EXPLICIT.axis_types)
    for mesh, abstract in ((EXPLICIT, ABSTRACT), (EXPLICIT, other), (turned, ABSTRACT)):
        array, target = placed(mesh=mesh), on(abstract, "y", "x")
        alike(rd.reshard(array, target), jax.sharding.reshard(array, target))
        assert "1" in str(rd.reshard_plan(array, target))
    with jax.set_mesh(turned):
        for value in (NUMBERS, 3 * NUMBERS[0]):
            target = on(ABSTRACT, "y")
            alike(rd.reshard(value, target), jax.sharding.reshard(value, target))
    with jax.sharding.use_abstract_mesh(ABSTRACT):
        alike(rd.reshard(placed(), P("y", "x")), jax.sharding.reshard(placed(), P("y", "x")))


RENAMED = [((8, 1), ("a", "b")), ((4, 2), NAMES), ((2, 4), NAMES[::-1]), ((8,), ("x",)), ((2, 2, 2), ("p", "q", "r"))]


@pytest.mark.parametrize(("first", "second"), [*itertools.pairwise([*RENAMED, RENAMED[0]])], ids=str)
def test_abstract_meshes_that_change_names_and_sizes_inside_jit(first: Any, second: Any) -> None:
    """Neither may be that of the devices, and names may be those of axes of other sizes."""
    meshes = [AbstractMesh(*axes, axis_types=(AxisType.Explicit,) * len(axes[1])) for axes in (first, second)]

    def run(move: Move) -> jax.Array:
        def f(x: jax.Array) -> jax.Array:
            for mesh in meshes:
                with jax.sharding.use_abstract_mesh(mesh):
                    x = move(move(x, P(None, mesh.axis_names)), P(mesh.axis_names[-1])) * 2
            return x

        return jax.jit(f)(placed())

    with jax.set_mesh(EXPLICIT):
        alike(run(rd.reshard), run(jax.sharding.reshard))


@pytest.mark.parametrize(
    ("value", "mesh"),
    [
        (NUMBERS, ABSTRACT),
        (jnp.asarray(NUMBERS), ABSTRACT),
        (placed(mesh=AUTO), AUTO.abstract_mesh),
        (placed(), AbstractMesh((2, 2), NAMES, axis_types=(AxisType.Explicit,) * 2)),
    ],
)
def test_abstract_meshes_for_which_nothing_tells_the_devices(value: Any, mesh: AbstractMesh) -> None:
    with pytest.raises(ValueError, match=r"[Dd]evice|Auto"):
        jax.sharding.reshard(value, on(mesh, "y", "x"))
    with pytest.raises(LeafError) as caught:
        rd.reshard({"w": value}, on(mesh, "y", "x"))
    assert str(caught.value) == (
        "leaf w: the sharding P('y', 'x') is over an AbstractMesh, which names no devices, and nothing else tells "
        f"{mesh.size} of them for Explicit axes; give one over a jax.sharding.Mesh"
    )
