"""Which operations partial sums pass: each rule, in each element type, against the law it stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.errors import CutError
from redistrib.programs.ir.graph import Graph, Operation
from redistrib.programs.ir.program import Loop
from redistrib.programs.rules.inline import trace
from redistrib.programs.rules.sums import sum_identity
from redistrib.programs.schedule.schedule import Schedule

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
FLOATS = ("float16", "bfloat16", "float32")
OTHERS = ("bool", "int4", "uint4", "float8_e4m3fn", "float8_e5m2", "complex64")
DTYPES = (*INTEGERS, *FLOATS, *OTHERS)
DIMS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
ROWS = np.array([[2], [0], [2]], np.int32)


UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lax.neg,
    "abs": lax.abs,
    "real": lax.real,
    "imag": lax.imag,
    "reduce_sum": lambda x: lax.reduce_sum(x, (0,)),
    "reduce_max": lambda x: lax.reduce_max(x, (0,)),
    "cumsum": lax.cumsum,
    "cumprod": lax.cumprod,
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(2, 2, 3, 2),
    "squeeze": lambda x: lax.squeeze(x[None], (0,)),
    "broadcast_in_dim": lambda x: jnp.broadcast_to(x, (2, 4, 6)),
    "slice": lambda x: x[1:3],
    "rev": lambda x: x[::-1],
    "split": lambda x: jnp.split(x, 2),
    "pad": lambda x: lax.pad(x, jnp.zeros((), x.dtype), ((1, 0, 1), (0, -1, 0))),
    "pad with a number": lambda x: lax.pad(x, np.ones((), x.dtype), ((1, 0, 0), (0, 0, 0))),
    "copy": jnp.copy,
    "optimization_barrier": lax.optimization_barrier,
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (np.int32(3), np.int32(0)), (2, 6)),
    "gather": lambda x: x[np.array([2, 7])],
    "gather that fills": lambda x: jnp.take(x, np.array([2, 7]), 0),
    "gather that fills zeros": lambda x: jnp.take(x, np.array([2, 7]), 0, fill_value=0),
    "gather windows": lambda x: lax.gather(x, ROWS, lax.GatherDimensionNumbers((1, 2), (), (0,)), (2, 6)),
    "fft": lambda x: lax.fft(x[:, :4], lax.FftType.FFT, (4,)),
    "round": lax.round,
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 3),
    "div by a constant": lambda x: lax.div(x, jnp.full_like(x, 2)),
    "div by zero": lambda x: lax.div(x, jnp.full_like(x, 0)),
    "mul by a constant": lambda x: x * jnp.full_like(x, 3),
    "mul by infinity": lambda x: x * jnp.full_like(x, np.inf),
    "rem": lambda x: lax.rem(x, jnp.full_like(x, 3)),
    "shift_left": lambda x: lax.shift_left(x, jnp.full_like(x, 1)),
    "shift_right": lambda x: lax.shift_right_arithmetic(x, jnp.full_like(x, 1)),
    "integer_pow": lambda x: lax.integer_pow(x, 2),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "max": lax.max,
    "and": lax.bitwise_and,
    "dot_general": lambda x, y: lax.dot(x, y.T),
    "dot_general, wider": lambda x, y: lax.dot(x, y.T, preferred_element_type=wider(x.dtype)),
    "convolution": lambda x, y: lax.conv(x[None], y[:, :3].reshape(3, 4, 1), (1,), "SAME"),
    "concatenate": lambda x, y: jnp.concatenate([x, y]),
    "select_n": lambda x, y: jnp.where(np.arange(6) % 2 == 0, x, y),
    "dynamic_update_slice": lambda x, y: lax.dynamic_update_slice(x, y[:2], (np.int32(3), np.int32(0))),
    "scatter-add": lambda x, y: lax.scatter_add(x, ROWS, y[:3], DIMS),
    "scatter": lambda x, y: lax.scatter(x, ROWS[:2], y[:2], DIMS),
    "mask": lambda x, y: x * (y > 1).astype(x.dtype),
    "div by a mask": lambda x, y: lax.div(x, (y > 1).astype(x.dtype)),
    "pow": lax.pow,
    "complex": lax.complex,
}
ADDITIVE = (
    "add", "broadcast_in_dim", "concatenate", "cumsum", "dynamic_update_slice", "mul by a constant", "neg", "pad",
    "reduce_sum", "reshape", "rev", "scatter-add", "select_n", "slice", "split", "sub", "transpose",
)  # fmt: skip
MUST_PASS = {
    **dict.fromkeys(ADDITIVE, (*INTEGERS, *FLOATS, "complex64")),
    **dict.fromkeys(("mul", "dot_general"), INTEGERS),
    **dict.fromkeys(("gather that fills zeros", "gather"), (*INTEGERS, "complex64")),
    "div by a constant": FLOATS,
    "mask": (*INTEGERS, *FLOATS),
    "real": ("complex64",),
    "fft": ("complex64",),
}


def wider(dtype: Any) -> Any:
    kinds = {"int8": "int32", "uint8": "uint32", "int16": "int32", "uint16": "uint32"}
    return kinds.get(str(dtype), "float32" if jnp.issubdtype(dtype, jnp.floating) else str(dtype))


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Integers of the whole range, which overflow; floats small enough for exact sums, with infinities and NaN."""
    rng = np.random.default_rng(seed)
    kind = jnp.dtype(dtype)
    if jnp.issubdtype(kind, jnp.integer):
        limits = jnp.iinfo(kind)
        return jnp.asarray(rng.integers(int(limits.min), int(limits.max), shape, endpoint=True).astype(kind))
    values = rng.integers(-6, 7, shape).astype(np.float32)
    for k, special in enumerate((np.inf, -np.inf, np.nan, 0.0, 0.0, 0.0)):
        values.reshape(-1)[(seed + 5 * k) % max(1, values.size) :: 17] = special
    if jnp.issubdtype(kind, jnp.complexfloating):
        return jnp.asarray(values + 1j * np.roll(np.nan_to_num(values, posinf=1, neginf=2), 1), kind)
    return jnp.asarray(values).astype(kind)


