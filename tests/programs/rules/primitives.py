"""A function of one primitive, or of few, for every rule; integers, so that sums are exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Case(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]


def ints(*shape: int, high: int = 7, dtype: Any = np.float32) -> Any:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 5 % high - high // 2).astype(dtype)


def _index(*shape: int, high: int) -> Any:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) * 7 % high).astype(np.int32)


A, B, SMALL = ints(12, 24), ints(12, 24, high=11), ints(12, 12)
CUBE = ints(12, 6, 12)
PLANE = ints(2, 24, 24, 3, high=5)  # rows and columns that axes divide
PICTURE, KERNEL = ints(12, 12, 5, 5), ints(24, 12, 3, 3, high=5)
KEY = jax.random.key_data(jax.random.key(3))
GROUPS = np.array([3, 0, 5, 1, 1, 2], np.int32)  # rows of each group


def _split(key: Any, count: int) -> jax.Array:
    return jax.random.split(jax.random.wrap_key_data(key), count)


def _second(key: jax.Array) -> jax.Array:
    """A slice of keys of a key."""
    return jax.random.split(key, 3)[1]


SPACE = ("NHWC", "HWIO", "NHWC")


def _in_space(x: Any, w: Any, strides: tuple[int, int], **options: Any) -> Any:
    return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=SPACE, **options)


CASES: dict[str, Case] = {
    "add": Case(lambda a, b: a + b, (A, B)),
    "subtract a scalar": Case(lambda a: a - 3, (A,)),
    "mul": Case(lambda a, b: a * b, (A, B)),
    "compare and select": Case(lambda a, b: jnp.where(a > b, a, 2 * b), (A, B)),
    "clamp": Case(lambda a: jnp.clip(a, -1, 2), (A,)),
    "max": Case(jnp.maximum, (A, B)),
    "integer_pow": Case(lambda a: a**3, (A,)),
    "convert": Case(lambda a: a.astype(jnp.int32), (A,)),
    "broadcast": Case(lambda a: jnp.broadcast_to(a[:, None, :], (12, 6, 24)), (A,)),
    "broadcast a row": Case(lambda a: jnp.broadcast_to(a, (12, 24)), (A[:1],)),
    "transpose": Case(lambda a: a.transpose(2, 0, 1), (CUBE,)),
    "merge dimensions": Case(lambda a: a.reshape(72, 12), (CUBE,)),
    "split a dimension": Case(lambda a: a.reshape(12, 6, 4), (A,)),
    "reshape without common factors": Case(lambda a: a.reshape(12, 9, 8), (CUBE,)),
    "squeeze": Case(lambda a: jnp.squeeze(a, 1), (ints(12, 1, 24),)),
    "slice": Case(lambda a: a[:, 2:20:3], (A,)),
    "rev": Case(lambda a: a[:, ::-1], (A,)),
    "pad": Case(lambda a: jnp.pad(a, ((0, 0), (2, 1))), (A,)),
    "concatenate": Case(lambda a, b: jnp.concatenate([a, b], 1), (A, B)),
    "split": Case(lambda a: jnp.split(a, 3, axis=1), (A,)),
    "dynamic_slice": Case(lambda a, k: lax.dynamic_slice(a, (0, k), (12, 5)), (A, np.int32(4))),
    "dynamic_update_slice": Case(lambda a, b, k: lax.dynamic_update_slice(a, b, (0, k)), (A, ints(12, 5), np.int32(3))),
    "reduce_sum": Case(lambda a: a.sum(1), (CUBE,)),
    "reduce_sum of all": Case(lambda a: a.sum(), (A,)),
    "reduce_max": Case(lambda a: a.max(0), (A,)),
    "reduce_min": Case(lambda a: a.min(1), (A,)),
    "reduce_prod": Case(lambda a: jnp.prod(a, 0), (jnp.sign(A),)),
    "reduce_and": Case(lambda a: (a > -9).all(0), (A,)),
    "argmax": Case(lambda a: jnp.argmax(a, 1), (A,)),
    "matmul": Case(lambda a, b: a @ b.T, (A, B)),
    "batched matmul": Case(lambda a, b: jnp.einsum("bik,bkj->bij", a, b), (CUBE, ints(12, 12, 6))),
    "contract two": Case(lambda a, b: jnp.einsum("bik,bjk->ij", a, b), (CUBE, CUBE)),
    "cumsum": Case(lambda a: jnp.cumsum(a, 1), (A,)),
    "scan": Case(
        lambda c, a: lax.scan(lambda c, row: (c + row, (c * row, jnp.float32(7))), c, a), (A[0], ints(3, 24, high=5))
    ),
    "scan from the end": Case(
        lambda c, a: lax.scan(lambda c, row: (c - row, c), c, a, reverse=True), (A[0], ints(3, 24, high=5))
    ),
    "sort": Case(lambda a: jnp.sort(a, 1), (A,)),
    "sort pairs": Case(lambda a, b: lax.sort((a, b), dimension=1), (A, B)),
    "top_k": Case(lambda a: lax.top_k(a, 3), (A,)),
    "iota": Case(lambda: lax.broadcasted_iota(jnp.int32, (12, 24), 1), ()),
    "random bits": Case(
        lambda k: jax.random.bits(jax.random.wrap_key_data(k), (12, 24), jnp.uint32).astype(jnp.int32), (KEY,)
    ),
    "embedding": Case(lambda t, k: t[k], (A, _index(12, 6, high=12))),
    "embedding, clipped": Case(lambda t, k: jnp.take(t, k, axis=0, mode="clip"), (A, _index(12, high=17) - 2)),
    "embedding, filled": Case(lambda t, k: jnp.take(t, k, axis=0, mode="fill", fill_value=7), (A, _index(12, high=17))),
    "embedding, filled with nothing": Case(
        lambda t, k: jnp.nan_to_num(jnp.take(t, k, axis=0), nan=9), (A, _index(12, high=17))
    ),
    "take along an axis": Case(lambda t, k: jnp.take_along_axis(t, k, 1), (A, _index(12, 6, high=24))),
    "scatter-add": Case(lambda t, k, u: jnp.asarray(t).at[k].add(u), (A, _index(24, high=15), ints(24, 24))),
    "scatter": Case(lambda t, k, u: jnp.asarray(t).at[k].set(u), (A, np.array([3, 0, 7], np.int32), ints(3, 24))),
    "scatter along an axis": Case(
        lambda t, k, u: jnp.asarray(t).at[jnp.arange(12)[:, None], k].add(u), (A, _index(12, 6, high=24), ints(12, 6))
    ),
    "convolution": Case(lambda x, w: lax.conv(x, w, (1, 1), "SAME"), (PICTURE, KERNEL)),
    "grouped convolution": Case(
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=12),
        (PICTURE, ints(12, 1, 3, 3, high=5)),
    ),
    "convolution in space": Case(lambda x, w: _in_space(x, w, (1, 2)), (PLANE, ints(3, 5, 3, 2, high=5))),
    "transposed convolution": Case(
        lambda x, w: lax.conv_transpose(x, w, (2, 1), "SAME", dimension_numbers=SPACE), (PLANE, ints(3, 3, 3, 2))
    ),
    "convolution of taps far apart": Case(
        lambda x, w: _in_space(x, w, (1, 1), rhs_dilation=(13, 1)), (PLANE, ints(3, 1, 3, 2, high=5))
    ),
    "convolution of groups of rows": Case(
        lambda x, w: _in_space(x, w, (1, 1), batch_group_count=2), (PLANE, ints(3, 3, 3, 2, high=5))
    ),
    "pooling in space": Case(
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 3, 2, 1), (1, 1, 2, 1), "SAME"), (PLANE,)
    ),
    "pooling": Case(lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID"), (PICTURE,)),
    "fft": Case(lambda x: jnp.round(jnp.fft.fft(x, axis=-1).real * 4), (ints(12, 12, 4),)),
    "triangular solve": Case(
        lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
        (np.tril(np.ones((12, 3, 3), np.float32)), ints(12, 3, 2)),
    ),
    "bitcast": Case(lambda a: lax.bitcast_convert_type(a, jnp.int32), (A,)),
}

# matrices that differ and whose roots are whole numbers
MATRIX = np.eye(3, dtype=np.float32) * (np.arange(1, 13, dtype=np.float32) ** 2)[:, None, None]
OFF = np.tile(np.array([0, 1, 1], np.float32), (12, 1))  # below the diagonal
WINDOW = {"window_dimensions": (1, 1, 2, 2), "window_strides": (1, 1, 1, 1), "padding": "VALID"}

# other kinds of the same rules
MORE: dict[str, Case] = {
    "squeeze a dimension in the middle": Case(lambda a: lax.squeeze(a, (1,)), (ints(12, 1, 24),)),
    "cumprod": Case(lambda a: lax.cumprod(a, 1), (A,)),
    "cummax": Case(lambda a: lax.cummax(a, 1), (A,)),
    "cummin": Case(lambda a: lax.cummin(a, 1), (A,)),
    "cumlogsumexp": Case(lambda a: lax.cumlogsumexp(a, 1), (A,)),
    "approx_top_k": Case(lambda a: lax.approx_max_k(a, 3), (A,)),
    "reduce_or": Case(lambda a: (a > 0).any(0), (A,)),
    "reduce_xor": Case(lambda a: lax.reduce_xor(a.astype(np.int32), (0,)), (A,)),
    "argmin": Case(lambda a: lax.argmin(a, 1, np.int32), (A,)),
    "scatter-mul": Case(lambda t, k, u: t.at[k].mul(u), (jnp.asarray(A), np.arange(6) * 2, ints(6, 24))),
    "scatter-min": Case(lambda t, k, u: t.at[k].min(u), (jnp.asarray(A), np.arange(6) * 2, ints(6, 24))),
    "scatter-max": Case(lambda t, k, u: t.at[k].max(u), (jnp.asarray(A), np.arange(6) * 2, ints(6, 24))),
    "reduce_window_sum": Case(lambda x: lax.reduce_window(x, 0.0, lax.add, *WINDOW.values()), (PICTURE,)),
    "reduce_window_min": Case(lambda x: lax.reduce_window(x, np.inf, lax.min, *WINDOW.values()), (PICTURE,)),
    "max pooling, backward": Case(
        jax.grad(lambda x: lax.reduce_window(x, -np.inf, lax.max, *WINDOW.values()).sum()), (PICTURE,)
    ),
    "convolution, backward": Case(
        jax.grad(lambda x, w: lax.conv(x, w, (1, 1), "SAME").sum(), argnums=(0, 1)), (PICTURE, KERNEL)
    ),
    "convolution in space, backward": Case(
        jax.grad(lambda x, w: (_in_space(x, w, (2, 1)) ** 2).sum(), argnums=(0, 1)), (PLANE, ints(3, 3, 3, 2, high=5))
    ),
    "max pooling in space, backward": Case(
        jax.grad(lambda x: (lax.reduce_window(x, -np.inf, lax.max, (1, 3, 2, 1), (1, 2, 1, 1), "SAME") ** 2).sum()),
        (PLANE,),
    ),
    "sums of windows": Case(
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 2, 1), (1, 2, 1, 1), "SAME", window_dilation=(1, 2, 1, 1)),
        (PLANE,),
    ),
    "cholesky": Case(jnp.linalg.cholesky, (MATRIX,)),
    "lu": Case(lax.linalg.lu, (MATRIX,)),
    "qr": Case(jnp.linalg.qr, (MATRIX,)),
    "eigh": Case(jnp.linalg.eigh, (MATRIX,)),
    "eig": Case(jnp.linalg.eig, (MATRIX,)),
    "svd": Case(jnp.linalg.svd, (MATRIX,)),
    "product in groups": Case(lax.ragged_dot, (ints(12, 6), ints(6, 6, 12), GROUPS)),
    "product in groups, some rows in none": Case(lax.ragged_dot, (ints(12, 6), ints(6, 6, 12), GROUPS // 2)),
    "product in groups, backward": Case(
        jax.grad(lambda x, w, groups: (lax.ragged_dot(x, w, groups) ** 2).sum(), argnums=(0, 1)),
        (ints(12, 6), ints(6, 6, 12), GROUPS),
    ),
    "tile": Case(lambda a: jnp.tile(a, (2, 3)), (SMALL,)),
    "tile rows": Case(lambda a: jnp.tile(a, (4, 1)), (SMALL,)),
    "stack": Case(lambda a, b: jnp.stack([a, b, a], 1), (A, B)),
    "unstack": Case(lambda a: jnp.unstack(a[:, :3], axis=1), (A,)),
    "reduce by any function": Case(lambda a: lax.reduce(jnp.sign(a), np.float32(1), lambda x, y: x * y, (1,)), (A,)),
    "windows of any function": Case(
        lambda x: lax.reduce_window(x, 1.0, lambda x, y: jnp.maximum(x, y) * 1.0, *WINDOW.values()), (PICTURE,)
    ),
    "reduce_or of a cut": Case(lambda a: (a > 2).any(1), (A,)),
    "scatter-sub": Case(lambda t, k, u: t.at[k].subtract(u), (jnp.asarray(A), np.arange(6) * 2, ints(6, 24))),
    "random bits of many keys": Case(
        lambda k: jax.vmap(lambda k: jax.random.bits(k, (6,)).astype(jnp.int32))(_split(k, 12)), (KEY,)
    ),
    "keys of keys": Case(
        lambda k: jax.random.key_data(jax.vmap(lambda k: jax.random.fold_in(_second(k), 7))(_split(k, 12))), (KEY,)
    ),
    "keys of numbers": Case(
        lambda n: jax.random.key_data(jax.vmap(jax.random.key)(n)), (np.arange(12, dtype=np.int32),)
    ),
    "symmetric_product": Case(lax.linalg.symmetric_product, (ints(12, 3, 2), ints(12, 3, 3) * 0)),
    "tridiagonal": Case(lambda a: lax.linalg.tridiagonal(a, lower=True), (MATRIX,)),
    "hessenberg": Case(lax.linalg.hessenberg, (MATRIX,)),
    "schur": Case(lax.linalg.schur, (MATRIX,)),
    "lu_pivots_to_permutation": Case(
        lambda p: lax.linalg.lu_pivots_to_permutation(p, 4), (np.tile(np.array([2, 1, 3], np.int32), (12, 1)),)
    ),
    "tridiagonal_solve": Case(
        lax.linalg.tridiagonal_solve, (OFF, np.ones((12, 3), np.float32), OFF * 0, ints(12, 3, 2))
    ),
}
