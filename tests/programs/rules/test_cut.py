"""`rd.cut` inside functions: it pins layouts where functions are traced, and is the identity elsewhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib import ir
from redistrib.errors import CutError, ProgramError
from redistrib.programs.ir.program import Call, Compute, Loop
from tests.messages import exactly
from tests.programs.run.models import whole


def types_of(f: Any, kind: str) -> list[str]:
    """The types of the results of the operations of a kind."""

    def inside(program: Any) -> Any:
        for op in program.ops:
            if isinstance(op, Call | Loop):
                yield from inside(op.program)
            elif isinstance(op, Compute) and op.kind == kind:
                yield from (str(value.type) for _, value in op.outs)

    return list(inside(f.program))


def test_it_cuts_the_array_and_what_follows() -> None:
    x = whole(16, 24)
    f = rd.distribute(
        lambda x: jnp.sin(rd.cut(x * 2, {"d": 1})) + 1, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}),
        machine="exact",
    )  # fmt: skip
    assert [step.kind for move in f.program.moves for step in move.plan.steps] == ["alltoall"]
    assert types_of(f, "sin") == ["[16, 3{d}24]"]
    assert f.out_shardings.spec == P(None, "d")
    np.testing.assert_allclose(f(x), np.sin(2 * x) + 1, atol=1e-6)


def test_no_schedule_is_needed() -> None:
    """A few annotations decide the whole program: Megatron's two products, with one sum."""

    def block(x: Any, up: Any, down: Any) -> Any:
        return jax.nn.relu(x @ rd.cut(up, {"t": 1})) @ rd.cut(down, {"t": 0})

    args = whole(8, 16) / 8, whole(16, 32) / 8, whole(32, 16) / 8
    f = rd.distribute(block, args, {"t": 4})
    assert types_of(f, "dot_general") == ["[8, 8{t}32]", "[8, 16] sum{t}"]
    assert [step.kind for move in f.program.moves for step in move.plan.steps] == ["all_reduce"]
    np.testing.assert_allclose(f(*args), block(*args), rtol=1e-5, atol=1e-5)


def test_other_axes_are_free_but_for_those_with_none() -> None:
    def spec(axes: Any) -> Any:
        x = whole(16, 24)
        f = rd.distribute(
            lambda x: rd.cut(x, axes), (x,), {"d": 2, "t": 4}, schedule=rd.along("t", {"x": 1}), machine="exact"
        )
        np.testing.assert_array_equal(f(x), x)
        return f.out_shardings.spec

    assert spec({"d": 0}) == P("d", "t")
    assert spec({"d": -1}) == P(None, ("d", "t"))
    assert spec({"d": 0, "t": None}) == P("d", None)


def test_the_first_axis_is_the_most_major() -> None:
    for axes, axis in (({"d": 0, "t": 0}, ("d", "t")), ({"t": 0, "d": 0}, ("t", "d"))):
        f = rd.distribute(lambda x, axes=axes: rd.cut(x, axes), (whole(16),), {"d": 2, "t": 4})
        assert f.out_shardings.spec == P(axis)


def test_partial_sums_are_added_before_it() -> None:
    def product(x: Any, w: Any) -> Any:
        return rd.cut(x @ w, {"d": 0}) * 2

    x, w = whole(8, 16), whole(16, 4)
    f = rd.distribute(product, (x, w), {"d": 4}, schedule=rd.along("d", {"x": 1}), machine="exact")
    assert [step.kind for move in f.program.moves for step in move.plan.steps] == ["reduce_scatter"]
    np.testing.assert_array_equal(f(x, w), 2 * (np.asarray(x) @ np.asarray(w)))


def test_a_search_keeps_it() -> None:
    def function(x: Any, w: Any) -> Any:
        return jnp.sin(rd.cut(x @ w, {"d": 1}))

    args = whole(8, 16), whole(16, 32)
    f = rd.search(function, args, {"d": 4}, machine="gpu").distributed
    assert types_of(f, "copy") == ["[8, 8{d}32]"]
    np.testing.assert_allclose(f(*args), function(*args), rtol=1e-5, atol=1e-5)


