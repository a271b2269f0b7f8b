"""Effects are carried once and in order, as `jax.jit` on one device has them, or refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import checkify, io_callback

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import is_effectful
from redistrib.programs.ir.text import bodies_of, to_text
from redistrib.programs.stages.layout import Layout
from tests.programs.run.effectful import KINDS, WRAPPERS, Function, Statement, functions, is_allowed, recorded

# Whole numbers, so that sums have the same bits in every order.
X = np.arange(32, dtype=np.float32).reshape(8, 4) % 3 - 1
W = np.eye(4, dtype=np.float32)[::-1] * 2
ROWS = rd.along("d", {"x": 0})


def seen(entries: list[tuple[str, Any]]) -> list[str]:
    return [f"{tag} {value.dtype}{value.shape} {value.tolist()}" for tag, value in entries]


def check(function: Callable[..., Any], ordered: bool, mesh: Any, schedule: Any, args: Any = (X, W)) -> Any:
    """Hold a distributed function against the function itself."""
    f = rd.distribute(function, args, mesh, schedule=schedule)
    wanted, entries = recorded(jax.jit(function), args)
    results, own = recorded(f, args)
    np.testing.assert_array_equal(results, wanted)
    if ordered:
        assert seen(own) == seen(entries)
    else:
        assert Counter(seen(own)) == Counter(seen(entries))
    return f


CASES = [Statement(kind, wrapper, whole=True) for kind in ("debug", "answer") for wrapper in WRAPPERS]
CASES += [Statement(kind, "plain", whole=True) for kind in KINDS]


CASES = [replace(one, ordered=ordered) for one in CASES for ordered in (False, True)]


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(one, marks=[] if one.ordered or one.wrapper == "plain" else pytest.mark.long)
        for one in CASES
        if is_allowed(one)
    ],
    ids=str,
)
def test_an_effect_is_had_once_with_the_whole_value(statement: Statement) -> None:
    f = check(Function((statement, replace(statement, wrapper="plain"))), statement.ordered, {"d": 2}, ROWS)
    assert any(map(is_effectful, f.program.ops))


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(functions(), st.booleans(), st.sampled_from([(1, 1), (2, 2), (3, 1)]), st.data())
def test_drawn_functions_have_the_effects_of_the_function(
    function: Function, ordered: bool, sizes: tuple[int, int], data: Any
) -> None:
    function = Function(tuple(replace(one, ordered=ordered) for one in function.statements))
    assume(all(map(is_allowed, function.statements)))
    mesh = dict(zip("de", sizes, strict=True))
    x = np.tile(X, (3, 1)) if sizes[0] == 3 else X
    schedule = [rd.along("d", {"x": 0})] + ([rd.along("e", {"w": data.draw(st.sampled_from([0, 1]))})] * (sizes[1] > 1))
    check(function, ordered, mesh, schedule, (x, W))


def test_gradients_have_the_effects_that_they_have_without_a_mesh() -> None:
    for wrapper in ("plain", "scan", "cond", "remat", "custom_jvp", "jit"):
        loss = Function((Statement("debug", wrapper), Statement("print", wrapper)))
        check(jax.grad(lambda x, w, loss=loss: loss(x, w).sum(), argnums=1), False, {"d": 2}, ROWS)  # type: ignore[misc]


def test_what_a_host_answers_reaches_every_device_to_the_bit() -> None:
    for dtype in ("float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64", "float8_e4m3fn", "int4"):
        answers = np.asarray([0.0, -0.0, 1, 3, 0], np.float32).astype(jnp.dtype(dtype))
        if jnp.issubdtype(dtype, jnp.inexact):
            answers[4] = np.nan

        def asked(x: Any, answers: Any = answers) -> Any:
            return x, io_callback(lambda: answers, jax.ShapeDtypeStruct(answers.shape, answers.dtype))

        f = rd.distribute(asked, (X,), {"d": 4}, schedule=ROWS)
        array = f(X)[1]
        shards = [np.asarray(shard.data) for shard in array.addressable_shards]
        assert len(shards) == 4
        assert {shard.tobytes() for shard in shards} == {answers.tobytes()}, dtype


def test_a_callback_that_reads_nothing_is_not_made_again_for_every_reader() -> None:
    calls: list[int] = []

    def number() -> Any:
        calls.append(1)
        return np.ones((8, 4), np.float32)

    def function(x: Any) -> Any:
        y = io_callback(number, jax.ShapeDtypeStruct((8, 4), jnp.float32))
        return x + y, (x.T @ y), y.sum(1)

    jax.block_until_ready(rd.distribute(function, (X,), {"d": 4}, schedule=ROWS)(X))
    assert calls == [1]


def test_an_effect_stands_in_the_printed_program_in_its_place() -> None:
    f = rd.distribute(Function((Statement("print"), Statement("io", ordered=True))), (X, W), {"d": 2}, schedule=ROWS)
    text = str(f.program)
    assert text.index("debug_print") < text.index("io_callback") < text.index("dot_general")
    assert f.opaque == ()


def test_a_pure_callback_is_computed_whole_and_dropped_where_nothing_reads_it() -> None:
    calls: list[tuple[int, ...]] = []

    def cumulated(x: Any) -> Any:
        calls.append(x.shape)
        return np.cumsum(np.asarray(x), 0)

    def function(x: Any, sharding: Any, used: bool) -> Any:
        y = jax.pure_callback(cumulated, jax.ShapeDtypeStruct(x.shape, x.dtype), x, sharding=sharding)
        return x + y if used else x

    for sharding in (None, jax.sharding.SingleDeviceSharding(jax.devices()[0])):
        f = rd.distribute(partial(function, sharding=sharding, used=True), (X,), {"d": 4}, schedule=ROWS)
        np.testing.assert_array_equal(f(X), X + np.cumsum(X, 0))
        assert set(calls) == {X.shape}
        calls.clear()
        jax.block_until_ready(rd.distribute(partial(function, sharding=sharding, used=False), (X,), {"d": 4})(X))
        assert calls == []


def test_checks_made_values_by_checkify_are_distributed() -> None:
    def function(x: Any) -> Any:
        checkify.check(x.sum() > 0, "the sum is {s}", s=x.sum())
        return x * 2

    checked = checkify.checkify(function)
    f = rd.distribute(lambda x: checked(x), (X,), {"d": 4}, schedule=ROWS)
    error, doubled = f(-abs(X))
    np.testing.assert_array_equal(doubled, -abs(X) * 2)
    assert "the sum is" in str(error.get())
    assert f(abs(X))[0].get() is None


def _written_in_place(x: Any) -> Any:
    ref = jax.new_ref(x)
    ref[0] = ref[0] * 2
    return ref[...]


def _of_a_closure() -> Callable[[Any], Any]:
    ref = jax.new_ref(jnp.zeros((8, 4)))

    def function(x: Any) -> Any:
        ref[...] = x
        return x * 2

    return function


def _checked(x: Any) -> Any:
    checkify.check(x.sum() > 0, "no")
    return x


def _by_shards(x: Any) -> Any:
    jax.debug.print("{x}", x=x, partitioned=True)
    return x


SHOWN: list[float] = []


def _keys_in_a_loop(x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        key, total = carry
        jax.debug.callback(lambda total: SHOWN.append(float(total)), total)
        key, own = jax.random.split(key)
        return (key, total + jax.random.normal(own)), None

    return lax.scan(step, (jax.random.key(0), 0.0), length=200)[0][1] + x


REFUSED = [
    (_written_in_place, "new_ref", "return the new value"),
    (_of_a_closure(), "", "return the new value"),
    (lambda x: lax.fori_loop(0, 300, lambda k, x: _written_in_place(x), x), "new_ref", "return the new value"),
    (_checked, "check", "checkify"),
    (_by_shards, "debug_print", "partitioned=False"),
]


@pytest.mark.parametrize(("function", "operation", "way_out"), REFUSED)
def test_other_effects_are_refused_by_name(function: Any, operation: str, way_out: str) -> None:
    with pytest.raises(ProgramError, match=way_out) as error:
        rd.distribute(function, (X,), {"d": 2}, schedule=ROWS)
    assert (error.value.operation, error.value.rule) == (operation, "Effect")


def test_an_effect_is_had_once_at_every_step_of_a_loop_with_keys() -> None:
    shown = []
    for run in (jax.jit(_keys_in_a_loop), rd.distribute(_keys_in_a_loop, (X,), {"d": 2}, schedule=ROWS)):
        SHOWN.clear()
        shown.append(np.asarray(run(X)))
        jax.effects_barrier()
        shown.append(np.array(SHOWN))
    np.testing.assert_array_equal(shown[2], shown[0])
    np.testing.assert_array_equal(shown[3], shown[1])
    assert len(SHOWN) == 200


def test_pipelines_refuse_effects_by_name() -> None:
    function = Function((Statement("debug"),))
    with pytest.raises(ProgramError, match="every microbatch would have the effect") as error:
        rd.pipeline(function, (X, W), {"x": 0}, Layout(microbatches=2))
    assert error.value.operation == "debug_callback"


def test_mpi_refuses_effects_by_name() -> None:
    comm = pytest.importorskip("mpi4py.MPI").COMM_SELF
    f = rd.distribute(Function((Statement("io"),)), (X, W), {"d": 1})
    with pytest.raises(ProgramError, match="every rank would have the effect") as error:
        rd.to_mpi(f.program, comm)
    assert error.value.operation == "io_callback"


def test_the_text_of_a_program_says_what_has_an_effect() -> None:
    f = rd.distribute(Function((Statement("debug"), Statement("answer", "while"))), (X, W), {"d": 2}, schedule=ROWS)
    again = parse(to_text(f.program), bodies_of(f.program))
    assert again == f.program
    assert [is_effectful(op) for op in again.ops] == [is_effectful(op) for op in f.program.ops]


def test_a_searched_schedule_keeps_effects() -> None:
    function = Function((Statement("debug", ordered=True), Statement("answer", "cond", ordered=True)))
    found = rd.search(function, (X, W), {"d": 2})
    wanted, entries = recorded(jax.jit(function), (X, W))
    for f in (found.distributed, rd.distribute(function, (X, W), {"d": 2}, schedule=found.schedule)):
        results, own = recorded(f, (X, W))
        np.testing.assert_array_equal(results, wanted)
        assert seen(own) == seen(entries)


def test_nothing_is_called_before_the_function_is() -> None:
    function = Function(
        tuple(Statement(kind, wrapper) for kind in ("print", "answer") for wrapper in ("plain", "while"))
    )

    def looked_at() -> Any:
        f = rd.distribute(function, (X, W), {"d": 2}, schedule=ROWS)
        f.lower().compile()
        rd.diagnose(jax.jit(function), X, W)
        rd.diagnose(f.lower())
        return f.memory, f.compiled_memory, f.cost, str(f)

    assert recorded(looked_at, ())[1] == []


def test_rules_of_the_caller_are_followed_inside_loops() -> None:
    asked: list[str] = []

    def whole(equation: Any) -> None:
        asked.append(equation.kind)

    f = rd.distribute(
        lambda x: lax.fori_loop(0, 200, lambda k, x: jnp.sin(x), x), (X,), {"d": 2}, schedule=ROWS,
        rules={"sin": whole},
    )  # fmt: skip
    assert "sin" in asked
    assert not any(part.cut.axes for op in f.program.ops for part in getattr(op, "parts", ()))
