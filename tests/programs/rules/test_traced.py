"""What tracing and propagation make of constraints, constants, scans, and a few rules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import CutError
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.ir.program import Compute
from redistrib.programs.rules import inline, nests
from redistrib.programs.rules.repeated import Repeated
from redistrib.programs.rules.traced import TraceOptions
from tests.messages import exactly
from tests.programs.run.models import recurrent, whole


def held(array: Any, spec: Any, **sizes: int) -> Any:
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))
    return lax.with_sharding_constraint(array, NamedSharding(mesh, spec))


def kinds(f: Any) -> list[str]:
    return [step.kind for move in f.program.moves for step in move.plan.steps]


def compiled_as_predicted(f: Any) -> int:
    assert inspect(f.lower().compile()).received_bytes == f.program.received_bytes
    return int(f.program.received_bytes)


# ------------------------------------------------------------------------------------------ constraints


def test_a_sharding_constraint_cuts_what_follows() -> None:
    def turned(x: Any) -> Any:
        return jnp.sin(held(x * 2, P(None, "d"), d=8)) + 1

    x = whole(16, 24)
    f = rd.distribute(turned, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}), machine="exact")
    assert kinds(f) == ["alltoall"]
    assert f.out_shardings.spec == P(None, "d")
    assert f.opaque == ()
    np.testing.assert_allclose(f(x), np.sin(2 * x) + 1, atol=1e-6)
    compiled_as_predicted(f)


def test_a_constraint_leaves_other_axes_out_unless_it_is_open() -> None:
    def twice(spec: Any) -> Any:
        x = whole(16, 24)
        f = rd.distribute(
            lambda x: held(x, spec, d=2, t=4), (x,), {"d": 2, "t": 4}, schedule=rd.along("t", {"x": 1}),
            machine="exact",
        )  # fmt: skip
        np.testing.assert_array_equal(f(x), x)
        return f.out_shardings.spec

    assert twice(P("d", None)) == P("d", None)
    assert twice(P("d", P.UNCONSTRAINED)) == P("d", "t")


def test_a_constraint_over_another_mesh_is_refused() -> None:
    with pytest.raises(CutError, match=r"test_traced.py:\d+: ") as caught:
        rd.distribute(lambda x: held(x, P("d"), d=4), (whole(16),), {"d": 8})
    why = "its sharding is over an axis 'd' of 4, and the mesh is {d:8}; name its axes"
    assert str(caught.value).endswith(f"operation {caught.value.operation!r}: {why}")
    assert (caught.value.array, caught.value.rule) == ("", "Schedule")


# ------------------------------------------------------------------------------------------ constants


def test_what_depends_on_no_input_is_made_again_and_not_moved() -> None:
    def function(x: Any, w: Any) -> Any:
        mask = jnp.tril(jnp.ones((8, 8)))
        return mask * x, jnp.cumsum(mask @ w, 0)

    x, w = whole(8, 8), whole(8, 8)
    schedule = [rd.along("d", {"x": 0}), rd.along("d", {"w": 1})]
    f = rd.distribute(function, (x, w), {"d": 8}, schedule=schedule, machine="exact")
    assert not f.program.moves
    for found, wanted in zip(f(x, w), function(x, w), strict=True):
        np.testing.assert_array_equal(found, wanted)
    made = [str(op.outs[0][1].type) for op in f.program.ops if isinstance(op, Compute) and "select_n" in op.name]
    assert sorted(made) == ["[1{d}8, 8]", "[8, 8]"]  # each as one of the two readers needs it
    assert f.choices == ()


def test_constants_whose_work_a_tactic_cuts_decide_as_others_do() -> None:
    def drawn(scale: Any) -> Any:
        return jnp.sum(jax.random.bits(jax.random.key(1), (64,)) >> 20) * scale

    f = rd.distribute(drawn, (np.uint32(2),), {"d": 8}, schedule=rd.work("d", {"random_bits": "d0"}))
    assert kinds(f) == ["all_reduce"]
    assert f(np.uint32(2)) == drawn(np.uint32(2))


# ------------------------------------------------------------------------------------------ scans


def test_gradients_of_a_scan_are_added_up_once() -> None:
    params, x = {"w": whole(8, 16) / 8, "v": whole(16, 16) / 16}, whole(4, 8, 8)
    f = rd.distribute(jax.grad(recurrent), (params, x), {"d": 8}, schedule=rd.along("d", {"x": 1}), machine="exact")
    assert kinds(f) == [
        "unreduce",
        "unreduce",
        "all_reduce",
        "all_reduce",
    ]  # sums begin with zeros, without bytes
    assert compiled_as_predicted(f) == 2 * 7 * (8 * 16 + 16 * 16) * 4
    wanted = jax.grad(recurrent)(params, x)
    for found, want in zip(jax.tree.leaves(f(params, x)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(found, want, atol=1e-4)


def test_operations_without_a_line_of_their_own_have_that_of_their_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's own lines are none of the user's."""
    monkeypatch.setattr(inline, "source_line", lambda eqn: "here" if eqn.primitive is lax.scan_p else "")

    def f(x: Any) -> Any:
        return lax.scan(lambda carry, row: (carry + row, carry * row), x[0], x, unroll=8)[1]

    program = rd.distribute(f, (whole(8, 4),), {"d": 4}, schedule=rd.along("d", {"x": 1}), machine="exact").program
    inside = [op.source for op in program.ops if isinstance(op, Compute) and op.name.startswith(("add", "mul"))]
    assert inside == ["here"] * (2 * 8 - 1)  # nobody reads the last sum


