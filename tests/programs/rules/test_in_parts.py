"""Products, cumulative operations, argmax and top-k along a dimension that is cut, beside `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.ir.program import Compute

ROWS, COLUMNS = 4, 48
FEWEST = 7 * ROWS * COLUMNS * 4  # bytes of a gather: each of 8 devices lacks seven eighths


def reals(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, (ROWS, COLUMNS)).astype(np.float32)


def integers(most: int = 9) -> np.ndarray:
    return np.random.default_rng(1).integers(-most, most, (ROWS, COLUMNS)).astype(np.int32)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "reduce_prod": lambda x: jnp.prod(x, 1),
    "reduce_prod of all": jnp.prod,
    "reduce_xor": lambda x: lax.reduce_xor_p.bind(x, axes=(1,)),
    "reduce_and": lambda x: lax.reduce_and_p.bind(x, axes=(1,)),
    "reduce_or": lambda x: lax.reduce_or_p.bind(x, axes=(1,)),
    "cumsum": lambda x: lax.cumsum(x, 1),
    "cumsum reversed": lambda x: lax.cumsum(x, 1, reverse=True),
    "cumprod": lambda x: lax.cumprod(x, 1),
    "cummax": lambda x: lax.cummax(x, 1),
    "cummin reversed": lambda x: lax.cummin(x, 1, reverse=True),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 1),
    "cumlogsumexp reversed": lambda x: lax.cumlogsumexp(x, 1, reverse=True),
    "argmax": lambda x: jnp.argmax(x, 1),
    "argmin": lambda x: lax.argmin(x, 1, np.int16),
    "top_k": lambda x: lax.top_k(x, 3),
    "approx_max_k": lambda x: lax.approx_max_k(x, 3),
    "approx_min_k": lambda x: lax.approx_min_k(x, 2),
}
OF_INTEGERS = ("reduce_xor", "reduce_and", "reduce_or")
OF_FLOATS = ("cumlogsumexp", "cumlogsumexp reversed", "approx_max_k", "approx_min_k")
CASES = [(name, "reals") for name in FUNCTIONS if name not in OF_INTEGERS]
CASES += [(name, "integers") for name in FUNCTIONS if name not in OF_FLOATS]


def distributed(function: Any, x: Any, **options: Any) -> Any:
    return rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": 1}), **options)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_cut_dimension_is_not_gathered(name: str, kind: str) -> None:
    def function(x: Any) -> Any:
        return FUNCTIONS[name](x)

    x = reals() if kind == "reals" else integers()
    f = distributed(function, x)
    assert f.program.received_bytes < FEWEST
    assert inspect(f.lower().compile()).received_bytes == f.compiled_received_bytes
    for found, wanted in zip(jax.tree.leaves(f(x)), jax.tree.leaves(jax.jit(function)(x)), strict=True):
        assert found.dtype == wanted.dtype
        if kind == "integers" or wanted.dtype.kind == "i" or "cumm" in name or "_k" in name:
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, rtol=2e-6)


@pytest.mark.parametrize("name", ["argmax", "argmin", "top_k", "cummax"])
def test_the_first_of_equals_is_found_and_nan_counts_as_extreme(name: str) -> None:
    x = np.zeros((ROWS, COLUMNS), np.float32)
    x[0, ::2] = -0.0
    x[1, [40, 11, 30]] = 5.0
    x[2, [37, 20]] = np.nan
    x[3] = -np.inf
    x[3, [17, 16]] = np.inf
    f = distributed(FUNCTIONS[name], x)
    for found, wanted in zip(jax.tree.leaves(f(x)), jax.tree.leaves(FUNCTIONS[name](x)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_gradients_follow_the_parts() -> None:
    def function(x: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(jnp.sin(lax.cumlogsumexp(x, 1)) + lax.cumsum(x, 1)) + jnp.prod(x))(x)

    x = reals()
    f = distributed(function, x)
    np.testing.assert_allclose(f(x), jax.jit(function)(x), rtol=1e-4)


def operations(f: Any) -> list[str]:
    return [op.name for op in f.program.ops if isinstance(op, Compute)]


def test_exact_floats_are_combined_in_the_order_of_the_whole() -> None:
    for name in ("reduce_prod", "cumprod", "cumlogsumexp", "cumsum"):
        assert operations(distributed(FUNCTIONS[name], reals(), exact=True)) == [name]
        assert len(operations(distributed(FUNCTIONS[name], reals()))) > 1
    assert len(operations(distributed(FUNCTIONS["cumsum"], integers(), exact=True))) > 1


def test_what_is_not_cut_along_its_dimension_stays_one_operation() -> None:
    for name in ("reduce_prod", "cumsum", "argmax", "top_k"):
        f = rd.distribute(FUNCTIONS[name], (reals(),), {"d": 4}, schedule=rd.along("d", {"x": 0}))
        assert operations(f) == [name]


def test_small_operands_and_lengths_without_blocks_stay_one_operation() -> None:
    for shape in ((4, 8), (8, 45)):
        f = rd.distribute(
            lambda x: lax.cumsum(x, 1), (jnp.ones(shape),), {"d": 8}, schedule=rd.along("d", {"x": "first"})
        )
        assert operations(f) == ["cumsum"]


def test_a_loop_combines_parts_in_each_step() -> None:
    def function(x: Any) -> Any:
        return lax.scan(lambda x, _: (lax.cumlogsumexp(x * 0.5, 1), jnp.argmax(x, 1)), x, length=3)

    x = reals()
    f = distributed(function, x)
    assert f.program.received_bytes < 3 * FEWEST
    for found, wanted in zip(jax.tree.leaves(f(x)), jax.tree.leaves(jax.jit(function)(x)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_two_axes_cut_one_dimension() -> None:
    for name in ("cumsum", "argmax", "top_k", "reduce_prod"):
        cuts = [rd.along("a", {"x": 1}), rd.along("b", {"x": 1})]
        f = rd.distribute(lambda x, name=name: FUNCTIONS[name](x), (integers(),), {"a": 2, "b": 4}, schedule=cuts)
        assert f.program.received_bytes < FEWEST
        for found, wanted in zip(
            jax.tree.leaves(f(integers())), jax.tree.leaves(FUNCTIONS[name](integers())), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


def test_operations_that_a_schedule_names_stay() -> None:
    cuts = [rd.along("d", {"x": 1}), rd.work("e", {"cumsum": "d0"})]
    f = rd.distribute(FUNCTIONS["cumsum"], (reals(),), {"d": 4, "e": 2}, schedule=cuts)
    assert operations(f) == ["cumsum"]


def test_logits_cut_along_the_vocabulary_are_not_gathered_to_decode() -> None:
    def decode(x: Any, w: Any) -> Any:
        logits = x @ w
        return jnp.argmax(logits, -1), lax.top_k(logits, 4)[1]

    args = jnp.asarray(reals()), jnp.asarray(np.random.default_rng(3).normal(size=(COLUMNS, 512)).astype(np.float32))
    f = rd.distribute(decode, args, {"d": 8}, schedule=rd.along("d", {"w": 1}))
    assert f.program.received_bytes < ROWS * 512 * 4
    for found, wanted in zip(f(*args), decode(*args), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("cut", [0, 1])
def test_the_largest_along_the_first_dimension(cut: int) -> None:
    x = np.random.default_rng(5).integers(0, 9, (48, 8)).astype(np.int32)
    args = jax.make_jaxpr(lambda x: lax.top_k(x, 2))(x).eqns[0].params
    if "axis" not in args:
        pytest.skip("this JAX takes the largest of the last dimension alone")
    for function in (lambda x: lax.top_k(x, 2, axis=0), lambda x: lax.approx_max_k(x, 2, reduction_dimension=0)):
        f = rd.distribute(function, (x.astype(np.float32),), {"d": 8}, schedule=rd.along("d", {"x": cut}))
        np.testing.assert_array_equal(f(x.astype(np.float32))[0], function(x.astype(np.float32))[0])
        if cut == 1:
            assert f.program.received_bytes == 0


def test_a_schedule_may_be_an_iterator() -> None:
    """Though the function is cut twice: as it is, and with what is worth dividing divided."""
    x = np.arange(256, dtype=np.int32)
    schedule = [rd.along("d", {"x": 0})]
    f, same = (
        rd.distribute(lambda x: jnp.cumsum(x), (x,), {"d": 4}, schedule=given) for given in (schedule, iter(schedule))
    )
    assert str(same.program) == str(f.program)
    assert "cumsum" in str(f.program) and same.opaque == f.opaque