def test_it_holds_in_the_body_of_a_loop() -> None:
    def layers(weights: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(rd.cut(x @ w, {"d": 1})), None), x, weights)[0]

    args = whole(3, 8, 8) / 64, whole(4, 8) / 8
    f = rd.distribute(layers, args, {"d": 4}, schedule=rd.along("d", {"x": 0}))
    assert types_of(f, "tanh") == ["[4, 2{d}8]"]
    np.testing.assert_allclose(f(*args), layers(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axes", [{"d": 1}, {"d": 1, "t": 1}])
def test_an_axis_need_not_divide_the_dimension(axes: Any) -> None:
    """A vocabulary of 14 over 4 and 8 devices: tiles of 4 and 2, and no array of 14 elements on any of them."""

    def scores(x: Any, words: Any) -> Any:
        return jnp.sum(jax.nn.logsumexp(rd.cut(x @ words, axes), -1))

    args = whole(4, 8) / 32, whole(8, 14) / 112
    tile = 4 if len(axes) == 1 else 2
    for function in (scores, jax.grad(scores)):
        f = rd.distribute(function, args, {"d": 4, "t": 2})
        assert {text.split("{")[0] for text in types_of(f, "copy")} == {f"[4, {tile}"}
        np.testing.assert_allclose(f(*args), function(*args), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------ transformations


def test_it_is_the_identity_under_jit_and_no_operation() -> None:
    x = whole(4, 6)
    twice = jax.jit(lambda x: 2 * rd.cut({"x": x, "n": 3}, {})["x"])
    np.testing.assert_array_equal(twice(x), 2 * x)
    text = [
        jax.jit(function).lower(x).as_text().splitlines()[2:-2]
        for function in (lambda x: jnp.sin(rd.cut(x, {"d": 0})), jnp.sin)
    ]
    assert text[0] == text[1]
    np.testing.assert_array_equal(rd.cut(np.arange(4), {"d": 0}), np.arange(4))


def test_the_gradient_is_cut_alike() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sin(rd.cut(x, {"d": 1})) ** 2)

    x = whole(8, 8)
    np.testing.assert_allclose(jax.grad(loss)(x), 2 * jnp.sin(x) * jnp.cos(x), rtol=1e-6)
    f = rd.distribute(jax.grad(loss), (x,), {"d": 4})
    assert types_of(f, "copy") == ["[8, 2{d}8]"] * 2  # of the array, and of its gradient
    assert f.out_shardings.spec == P(None, "d")
    np.testing.assert_allclose(f(x), jax.grad(loss)(x), rtol=1e-6)
    _, tangent = jax.jvp(lambda x: rd.cut(x, {"d": 0}), (x,), (2 * x,))
    np.testing.assert_array_equal(tangent, 2 * x)
    assert jax.grad(lambda x: rd.cut(jnp.arange(3), {"d": 0}).sum() * x)(2.0) == 3


@pytest.mark.parametrize(("batch", "spec"), [(0, P(None, "d", None)), (1, P("d", None, None)), (2, P("d", None, None))])
def test_under_vmap_dimensions_are_those_of_an_example(batch: int, spec: Any) -> None:
    x = whole(8, 8, 8)
    f = rd.distribute(jax.vmap(lambda x: rd.cut(x, {"d": 0}), batch, batch), (x,), {"d": 4})
    assert f.out_shardings.spec == spec
    np.testing.assert_array_equal(f(x), x)


def test_where_nothing_moves_it_is_the_identity() -> None:
    def branches(x: Any, w: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, lambda: rd.cut(x @ w, {"d": 1}), lambda: 2 * (x @ w))

    args = whole(8, 4), whole(4, 8)
    f = rd.distribute(branches, args, {"d": 4}, schedule=rd.along("d", {"x": 0}))
    np.testing.assert_array_equal(f(*args), branches(*args))
    g = rd.pipeline(lambda x, w: rd.cut(x @ w, {"d": 0}), args, {"x": 0}, rd.Layout(microbatches=2))
    np.testing.assert_array_equal(g(*args), args[0] @ args[1])


def test_random_keys_and_rematerialised_functions_pass_it() -> None:
    def drawn(key: Any) -> Any:
        return jax.vmap(lambda one: jax.random.bits(one, (4,)))(rd.cut(jax.random.split(key, 8), {"d": 0}))

    f = rd.distribute(drawn, (jax.random.key(1),), {"d": 4})
    assert f.out_shardings.spec == P("d", None)
    np.testing.assert_array_equal(f(jax.random.key(1)), drawn(jax.random.key(1)))
    loss = jax.checkpoint(lambda x: jnp.sum(jnp.sin(rd.cut(x * 2, {"d": 0}))))
    x = whole(8, 4) / 32
    np.testing.assert_allclose(rd.distribute(jax.grad(loss), (x,), {"d": 4})(x), 2 * jnp.cos(2 * x), rtol=1e-5)


# ------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("shape", "axes", "why"),
    [
        ((8, 4), {"d": 2}, "axis 'd' is to cut dimension 2 of an array of shape [8, 4]; give one of 0, 1, or None"),
        ((8, 4), {"d": -3}, "axis 'd' is to cut dimension -3 of an array of shape [8, 4]; give one of 0, 1, or None"),
        ((8,), {"d": "x"}, "axis 'd' is to cut dimension 'x' of an array of shape [8]; give one of 0, or None"),
        ((8,), {"d": True}, "axis 'd' is to cut dimension True of an array of shape [8]; give one of 0, or None"),
        ((), {"d": 0}, "axis 'd' is to cut dimension 0 of an array of shape []; a scalar is never cut"),
        ((8,), {0: 0}, "rd.cut takes names of mesh axes, and not 0"),
        ((8,), "d", "rd.cut takes a dimension for each mesh axis, {'data': 0}, and not 'd'"),
    ],
)
def test_a_dimension_that_does_not_exist_is_refused_at_once(shape: Any, axes: Any, why: str) -> None:
    for call in (lambda x: rd.cut(x, axes), jax.jit(lambda x: rd.cut(x, axes))):
        with pytest.raises(CutError, match=exactly(f"{why}")):
            call(jnp.ones(shape))


@pytest.mark.parametrize("dim", [0, None])
def test_an_axis_that_the_mesh_lacks_is_refused_with_the_line(dim: Any) -> None:
    def function(x: Any) -> Any:
        return rd.cut(x, {"q": dim})

    why = "its sharding is over an axis 'q', and the mesh is {d:4}; name its axes"
    for refused in (rd.distribute, rd.search):
        with pytest.raises(CutError, match=r"test_cut.py:\d+: operation 'copy': ") as caught:
            refused(function, (whole(8),), {"d": 4})
        assert why in str(caught.value)


UNEVEN = "axis 'd' is to cut 6 elements into 4 parts, which do not divide them, and tiles of unequal size are not for"


def test_where_tiles_have_one_size_an_axis_must_divide_the_dimension() -> None:
    def scanned(x: Any) -> Any:
        return jax.lax.scan(lambda total, row: (total, rd.cut(row, {"d": 0})), 0.0, x)[1]

    with pytest.raises(CutError, match=rf"test_cut.py:\d+: operation 'copy': {UNEVEN} searches, loops"):
        rd.distribute(scanned, (whole(3, 6),), {"d": 4})
    with pytest.raises(CutError, match=UNEVEN) as caught:
        rd.search(lambda x: rd.cut(x, {"d": 0}), (whole(6),), {"d": 4})
    assert (caught.value.operation, caught.value.array, caught.value.rule) == ("copy", "", "Schedule")


def test_a_program_of_a_function_is_cut_by_it_alone() -> None:
    """`rd.partition` of a function has the cuts of its annotations and those that follow; on nests it is as before."""

    def block(x: Any, up: Any, down: Any) -> Any:
        return jnp.tanh(rd.cut(x, {"data": 0}) @ rd.cut(up, {"model": 1})) @ down

    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((4, 6), (6, 8), (8, 6))]
    program = rd.partition(block, {"data": 2, "model": 4}, args=shapes)
    inputs = ["[2{data}4, 6]", "[6, 2{model}8]", "[2{model}8, 6]"]
    assert [str(value.type) for value in program.inputs] == inputs
    assert [step.kind for move in program.moves if move.plan for step in move.plan.steps] == ["all_reduce"]
    arrays = [np.random.default_rng(k).normal(size=form.shape).astype(form.dtype) for k, form in enumerate(shapes)]
    (result,) = ir.run_by_rank(program, arrays)
    np.testing.assert_allclose(result, np.tanh(arrays[0] @ arrays[1]) @ arrays[2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "is a function: it needs args=, its arguments or their shapes"),
        ({"args": (1.0,), "root": True}, "is a function: it takes no root=; leave it out"),
        ({"args": (1.0,), "dtype": "int8"}, "is a function: it takes no dtype=; leave it out"),
    ],
)
def test_functions_and_nests_take_options_of_their_own(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ProgramError) as caught:
        rd.partition(jnp.sin, {"d": 2}, **options)
    assert str(caught.value).endswith(why)
    with pytest.raises(ProgramError, match="args= are those of a function; nests have none"):
        rd.partition(rd.nest("ij,jk->ik", (4, 4, 4)), {"matmul": (2, 1, 1)}, args=())