def test_what_one_unrolled_scan_leaves_the_next_takes_step_by_step() -> None:
    """The states that the forward pass gathers are those of the backward pass: no second gather, as compiled."""
    params, x = {"w": whole(8, 16) / 8, "v": whole(16, 16) / 16}, whole(4, 8, 8)
    function = jax.grad(partial(recurrent, unroll=4))
    f = rd.distribute(function, (params, x), {"d": 8}, schedule=rd.along("d", {"w": 1, "v": 1}), machine="exact")
    compiled_as_predicted(f)
    assert kinds(f).count("allgather") == 3


def test_gradients_that_are_numbers_are_added_up_too() -> None:
    f = rd.distribute(jax.grad(lambda x: x + x), (np.float32(3),), {"d": 8})
    assert f(np.float32(3)) == 2


# ------------------------------------------------------------------------------------------ arguments


def test_donated_arguments_make_room_for_results() -> None:
    def step(params: Any, x: Any) -> Any:
        return jax.tree.map(lambda p: p - 0.5 * jnp.sum(x), params)

    params, x = {"w": whole(64, 64), "v": whole(64, 64)}, whole(8)
    options: Any = {"schedule": rd.along("d", {"params": 0, "x": 0}), "machine": "exact"}
    plain = rd.distribute(step, (params, x), {"d": 8}, **options)
    f = rd.distribute(step, (params, x), {"d": 8}, donate="params", **options)
    assert f.memory <= plain.memory - 64 * 64 // 8 * 4
    assert f.lower().compile().memory_analysis().alias_size_in_bytes == 2 * 64 * 64 // 8 * 4
    given = jax.device_put((params, x), f.in_shardings)
    np.testing.assert_array_equal(f(*given)["w"], params["w"] - 0.5 * x.sum())
    assert [array.is_deleted() for array in jax.tree.leaves(given)] == [True, True, False]
    with pytest.raises(
        CutError,
        match=exactly("array 'parms': no argument is called so; there are 'params/v', 'params/w', 'x'"),
    ):
        rd.distribute(step, (params, x), {"d": 8}, donate="parms", **options)


# ------------------------------------------------------------------------------------------ rules


def test_groups_of_a_convolution_are_cut() -> None:
    def grouped(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=4)

    x, w = whole(2, 8, 5, 5), whole(12, 2, 3, 3)
    f = rd.distribute(grouped, (x, w), {"d": 4}, schedule=rd.along("d", {"x": 1}))
    assert not f.program.moves
    assert f.in_shardings[1].spec[0] == "d"
    np.testing.assert_array_equal(f(x, w), grouped(x, w))


@pytest.mark.parametrize("how", ["set", "multiply", "min", "max"])
def test_where_updates_go_is_cut(how: str) -> None:
    def scattered(x: Any, k: Any, u: Any) -> Any:
        return getattr(x.at[k], how)(u)

    args = (whole(16, 3), np.array([3, 17, 0, 9], np.int32), whole(4, 3) + 5)
    f = rd.distribute(scattered, args, {"d": 8}, schedule=rd.along("d", {"x": 0}))
    assert not f.program.moves
    assert f.out_shardings.spec == P("d", None)
    np.testing.assert_array_equal(f(*args), scattered(jnp.asarray(args[0]), *args[1:]))


def test_solves_that_are_stacked_are_cut() -> None:
    ones = np.ones((8, 3), np.float32)
    args = (ones * 0, ones * 2, ones * 0, whole(8, 3, 2))
    f = rd.distribute(lambda *a: lax.linalg.tridiagonal_solve(*a), args, {"d": 8}, schedule=rd.along("d", {"arg3": 0}))
    assert not f.program.moves
    assert f.in_shardings[0].spec == P("d", None)
    np.testing.assert_array_equal(f(*args), args[3] / 2)


# ------------------------------------------------------------------------------------------ operations


