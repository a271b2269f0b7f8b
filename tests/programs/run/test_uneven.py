"""Uneven cuts: what `rd.distribute` makes of dimensions that an axis does not divide equals `jax.jit`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import redistrib as rd
from redistrib.errors import CutError, ProgramError
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.ir.program import Compute
from redistrib.programs.ir.reference import run_by_rank, run_whole

Function = Callable[..., Any]

# of an array of n rows and 4 columns, of any element type
OF_ALL: dict[str, Function] = {
    "sum": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum(),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
    "min and max": lambda x: x.max() - x.min(),
    "argmax": lambda x: x.argmax(0),
    "argmin of rows": lambda x: x.argmin(1),
    "product": lambda x: x.prod(0),
    "any": lambda x: (x > 1).any(0),
    "all": lambda x: (x > -9).all(0),
    "count": lambda x: (x != 1).sum(0),
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "cumsum of rows": lambda x: jnp.cumsum(x, 1),
    "cummax": lambda x: lax.cummax(x, 0),
    "sort": lambda x: jnp.sort(x, 0),
    "sort of rows": lambda x: jnp.sort(x, 1),
    "top": lambda x: lax.top_k(x, 2)[1],
    "flip": lambda x: x[::-1],
    "roll": lambda x: jnp.roll(x, 1, 0),
    "slice": lambda x: x[: x.shape[0] - 1],
    "slice of columns": lambda x: x[:, 1:3],
    "every second": lambda x: x[::2],
    "pad": lambda x: jnp.pad(x, 1),
    "concatenate": lambda x: jnp.concatenate([x, x], 0),
    "concatenate columns": lambda x: jnp.concatenate([x, x * x], 1),
    "stack": lambda x: jnp.stack([x, x + x], 1),
    "tile": lambda x: jnp.tile(x, (2, 1)),
    "repeat": lambda x: jnp.repeat(x, 2, 0),
    "transpose": lambda x: x.T + x.T,
    "flat": lambda x: x.reshape(-1),
    "two by two": lambda x: x.reshape(x.shape[0], 2, 2).sum(2),
    "square": lambda x: (x * x).reshape(-1).sum(),
    "new dimension": lambda x: x[:, None] + x[None],
    "product with itself": lambda x: x.T @ x,
    "outer": lambda x: x @ x.T,
    "einsum": lambda x: jnp.einsum("ij,ik,jk->i", x, x, x[:1].T @ x[:1]),
    "where": lambda x: jnp.where(x > 0, x, -x),
    "numbers": lambda x: x + jnp.arange(x.shape[0], dtype=x.dtype)[:, None],
    "one hot": lambda x: (jnp.arange(x.shape[0])[:, None] == jnp.array([0, 2, 1, 5])).astype(x.dtype) + x,
    "rows by number": lambda x: x[jnp.array([0, 1, 0, -1, 90])],
    "columns by number": lambda x: x[:, jnp.array([3, 0])],
    "rows taken": lambda x: jnp.take(x, jnp.array([0, 7, -1]), 0, mode="clip"),
    "rows or fill": lambda x: jnp.take(x, jnp.array([0, 70, -1]), 0, mode="fill", fill_value=3),
    "along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "rows added to": lambda x: x.at[jnp.array([0, 1, 0, 99])].add(x[:1, :]),
    "rows added": lambda x: jnp.zeros((3, 4), x.dtype).at[(jnp.arange(x.shape[0]) * 2) % 3].add(x),
    "rows added at the end": lambda x: x.at[jnp.array([0, 90])].add(x[:1], mode="clip"),
    "rows set": lambda x: x.at[jnp.array([1])].set(0),
    "rows at most": lambda x: x.at[jnp.array([0, -1])].min(0),
    "scan over columns": lambda x: lax.scan(lambda c, row: (c + row, c * row), x[:, 0], x.T),
    "scan over rows": lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + x), (0, x))[1],
    "cond": lambda x: lax.cond(x.shape[0] > 3, lambda a: a + a, lambda a: a, x),
    "vmap": lambda x: jax.vmap(lambda row: row.sum() - row.max())(x),
}
# of floats
OF_FLOATS: dict[str, Function] = {
    "softmax": lambda x: jax.nn.softmax(x, 0),
    "softmax of rows": lambda x: jax.nn.softmax(x, 1),
    "log softmax": lambda x: jax.nn.log_softmax(x, 0),
    "logsumexp": lambda x: jax.nn.logsumexp(x, 0),
    "mean": lambda x: x.mean(0),
    "variance": lambda x: x.var(0),
    "divided": lambda x: 1 / x,
    "log": lambda x: jnp.log(jnp.abs(x)).sum(0),
    "root": lambda x: lax.rsqrt(jnp.abs(x)) * x,
    "gradient of max": jax.grad(lambda x: x.max(0).sum().astype(jnp.float32)),
    "gradient of rows": jax.grad(lambda x: (x[jnp.array([0, 1, 1])] ** 2).sum().astype(jnp.float32)),
    "gradient of softmax": jax.grad(lambda x: (jax.nn.softmax(x, 0)[0] * x[1 % x.shape[0]]).sum().astype(jnp.float32)),
    "gradient of cumsum": jax.grad(lambda x: (jnp.cumsum(x, 0) ** 2).sum().astype(jnp.float32)),
    "gradient of products": jax.grad(lambda x: ((x.T @ x) ** 2).sum().astype(jnp.float32)),
    "noise": lambda x: x + jax.random.normal(jax.random.key(3), x.shape, x.dtype),
    "cholesky": lambda x: jnp.linalg.cholesky(jnp.eye(2) + 0 * x[:, :1, None].astype(jnp.float32)),
}


def rows(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng([n, seed])
    return np.asarray(jnp.asarray(random.integers(-3, 4, size=(n, 4)), dtype))


def hostile(n: int, dtype: str) -> np.ndarray:
    """Rows with NaNs, infinities and negative zeros, of which the last is one of NaNs."""
    found = rows(n, dtype).copy()
    found[0, 0], found[n // 2, 1], found[-1, 2], found[n // 2, 3] = np.inf, -np.inf, np.nan, -0.0
    return found


def agrees(function: Function, array: np.ndarray, mesh: dict[str, int], dim: int = 0, *, merges: bool = False) -> None:
    """`merges`: XLA may make one collective of two that send the same."""
    schedule = [rd.along(axis, {"x": dim}) for axis in mesh]
    f = rd.distribute(named(function), (array,), mesh, schedule=schedule)
    got, expected = f(array), jax.jit(function)(array)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        if jnp.issubdtype(one.dtype, jnp.floating):
            exact = {"bfloat16": 0.05, "float16": 0.01}.get(str(one.dtype), 2e-5)
            one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
            np.testing.assert_allclose(one, other, rtol=exact, atol=exact, equal_nan=True)
        else:
            np.testing.assert_array_equal(one, other)
    received, predicted = inspect(f.lower().compile()).received_bytes, f.compiled_received_bytes
    assert received == predicted or (merges and received < predicted)


def named(function: Function) -> Function:
    def call(x: Any) -> Any:
        return function(jnp.negative(-x))  # so that an operation reads the argument that may be cut unevenly

    return call


@pytest.mark.long
@pytest.mark.parametrize("name", OF_ALL)
def test_integers(name: str) -> None:
    agrees(OF_ALL[name], rows(5, "int32"), {"d": 4})  # the last tile is empty


@pytest.mark.parametrize("name", [*OF_ALL, *OF_FLOATS])
def test_floats_that_are_not_finite_stay_where_they_are(name: str) -> None:
    agrees({**OF_ALL, **OF_FLOATS}[name], hostile(7, "float32"), {"d": 4})


@pytest.mark.exhaustive
@pytest.mark.parametrize("parts", [2, 3, 4, 8])
@pytest.mark.parametrize("size", range(2, 10))
@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
def test_every_size(dtype: str, size: int, parts: int) -> None:
    for name, function in {**OF_ALL, **({} if dtype == "int32" else OF_FLOATS)}.items():
        if dtype == "bfloat16" and name == "cumsum":
            continue
        agrees(function, rows(size, dtype), {"d": parts}, merges=size == 2)  # its gradients pad single rows


@pytest.mark.parametrize("size", [3, 6, 9])
def test_two_axes_cut_one_dimension(size: int) -> None:
    for name in ("softmax", "sum", "rows by number", "sort", "gradient of products"):
        agrees({**OF_ALL, **OF_FLOATS}[name], hostile(size, "float32"), {"d": 2, "e": 2})


@settings(max_examples=15)
@given(st.integers(2, 40), st.sampled_from([2, 3, 4, 5, 8]), st.sampled_from([*OF_ALL]), st.integers(0, 9))
def test_larger_arrays(size: int, parts: int, name: str, seed: int) -> None:
    agrees(OF_ALL[name], rows(size, "int32", seed), {"d": parts})


def gpt(width: int, heads: int, words: int, time: int) -> tuple[Function, tuple[Any, ...]]:
    """A step of a GPT-2 of one layer with momentum: the function and its arguments."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / math.sqrt(shape[0])).astype(np.float32)

    size = width // heads
    params = {
        "wte": weight(words, width),
        "wpe": weight(time, width),
        "qkv": weight(width, 3, heads, size),
        "bias": weight(3, heads, size),
        "out": weight(width, width),
        "up": weight(width, 4 * width),
        "down": weight(4 * width, width),
    }

    def norm(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def loss(params: Any, ids: Any) -> Any:
        x = params["wte"][ids] + params["wpe"]
        q, k, v = jnp.moveaxis(jnp.einsum("btc,cshd->btshd", norm(x), params["qkv"]) + params["bias"], 2, 0)
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(size)
        scores = jnp.where(jnp.tril(jnp.ones((time, time), bool)), scores, -jnp.inf)
        mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
        x = x + mixed.reshape(*mixed.shape[:2], width) @ params["out"]
        x = x + jax.nn.gelu(norm(x) @ params["up"]) @ params["down"]
        logs = jax.nn.log_softmax(norm(x) @ params["wte"].T)
        return -jnp.take_along_axis(logs, jnp.roll(ids, -1, 1)[..., None], -1).mean()

    def step(params: Any, momentum: Any, ids: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, ids)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
        return value, jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

    return step, (params, jax.tree.map(np.ones_like, params), random.integers(0, words, (2, time)))


def is_equal(got: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("words", [57, pytest.param(50257, marks=pytest.mark.long)])
def test_a_vocabulary_over_eight_and_six_heads_over_four(words: int) -> None:
    step, args = gpt(48, 6, words, 8)
    schedule = [
        rd.along("v", {"params/wte": 0}),
        rd.along("h", {"params/wte": 0, "params/qkv": 2, "params/bias": 1}),
    ]
    f = rd.distribute(step, args, {"v": 2, "h": 4}, schedule=schedule)
    is_equal(f(*args), jax.jit(step)(*args))
    assert inspect(f.lower().compile()).received_bytes == f.compiled_received_bytes
    forms = {value.name: value.type for value in f.program.values.values()}
    shapes = [form.local_shape for form in forms.values()]
    assert all(shape[-1:] != (words,) for shape in shapes)  # no device has all logits
    (logits,) = [op for op in computes(f) if op.name == "dot_general_6"]
    assert -(-words // 8) in f.program.values[logits.outs[0][1].name].type.local_shape


def computes(f: Any) -> list[Compute]:
    return [op for op in f.program.ops if isinstance(op, Compute)]


def test_the_share_of_work_is_that_of_the_largest_tile() -> None:
    array, weight = rows(50, "float32"), np.ones((4, 9), np.float32)
    product = lambda x, w: jnp.tanh(x @ w)  # noqa: E731
    alone = rd.distribute(product, (array, weight), {"d": 1})
    f = rd.distribute(product, (array, weight), {"d": 8}, schedule=rd.along("d", {"x": 0}))
    assert f.cost.flops * 50 == alone.cost.flops * 7


def test_the_argument_is_whole_and_the_result_has_its_shape() -> None:
    array = rows(7, "float32")
    f = rd.distribute(lambda x: jnp.exp(x), (array,), {"d": 2}, schedule=rd.along("d", {"x": 0}))
    (value,) = f.program.inputs
    assert str(value.type) == "[7, 4]"
    assert f(array).shape == (7, 4)
    assert [op.kind for op in computes(f)] == ["uneven_tiles", "exp", "uneven_whole"]


@pytest.mark.parametrize("name", ["softmax", "argmax", "rows added to", "rows added at the end", "gradient of rows"])
def test_ranks_agree_with_the_function(name: str) -> None:
    function, array = named({**OF_ALL, **OF_FLOATS}[name]), hostile(5, "float32")
    f = rd.distribute(function, (array,), {"d": 4}, schedule=rd.along("d", {"x": 0}))
    expected = jax.tree.leaves(jax.jit(function)(array))
    inputs = [array, *map(np.asarray, f._traced.constants)]
    for run in (run_whole, run_by_rank):
        for one, other in zip(run(f.program, inputs), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_an_operation_is_cut_unevenly_by_work() -> None:
    array = rows(7, "float32")
    function = lambda x: jnp.tanh(x) * 2  # noqa: E731
    f = rd.distribute(function, (array,), {"d": 4}, schedule=rd.work("d", {"tanh": "d0"}))
    np.testing.assert_allclose(f(array), jax.jit(function)(array), rtol=1e-6)
    (tanh,) = [op for op in computes(f) if op.name == "tanh"]
    assert str(tanh.parts[0].cut) == "[2{d}8, 4]"


def test_what_cannot_have_tails_refuses_the_cut_by_name() -> None:
    def taken(function: Any, shapes: Any, dim: int = 0) -> str:
        args = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
        with pytest.raises(CutError) as caught:
            rd.distribute(function, args, {"d": 4}, schedule=rd.along("d", {"x": dim}))
        assert (caught.value.array, caught.value.rule) == ("x", "Schedule")
        return re.sub(r" \([^()]*test_uneven\.py:\d+\)", "", str(caught.value))

    def convolution(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")

    start, end = "array 'x': axis 'd' would cut dimension", "cut another, or pad the array"
    assert taken(convolution, ((8, 4, 10, 10), (4, 4, 3, 3)), 2) == (
        f"{start} 2 of [8, 4, 10, 10] into 4 parts of unequal size, and conv_general_dilated needs equal parts of it; "
        f"{end}"
    )
    assert taken(lambda x: (jnp.sort(x, 0), jnp.cumsum(x, 0)), ((7, 4),)) == (
        f"{start} 0 of [7, 4] into 4 parts of unequal size, and sort and cumsum need it whole; {end}"
    )
    assert taken(jnp.tanh, ((1, 4),)) == f"{start} 0 of [1, 4] into 4 parts, which do not divide it; {end}"


def test_work_that_cannot_be_cut_says_what_the_operation_needs() -> None:
    args = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((8, 4, 10, 10), (4, 4, 3, 3))]
    convolution = lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")  # noqa: E731
    why = "axis 'd' cannot cut dimension 'h0': 10 points make no 4 equal parts, as it needs; cut another, or pad the"
    with pytest.raises(CutError, match=f"operation 'conv_general_dilated': {why} arrays"):
        rd.distribute(convolution, args, {"d": 4}, schedule=rd.work("d", {"conv*": "h0"}))


def test_what_nothing_reads_is_whole_and_the_schedule_of_a_loss_is_that_of_its_gradient() -> None:
    def loss(w: Any, x: Any) -> Any:
        return (x @ w).sum()

    w, x = rows(7, "float32"), rows(4, "float32")[:, :1] * np.ones(7, np.float32)
    schedule = [rd.along("d", {"w": 0, "x": 1}), rd.along("t", {"x": 0})]
    for function in (loss, jax.grad(loss), lambda w, x: (w, x.sum())):
        f = rd.distribute(function, (w, x), {"d": 2, "t": 2}, schedule=schedule)
        for found, wanted in zip(jax.tree.leaves(f(w, x)), jax.tree.leaves(function(w, x)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert f.in_shardings[1].spec[0] == "t"  # an even cut stays one


def test_one_element_is_not_cut() -> None:
    with pytest.raises(ProgramError, match="do not divide it"):
        rd.distribute(lambda x: x + 1, (rows(1, "int32"),), {"d": 2}, schedule=rd.along("d", {"x": 0}))


def test_a_tile_with_tails_may_be_as_long_as_the_array() -> None:
    """2 elements over 4 devices, of which one axis cuts the indices: a tile has 2, of the array or tails."""
    rows = jnp.array([1, -3, -1, 0])

    def looked_up(x: Any) -> Any:
        return x.at[rows].get(mode="fill")

    def added(x: Any) -> Any:
        return x.at[rows].add(jnp.arange(4, dtype=x.dtype), mode="drop")

    for function, kind in ((looked_up, "gather"), (added, "scatter-add")):
        x = jnp.array([3, 4], jnp.uint16)
        cuts = [rd.work("t", {kind: "b0"}), rd.along("d", {"x": 0}), rd.along("t", {"x": 0})]
        f = rd.distribute(function, (x,), {"d": 2, "t": 2}, schedule=cuts)
        np.testing.assert_array_equal(f(x), jax.jit(function)(x))