def graphs(dtype: str) -> Iterator[tuple[str, Graph]]:
    form = jax.ShapeDtypeStruct((4, 6), jnp.dtype(dtype))
    for count, functions in ((1, UNARY), (2, BINARY)):
        for name, function in functions.items():
            try:
                yield name, trace(function, (form,) * count, ["x", "y"][:count]).graph  # type: ignore[arg-type]
            except (TypeError, ValueError, OverflowError, NotImplementedError):
                continue  # JAX has no such operation of this type
    for other in DTYPES:
        yield f"convert to {other}", trace(lambda x, t=other: lax.convert_element_type(x, t), (form,), ["x"]).graph


def both_ways(graph: Graph) -> Callable[..., dict[str, Any]]:
    """For every operation that partial sums pass `f(a) + f(b)` and `f(a + b)`, one function for the whole graph."""
    arrays = graph.arrays

    def run(operation: Operation, tiles: list[Any]) -> tuple[Any, ...]:
        made = operation.nest.body(dict(operation.nest.ranges), *tiles)  # type: ignore[misc]
        return made if isinstance(made, tuple) else (made,)

    def values(inputs: list[Any], summands: dict[tuple[int, int, int], Any]) -> dict[str, Any]:
        held = dict(zip((array.name for array in graph.inputs), inputs, strict=True))
        found = {}
        for k, operation in enumerate(graph.operations):
            tiles = [held[name] for name in operation.ins]
            held |= {array.name: tile for array, tile in zip(operation.outs, run(operation, tiles), strict=True)}
            for group in operation.nest.linear:
                parts = [list(tiles), list(tiles), list(tiles)]
                for read in group:
                    one, other = summands[k, read, 0], summands[k, read, 1]
                    parts[0][read], parts[1][read], parts[2][read] = one, other, one + other
                first, second, whole = (run(operation, row) for row in parts)
                added = [a + b for a, b in zip(first, second, strict=True)]
                found[f"{operation.kind} in {group}"] = (added, whole)
        return found

    compiled = jax.jit(values)

    def tried(seed: int) -> dict[str, Any]:
        inputs = [drawn(array.shape, array.dtype, seed + k) for k, array in enumerate(graph.inputs)]
        summands = {}
        for k, operation in enumerate(graph.operations):
            for read in (read for group in operation.nest.linear for read in group):
                form = arrays[operation.ins[read]]
                for part in (0, 1):
                    summands[k, read, part] = drawn(form.shape, form.dtype, 100 * seed + 11 * read + part)
        return compiled(inputs, summands)

    return tried