def test_an_operation_has_the_name_of_its_first_result() -> None:
    """Of several results the others are numbered after it, and nothing that runs whole counts as work."""

    def function(x: Any, y: Any) -> Any:
        _, second = lax.sort((x, y), num_keys=1)
        host = jax.pure_callback(lambda a: (a, a + 1), (jax.ShapeDtypeStruct(x.shape, x.dtype),) * 2, second)
        return lax.sort((host[1], second), num_keys=1)

    args = (whole(8, 16), whole(8, 16))
    f = rd.distribute(function, args, {"d": 8}, schedule=rd.along("d", {"x": 0}))
    made = {op.name: [value.name for _, value in op.outs] for op in f.program.ops if isinstance(op, Compute)}
    assert made == {
        "sort": ["sort", "sort_1"],
        "pure_callback": ["pure_callback", "pure_callback_1"],
        "sort_2": ["sort_2", "sort_3"],
    }
    assert [op.flops for op in f.program.ops if isinstance(op, Compute) and op.name == "pure_callback"] == [0]
    for found, wanted in zip(f(*args), function(*args), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("target", [(None, None, None), (None, "d", None)])
def test_a_transform_of_one_row_is_gathered(target: tuple[str | None, ...]) -> None:
    """XLA for CPUs gives the dimension of size 1 another place in memory, and then refuses the transform."""
    x = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    schedule = [rd.along("d", {"x": 1}), rd.along("t", {"x": 1})]

    def transformed(x: Any) -> Any:
        return jnp.fft.rfft(x)

    f = rd.distribute(transformed, (x,), {"d": 2, "t": 2}, schedule=schedule, out_shardings=P(*target))
    np.testing.assert_allclose(f(x), np.fft.rfft(x), rtol=1e-5, atol=1e-5)
    slope = jax.grad(lambda x: jnp.abs(f(x)).sum())(x)
    np.testing.assert_allclose(slope, jax.grad(lambda x: jnp.abs(transformed(x)).sum())(x), rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------------ repeated layers


@pytest.mark.parametrize("layers", [2, 30])
def test_the_rules_of_repeated_layers_are_applied_once(monkeypatch: pytest.MonkeyPatch, layers: int) -> None:
    def stack(x: Any, weights: Any) -> Any:
        for weight in weights:
            x = jax.nn.gelu(x @ weight) + 0.5
        return x

    applied = []
    derive = nests.Nests._by

    def counted(self: Any, equation: Any, rule: Any) -> Any:
        applied.append(equation.kind)
        return derive(self, equation, rule)

    monkeypatch.setattr(nests.Nests, "_by", counted)
    traced = inline.trace(stack, (whole(4, 8), [whole(8, 8)] * layers), ["x", *(f"w{k}" for k in range(layers))])
    assert len(applied) < 20
    assert len(traced.graph.operations) > 5 * layers
    assert applied.count("dot_general") == 1


def test_equations_of_other_numbers_have_nests_of_their_own() -> None:
    """0.0 and -0.0 are equal, and so are 1 and True; their equations are not."""

    def function(x: Any) -> Any:
        return x + 0.0, x + -0.0, lax.pad(x, 0.0, [(0, 1, 0)]), lax.pad(x, -0.0, [(0, 1, 0)]), x * 2, x * 3

    x = np.full(8, -0.0, np.float32)
    f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    for ours, expected in zip(f(x), jax.jit(function)(x), strict=True):
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(expected))
        np.testing.assert_array_equal(ours, expected)


def test_a_jaxpr_that_is_called_again_becomes_what_it_would_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where bounds of its operands are known then, or they are numbers, and where other equations look at them."""

    @jax.jit
    def layer(x: Any, y: Any, wide: Any, row: Any, at: Any) -> Any:
        near = lax.reduce_window(wide, 0.0, lax.add, (3, 3), (1, 1), "VALID")
        rows = x[row, at] + x.at[row, at].add(1.0)[:, 0]
        chosen = jnp.where((x > y) | jnp.any(x > 1, axis=0), near, jnp.cumsum(y, axis=0))
        return jax.nn.softmax(chosen @ y) * rows[:, None] + jnp.sort(x, axis=1)

    def function(x: Any, wide: Any, at: Any) -> Any:
        squashed, counted = jax.nn.sigmoid(x), lax.broadcasted_iota(jnp.float32, (8, 8), 1)
        x = layer(layer(x, x, wide, at, at), x, wide, at, jnp.arange(8))
        for y in (squashed, counted, x, jnp.zeros((8, 8)), lax.optimization_barrier(x)):
            x = layer(x, y, jnp.pad(y, 1), jnp.arange(8), at)
            x = layer(y, x, wide, at, jnp.arange(8))
        return layer(x, layer(x, x, wide, at, at), wide, at, at)

    def traced() -> tuple[object, ...]:
        args = (whole(8, 8), whole(10, 10), jax.ShapeDtypeStruct((8,), jnp.int32))
        got = inline.trace(function, args, ["x", "wide", "at"], TraceOptions(parts=4, divided=frozenset({1})))
        operations = [
            (
                replace(operation.nest, body=None),
                *(operation.kind, operation.ins, operation.outs, operation.source, operation.opaque),
            )
            for operation in got.graph.operations
        ]
        return got.graph.inputs, got.graph.outputs, operations, got.divisible

    asked: list[bool] = []
    find = Repeated.find

    def noted(self: Repeated, *args: Any) -> Any:
        asked.append((seen := find(self, *args)) is not None)
        return seen

    monkeypatch.setattr(Repeated, "find", noted)
    again = traced()
    assert asked.count(True) > 100
    monkeypatch.setattr(Repeated, "find", lambda self, *args: None)
    assert again == traced()
