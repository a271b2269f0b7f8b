"""Plans as JAX functions: under differentiation and `jit`, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import Mesh as JaxMesh
from jax.sharding import PartitionSpec as P

from redistrib.backends.jax.execute import to_jax
from redistrib.backends.jax.move import CompiledMove
from redistrib.errors import ChoiceError, ForeignMeshError, SourceArrayError, TracedError
from redistrib.explain.profiling.inspect import inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.synthesis.synthesize import synthesize
from tests.jax.running import collectives_of, jax_mesh


def pair(kind=AxisType.Auto, source="[2{x}8, 8]", target="[8, 4{y}8]", mesh="x=4,y=2"):
    mesh = Mesh.of(mesh)
    there = synthesize(DistType.of(source), mesh, DistType.of(target), mesh)
    back = synthesize(DistType.of(target), mesh, DistType.of(source), mesh)
    return there, back, jax_mesh(mesh, kind)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("given", ["plan", "function", "nothing"])
@pytest.mark.parametrize(
    ("source", "target"),
    [("[2{x}8, 8]", "[8, 4{y}8]"), ("[8, 8]", "[2{x}8, 8]"), ("[1{x,y}8, 8]", "[8, 8]"), ("[4{y}8, 8]", "[2{x}8, 8]")],
)
def test_derivatives_are_those_of_the_identity(kind, given, source, target):
    """Replicated sources and targets included, where summing over copies would count too often."""
    there, back, mesh = pair(kind, source, target)
    reverse = {"plan": back, "function": lambda: back, "nothing": None}[given]
    f = to_jax(there, mesh, reverse=reverse)
    weights = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(weights + 1, f.source_sharding)
    w = jax.device_put(weights, f.target_sharding)

    def loss(x):
        return jnp.sum(jnp.sin(f(x)) * w)

    expected = jax.grad(lambda x: jnp.sum(jnp.sin(x) * weights))(weights + 1)
    gradient = jax.jit(jax.grad(loss))(x)
    np.testing.assert_allclose(np.asarray(gradient), expected, rtol=1e-6)
    tangent = jax.device_put(weights - 3, f.source_sharding)
    out, moved = jax.jit(lambda x, t: jax.jvp(f, (x,), (t,)))(x, tangent)
    np.testing.assert_array_equal(np.asarray(out), weights + 1)
    np.testing.assert_array_equal(np.asarray(moved), weights - 3)
    second = jax.jit(lambda x, t: jax.jvp(jax.grad(loss), (x,), (t,))[1])(x, tangent)  # forward over reverse
    np.testing.assert_allclose(np.asarray(second), -np.sin(weights + 1) * weights * (weights - 3), rtol=1e-5)


def test_the_cotangent_travels_by_the_reverse_plan():
    there, back, mesh = pair(source="[2{x}8, 8]", target="[8, 2{x}8]")
    f = to_jax(there, mesh, reverse=back)
    x = jax.device_put(np.ones((8, 8), np.float32), f.source_sharding)
    program = jax.jit(lambda x, ct: jax.vjp(f, x)[1](ct)).lower(x, f(x)).compile()
    assert inspect(program).kinds == collectives_of(back)


def test_integers_pass_through_a_differentiated_function():
    there, _, mesh = pair()
    ints = synthesize(there.source, there.source_mesh, there.target, there.target_mesh, dtype="int32")
    f = to_jax(ints, mesh)
    table = jax.device_put(np.arange(64, dtype=np.int32).reshape(8, 8), f.source_sharding)
    assert jax.grad(lambda s: jnp.sum(s * f(table)))(2.0) == 63 * 32


def test_under_jit_auto_axes_are_constrained_to_the_source():
    there, _, mesh = pair()
    f = to_jax(there, mesh)
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    elsewhere = jax.device_put(whole, NamedSharding(mesh, P(None, "x")))
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: f(x) + 1)(elsewhere)), whole + 1)


def test_a_donated_source_is_given_up():
    there, _, mesh = pair(source="[2{x}8, 8]", target="[8, 2{x}8]")  # tiles of equal size, so the buffer can be used
    f = to_jax(there, mesh, donate=True)
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(whole, f.source_sharding)
    np.testing.assert_array_equal(np.asarray(f(x)), whole)
    assert x.is_deleted()
    kept = jax.device_put(whole, f.source_sharding)
    to_jax(there, mesh)(kept)
    assert not kept.is_deleted()


# ------------------------------------------------------------------------------------------- errors


def message(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value).replace("PartitionSpec(", "P(")  # as it prints before JAX 0.10


def test_arrays_that_are_not_the_source_are_refused():
    there, _, mesh = pair()
    f = to_jax(there, mesh)
    ones = np.ones((8, 8), np.float32)
    assert message(SourceArrayError, lambda: f(ones.tolist())) == (
        "a plan runs on a jax.Array or a value of NumPy, got list; "
        "place the value first: jax.device_put(value, f.source_sharding)"
    )
    assert message(SourceArrayError, lambda: f(jnp.ones((8, 4)))) == (
        "the plan starts from an array of shape (8, 8), got (8, 4); plan for this shape"
    )
    assert message(SourceArrayError, lambda: f(jnp.ones((8, 8), jnp.int32))) == (
        "the plan starts from an array of dtype float32, got int32; plan for this dtype, or convert the array"
    )
    wrong = jax.device_put(ones, NamedSharding(mesh, P("y")))
    assert message(SourceArrayError, lambda: f(wrong)) == (
        "the plan starts from an array of sharding P('x', None) on mesh {x:4, y:2}, got "
        "P('y',) on mesh {x:4, y:2}; place it with jax.device_put(array, f.source_sharding), "
        "or plan from where it is"
    )


def test_another_device_order_is_refused():
    there, _, mesh = pair()
    f = to_jax(there, mesh)
    turned = JaxMesh(mesh.devices[::-1], mesh.axis_names, axis_types=mesh.axis_types)
    elsewhere = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(turned, P("x")))
    assert "the plan starts from an array of sharding" in message(SourceArrayError, lambda: f(elsewhere))


def test_explicit_axes_under_jit_refuse_another_sharding():
    there, _, mesh = pair(AxisType.Explicit)
    f = to_jax(there, mesh)
    elsewhere = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P(None, "x")))
    assert message(SourceArrayError, lambda: jax.jit(f)(elsewhere)) == (
        "the plan starts from an array of sharding P('x', None), got P(None, 'x'); "
        "move it with jax.sharding.reshard, or plan from where it is"
    )


def test_other_meshes_are_refused():
    there, _, _ = pair()
    small = JaxMesh(np.array(jax.devices()[:4]), ("x",))
    assert message(ForeignMeshError, lambda: to_jax(there, small)) == (
        "the plan is for mesh {x:4, y:2} with 8 devices, the JAX mesh is {x:4} with 4; "
        "pass a mesh of the same axes in the same order, or plan for this one"
    )
    a, b = Mesh.of("x=4"), Mesh.of("r=2,c=2")
    across = synthesize(DistType.of("[2{x}8]"), a, DistType.of("[4{r}8]"), b)
    assert message(ForeignMeshError, lambda: to_jax(across, small)) == (
        "the plan goes from mesh {x:4} to mesh {r:2, c:2}; a function under one JAX mesh needs source and target "
        "types over the same mesh and device order, use redistrib.reshard to move between meshes"
    )


def test_inside_a_shard_map_there_is_no_global_array():
    there, _, mesh = pair()
    f = to_jax(there, mesh)

    def call():
        tile = jax.ShapeDtypeStruct((32, 16), jnp.float32)
        jax.eval_shape(jax.shard_map(f, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")), tile)

    assert message(TracedError, call) == (
        "inside a shard_map over 'x', 'y' an array is already a tile; call the plan's function outside, "
        "on the global array"
    )


def test_unknown_schedules_are_refused():
    there, _, mesh = pair()
    assert message(ChoiceError, lambda: to_jax(there, mesh, schedule="fast")) == (
        "there is no schedule 'fast'; choose 'overlap' or 'sequential'"
    )


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("weak", [False, True])
def test_a_call_outside_jit_is_compiled_once(monkeypatch, kind, donate, weak):
    there, _, mesh = pair(kind, target="[8, 2{x}8]")
    compiled = []
    compile_once = CompiledMove.compile
    monkeypatch.setattr(CompiledMove, "compile", lambda move: compiled.append(move) or compile_once(move))
    f = to_jax(there, mesh, donate=donate)
    for _ in range(3):
        x = jax.jit(lambda: jnp.broadcast_to(2.5, (8, 8)), out_shardings=f.source_sharding)()
        x = x if weak else jax.device_put(np.full((8, 8), 2.5, np.float32), f.source_sharding)
        moved = f(x)
        assert (moved.weak_type, moved.sharding, x.is_deleted()) == (weak, f.target_sharding, donate)
        np.testing.assert_array_equal(np.asarray(moved), 2.5)
    (move,) = compiled
    assert "all_to_all" in move.text


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_constant_of_a_traced_function_moves_inside_it(kind):
    there, _, mesh = pair(kind, target="[8, 2{x}8]")
    f = to_jax(there, mesh)
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(values, f.source_sharding)
    f(x)  # compiled before it is traced
    y = jax.device_put(values + 1, f.target_sharding)
    function = jax.jit(lambda y: f(x) * y)
    assert "all_to_all" in function.lower(y).as_text()
    np.testing.assert_array_equal(np.asarray(function(y)), values * (values + 1))
    with jax.set_mesh(mesh):  # JAX wants it for a sum on Explicit axes
        gradient = jax.grad(lambda y: jnp.sum(f(x) * y))(y)
    np.testing.assert_array_equal(np.asarray(gradient), values)
