"""What picks elements by index, or counts them, where the dimension is cut: the same bits as `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd

TABLE = np.arange(8, dtype=np.float32) + 1
PICKED = lax.GatherDimensionNumbers((), (0,), (0,))
ADDED = lax.ScatterDimensionNumbers((), (0,), (0,))
INDICES = ["uint8", "int8", "uint16", "int16", "uint32", "int32"]
WIDE = ["uint64", "int64"]


def agree(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    options.setdefault("schedule", rd.along("d", {"x": 0}))
    f = rd.distribute(function, args, {"d": 4}, **options)
    found, wanted = np.asarray(f(*args)), np.asarray(jax.jit(function)(*args))
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert found.tobytes() == wanted.tobytes(), f"{found} and not {wanted}"
    return f


def rows(dtype: str) -> Any:
    """In range, one beyond, at the limits of the type, and what is in range only as 32 or as 8 bits."""
    limits = np.iinfo(dtype)
    near = (0, 3, 7, 8, -1, -7, -9, 2**8 + 2, 2**32 + 2, 2**31, 2**32 - 1, 2**63 + 1)
    known = [n for n in near if limits.min <= n <= limits.max]
    return np.array([*known, limits.max, limits.max // 2 + 1, limits.min], dtype)


def check_indices(dtype: str) -> None:
    i = rows(dtype)
    ones = np.arange(len(i), dtype=np.float32)

    def function(x: Any, i: Any, u: Any) -> Any:
        made = [x[i], jnp.take(x, i, mode="clip"), jax.grad(lambda t: t[i].sum())(x)]
        for mode in ("clip", "fill", "promise_in_bounds"):
            made += [lax.gather(x, i[:, None], PICKED, (1,), mode=mode), x.at[i].get(mode=mode)]
            made += [lax.scatter_add(x, i[:, None], u, ADDED, mode=mode), x.at[i].max(u, mode=mode)]
        return jnp.concatenate(made)

    agree(function, jnp.asarray(TABLE), i, ones)


@pytest.mark.parametrize("dtype", INDICES)
def test_indices_of_every_type_are_taken_as_jit_takes_them(dtype: str) -> None:
    check_indices(dtype)


@pytest.mark.parametrize("dtype", WIDE)
def test_indices_of_64_bits_are_compared_as_such(dtype: str) -> None:
    with jax.enable_x64(True):
        check_indices(dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "complex64", "int32", "uint8"])
def test_a_look_up_keeps_every_bit(dtype: str) -> None:
    """Negative zeros, numbers too small to be normal, infinities, and what a NaN carries."""
    kind = jnp.dtype(dtype)
    if kind.itemsize > 2:
        bits = np.array(
            [0x80000000, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7FC12345, 0xFFC00001, 0x3F800001], np.uint32
        )
        x = bits.view(np.float32).astype(kind) if dtype == "complex64" else bits.view(kind)
    else:
        x = np.arange(0, 2 ** (8 * kind.itemsize), 2 ** (8 * kind.itemsize - 7), dtype=np.uint64)
        x = (x + 1).astype(f"uint{8 * kind.itemsize}").view(kind)
    i = np.arange(len(x), dtype=np.int32)[::-1].copy()
    f = agree(lambda x, i: x[i], x, i)
    assert f.program.moves and f.in_shardings[0].spec[0] == "d"


@pytest.mark.parametrize("scale", [np.inf, np.nan, 0.0, -0.0])
def test_what_was_looked_up_is_whole_before_anything_uses_it(scale: float) -> None:
    i = np.array([5, 0, 7], np.int32)
    for function in (
        lambda x, i, w: x[i] * w,
        lambda x, i, w: x[i] / w,
        lambda x, i, w: -x[i],
        lambda x, i, w: w - x[i],
    ):
        agree(function, -TABLE, i, np.float32(scale))


def test_what_is_scattered_into_keeps_its_negative_zeros() -> None:
    x, u = np.full(8, -0.0, np.float32), np.array([1, 0, -0.0, 2], np.float32)
    agree(lambda x, i, u: x.at[i].add(u), jnp.asarray(x), np.array([3, 3, 5, 0]), u)


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int16", "uint32", "float32", "complex64"],
)
def test_numbers_along_a_dimension_are_rounded_once(dtype: str) -> None:
    kind = jnp.dtype(dtype)
    f = agree(
        lambda x: lax.optimization_barrier(lax.iota(kind, 3000)) + x,
        np.zeros(3000, kind),
        schedule=[rd.work("d", {"iota": "d0"}), rd.along("d", {"x": 0})],
    )
    assert f.program.values["iota"].type.dims[0].axes == ("d",)


@pytest.mark.parametrize("start", [-100, -13, -1, 5, 100])
def test_slices_that_begin_outside_are_moved_inside(start: int) -> None:
    def function(x: Any, u: Any, k: Any) -> Any:
        made = []
        for raw in (True, False):
            made.append(lax.dynamic_slice(x, (0, k), (8, 3), allow_negative_indices=raw))
            made.append(lax.dynamic_update_slice(x, u, (0, k), allow_negative_indices=raw))
        return jnp.concatenate(made, 1)

    agree(function, np.arange(64, dtype=np.float32).reshape(8, 8), np.ones((8, 3), np.float32), np.int32(start))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_searches_and_orders_beside_a_cut(special: float, axis: int) -> None:
    x = (np.arange(64, dtype=np.float32) * 5 % 13).reshape(8, 8)
    x[1::2, 3] = x[2, :] = special
    kinds = (jnp.argmax, jnp.argmin, jnp.argsort, jnp.sort, lax.cummax, jnp.max, jnp.min)

    def function(x: Any) -> Any:
        made = [kind(x, axis=axis) for kind in kinds]
        return jnp.concatenate([lax.bitcast_convert_type(one, jnp.int32).ravel() for one in made])

    agree(function, x)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_rows_that_are_written_over_rows_of_the_same_array(dtype: str, axis: int) -> None:
    """XLA for CPUs writes in place, and must see that what it reads is what it writes into."""
    shape = (8, 2) if axis == 0 else (1, 8, 2)
    x = np.arange(16).reshape(shape).astype(jnp.dtype(dtype))

    def function(x: Any) -> Any:
        first, there = (lax.slice_in_dim(x, start, start + 4, axis=axis) for start in (0, 2))
        moved = lax.dynamic_update_slice_in_dim(x, first, 1, axis)
        return jnp.stack([moved, lax.dynamic_update_slice_in_dim(x, there * 2, 3, axis)])

    agree(function, x, schedule=rd.along("d", {"x": axis}))
    agree(lambda x: lax.dynamic_update_slice_in_dim(x, lax.slice_in_dim(x, 0, 4, axis=axis), 1, axis), x,
          schedule=rd.along("d", {"x": axis}))  # fmt: skip


@pytest.mark.parametrize("how", ["slice", "rows"])
@pytest.mark.parametrize("around", ["product", "branch"])
def test_rows_written_over_rows_of_the_same_array_that_is_then_reshaped(how: str, around: str) -> None:
    """XLA for CPUs moves the reshape ahead of the write, in `jax.jit` too, so NumPy says what is right."""

    def write(x: Any) -> Any:
        part = lax.slice_in_dim(x, 0, 4, axis=1)
        written = lax.dynamic_update_slice_in_dim(x, part, 1, 1) if how == "slice" else x.at[:, 1:5].set(part)
        return lax.reshape(written, (8, 8, 1))

    def function(x: Any) -> Any:
        if around == "branch":
            return lax.cond(x[0, 0] < 1, write, lambda x: lax.reshape(x, (8, 8, 1)), x) * 2
        return write(x * 2)

    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    wanted = x * 2
    wanted[:, 1:5] = x[:, :4] * 2
    for dim in (0, 1):
        f = rd.distribute(function, (x,), {"d": 8}, schedule=rd.along("d", {"x": dim}))
        np.testing.assert_array_equal(np.asarray(f(x))[..., 0], wanted)