def is_same(one: Any, other: Any) -> bool:
    """Equal bits of integers; equal numbers of floats, NaN where the other has one."""
    return np.array_equal(*(np.asarray(v, complex) for v in (one, other)), equal_nan=True)


@pytest.mark.parametrize(
    "dtype",
    [t if t in ("int8", "uint32", "bfloat16", "bool") else pytest.param(t, marks=pytest.mark.long) for t in DTYPES],
)
def test_what_partial_sums_pass_is_additive_in_the_arithmetic_of_its_type(dtype: str) -> None:
    passed = set()
    for name, graph in graphs(dtype):
        if all(operation.nest.linear for operation in graph.operations if "x" in operation.ins):
            passed.add(name)
        if not any(operation.nest.linear for operation in graph.operations):
            continue
        tried = both_ways(graph)
        for seed in range(4):
            wrong = [
                said
                for said, (added, whole) in tried(seed).items()
                if not all(is_same(a, b) for a, b in zip(added, whole, strict=True))
            ]
            assert wrong == [], (name, dtype)
    assert [name for name, dtypes in MUST_PASS.items() if dtype in dtypes and name not in passed] == []


# ------------------------------------------------------------------------------------------ beside jax.jit


def agree(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The same bits as `jax.jit` makes, `x` cut four ways along its first dimension."""
    options.setdefault("schedule", rd.along("d", {"x": 0}))
    f = rd.distribute(function, args, {"d": 4}, **options)
    for found, wanted in zip(jax.tree.leaves(f(*args)), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
        found, wanted = np.asarray(found), np.asarray(wanted)
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        assert found.tobytes() == wanted.tobytes(), f"{found} and not {wanted}"
    return f


def is_added_first(f: Any) -> bool:
    """Whether every sum is added as it was made, before any operation."""
    return not any(part.carried for op in f.program.ops if hasattr(op, "parts") for part in op.parts)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32", "int32"])
def test_integers_are_divided_when_they_are_whole(dtype: str) -> None:
    x = np.arange(32, dtype=np.uint8).reshape(8, 4)
    agree(lambda x: lax.div(lax.reduce_sum(x.astype(dtype), (0,)), jnp.asarray(3, dtype)), x)
    agree(lambda x: x.astype(dtype).sum(0) // 8, x)


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, 0.0, 2.0])
def test_no_partial_sum_meets_what_may_be_infinite(scale: float) -> None:
    x = np.arange(32, dtype=np.float32).reshape(8, 4) - 14
    for function in (
        lambda x, w: x.sum(0) * w,
        lambda x, w: x.sum(0) / w,
        lambda x, w: jnp.dot(x.sum(0), jnp.full((4, 2), 1.0) * w),
        lambda x, w: x.sum(0) * jnp.sqrt(w),
    ):
        assert is_added_first(agree(function, x, np.float32(scale)))


def test_partial_sums_pass_products_with_what_is_certainly_finite() -> None:
    x = np.arange(32, dtype=np.float32).reshape(8, 4) - 14
    for function in (
        lambda x, m: x.sum(0) / 8,
        lambda x, m: x.sum(0) * 0.5,
        lambda x, m: x.sum(0) * (m > 1),
        lambda x, m: x.sum(0) * m,
        lambda x, m: x.sum(0) / jnp.sqrt(jnp.float32(16)),
        lambda x, m: jnp.where(m > 2, x.sum(0), 2 * x.sum(0)),
    ):
        f = agree(function, x, np.arange(4, dtype=np.int8))
        assert not is_added_first(f)
        assert is_added_first(agree(function, x, np.arange(4, dtype=np.int8), exact=True))


@pytest.mark.parametrize("constant", [np.inf, np.nan, [1.0, np.inf, 2.0, 3.0], 3e38])
def test_constants_are_looked_at(constant: Any) -> None:
    """What a function closes over is finite, or not; what is computed from it may overflow."""
    x, large = np.arange(32, dtype=np.float32).reshape(8, 4) - 14, jnp.asarray(constant, jnp.float32)
    assert is_added_first(agree(lambda x: x.sum(0) * (large * 4), x))


def test_numbers_that_a_type_has_no_room_for_are_infinite() -> None:
    x, m = np.ones((8, 4), np.float16), np.full(4, 65535, np.uint16)
    assert is_added_first(agree(lambda x, m: lax.reduce_sum(x, (0,)) * m.astype(jnp.float16) * 0, x, m))
    assert not is_added_first(
        agree(lambda x, m: lax.reduce_sum(x, (0,)) * m.astype(jnp.float16), x, m.astype(np.uint8))
    )


def test_no_summand_is_rounded_to_another_type() -> None:
    x = (np.arange(32, dtype=np.float32) * 33).reshape(8, 4)
    for dtype in ("bfloat16", "float16", "int8", "float8_e4m3fn"):
        assert is_added_first(agree(lambda x, t=dtype: x.sum(0).astype(t), x))
    assert is_added_first(agree(lambda x: lax.reduce_sum(x.astype(np.uint8), (0,)).astype(np.uint32), x % 200))


def test_booleans_are_not_summed() -> None:
    ones = np.ones((3, 8), bool)
    assert not agree(lambda x, a: a @ x, np.eye(8, dtype=bool), ones).program.values["dot_general"].type.partial


def test_an_exact_function_adds_at_once_inside_loops_too() -> None:
    """The gradient that a loop adds up is a partial sum inside it, unless the sums are to be exact.

    Each step has a sum of its own; one that is the same at every step is made once, before the loop.
    """

    def looped(x: Any) -> Any:
        return lax.fori_loop(0, 200, lambda k, total: total + (x * (k % 3)).sum(0), jnp.zeros(4))

    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    plain, exact = agree(looped, x), agree(looped, x, exact=True)
    sums = [next(op.outs[-1] for op in f.program.ops if isinstance(op, Loop)) for f in (plain, exact)]
    assert [bool(value.type.partial) for value in sums] == [True, False]
    assert exact.program.received_bytes == 200 * plain.program.received_bytes > 0


def test_a_schedule_of_partial_sums_is_refused_where_none_may_pass() -> None:
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    function = lambda x: x.sum(0) * 2  # noqa: E731
    starts = {"x": rd.DistType.of("[2{d}8, 4]")}
    passing = Schedule(rd.Mesh.of("d=4"), {"reduce_sum": {"d": "d0"}}, {"mul": {"d": 0}}, starts, {})
    assert not is_added_first(agree(function, x, schedule=passing))
    why = "it has no linear groups 0"
    with pytest.raises(CutError, match=re.escape(f"operation 'mul': {why}")):
        rd.distribute(function, (x,), {"d": 4}, schedule=passing, exact=True)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "complex64"])
def test_the_identity_of_a_sum_changes_no_bit(dtype: str) -> None:
    zeros = jnp.asarray(
        [complex(-0.0, -0.0), complex(0.0, -0.0), complex(-0.0, 0.0)] if dtype == "complex64" else [-0.0, 0.0]
    )
    values = jnp.concatenate([zeros, jnp.asarray([1, 3])]).astype(dtype)
    identity = sum_identity(values.dtype)
    assert identity.dtype == values.dtype
    assert (
        np.asarray(values + identity).tobytes()
        == np.asarray(identity + values).tobytes()
        == np.asarray(values).tobytes()
    )
