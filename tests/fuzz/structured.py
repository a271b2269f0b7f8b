"""More operations of random JAX functions: those that look like sums or are linear only in part.

Convolutions, transforms, parts of complex numbers, indices that are computed, and what works on bits; branches, loops
and derivatives come from `control_flow`: each adds one operation to a function, if it has values that it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.control_flow import branched, derived, looped
from tests.fuzz.values import INTEGERS, Function, factor, is_array

_BOUND_OF_FINITE = 2.0**10  # of what is multiplied with itself


def _convolved(function: Function) -> bool:
    """A convolution of the rows of an array, with some of its own rows or another's as filters.

    Of finite values: whether padding and the zeros between groups are multiplied, so that an infinity makes NaN of
    them, XLA for CPUs decides by the shapes.
    """
    k = function.pick(lambda value: is_array(value) and 2 <= len(value.shape) <= 3)
    if k is None:
        return False
    one, rng = function.values[k], function.rng
    j = function.alike(k)
    other = function.values[j]
    channels, slid = one.shape[1], len(one.shape) == 3 and one.shape[2] > 1
    groups = rng.choice([n for n in (1, 2, 4) if channels % n == 0])
    filters, taps = groups * rng.choice((1, 2)), 2 if slid else 1

    def run(x: Any, y: Any) -> Any:
        x, y = (jnp.where(jnp.isfinite(value), value, 1) for value in (x, y))
        image = x.reshape(*x.shape[:2], -1)
        kernel = jnp.tile(y.reshape(*y.shape[:2], -1), (4, 1, 1))[:filters, : channels // groups, :taps]
        return lax.conv_general_dilated(image, kernel, (1,), "SAME", feature_group_count=groups)

    bound = one.bound * other.bound * channels * taps * (2 if one.is_complex else 1)
    grain = one.grain * other.grain
    return function.add(f"convolve[{groups}, {filters}, {taps}]", run, k, j, bound=bound, grain=grain, sums=True)


def _batched_product(function: Function) -> bool:
    k = function.pick(lambda value: is_array(value) and len(value.shape) >= 2)
    if k is None:
        return False
    one = function.values[k]
    j = function.alike(k)
    other, last = function.values[j], len(one.shape) - 1
    batch = function.rng.choice((0, last))
    dims = (((last - batch,), (last - batch,)), ((batch,), (batch,)))
    size = one.shape[last - batch]
    bound = one.bound * other.bound * size * (2 if one.is_complex else 1)

    def run(x: Any, y: Any) -> Any:
        return lax.dot_general(factor(x), factor(y), dims)

    return function.add(f"batched dot[{batch}]", run, k, j, bound=bound, grain=one.grain * other.grain, sums=True)


def _transformed(function: Function) -> bool:
    """A Fourier transform so short that it only adds and subtracts, and the parts of a complex number."""
    k = function.pick(lambda value: bool(value.shape) and (value.is_complex or value.dtype in ("float32", "float64")))
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    how: dict[str, Any] = {"bound": value.bound, "grain": value.grain, "sums": True}
    if value.is_complex:
        kind = rng.choice(("real", "imag", "conj", "fft", "abs2"))
        if kind == "abs2":
            how["bound"], how["grain"] = 2 * value.bound**2, value.grain**2
            return function.add(kind, lambda x: lax.real(x * lax.conj(x)), k, **how)
        if kind != "fft":
            return function.add(kind, getattr(lax, kind), k, **how)
    elif rng.random() < 0.5:
        j = function.alike(k)
        how["grain"] = min(value.grain, function.values[j].grain)
        how["bound"] = max(value.bound, function.values[j].bound)
        return function.add("complex", lax.complex, k, j, **how)
    elif value.shape[-1] in (2, 4):
        # as in a product of complex numbers, what becomes of an infinity depends on the algorithm
        run = lambda x: jnp.fft.rfft(jnp.where(jnp.isfinite(x), x, 0))  # noqa: E731
        return function.add("rfft", run, k, **how | {"bound": 4 * value.bound})
    if value.shape[-1] not in (2, 4) or not value.is_complex:
        return False
    run = lambda x: jnp.fft.fft(jnp.where(jnp.isfinite(x), x, 0))  # noqa: E731
    return function.add("fft", run, k, **how | {"bound": 8 * value.bound})


def _taken_apart(function: Function) -> bool:
    """Other layouts: parts, other shapes, padding with something, two arrays in one."""
    k = function.pick(is_array)
    if k is None:
        return False
    value, rng, axis = function.values[k], function.rng, function.axis(k)
    size, rank = value.shape[axis], len(value.shape)
    number = rng.choice((0, 1, 3))
    pads = [rng.choice(((0, 0, 0), (-1, 2, 0), (1, 0, 1))) if dim == axis else (0, 0, 0) for dim in range(rank)]
    split = [rng.randrange(1, size), 0] if size > 1 else [1, 0]
    split[1] = size - split[0]
    j = function.alike(k)
    other = function.values[j]
    count, shapes = int(np.prod(value.shape)), ((4, -1), (-1, 2), (2, -1, 2), (1, -1), (8, -1))
    shape = rng.choice([shape for shape in shapes if count % abs(int(np.prod(shape))) == 0] or [(-1,)])
    limits = np.iinfo(rng.choice(INTEGERS))
    start = np.asarray(rng.choice((0, 1, min(size, limits.max), limits.min, limits.max)), limits.dtype)
    kinds: dict[str, tuple[Callable[..., Any], tuple[int, ...], float]] = {
        f"split[{axis}, {split}]": (lambda x: lax.split(x, split, axis)[1 if split[1] else 0], (k,), 0),
        f"pad[{axis}, {number}, {pads[axis]}]": (
            lambda x: lax.pad(x, np.asarray(number, x.dtype), pads),
            (k,),
            float(number),
        ),
        f"join[{axis}]": (lambda x, y: lax.concatenate([x, y], axis), (k, j), other.bound),
        f"stack[{axis}]": (lambda x, y: jnp.stack([x, y], axis), (k, j), other.bound),
        f"unstack[{axis}]": (lambda x: jnp.unstack(x, axis=axis)[-1], (k,), 0),
        f"reshape[{shape}]": (lambda x: x.reshape(shape), (k,), 0),
        f"squeeze[{axis}]": (lambda x: lax.squeeze(lax.slice_in_dim(x, 0, 1, axis=axis), (axis,)), (k,), 0),
        f"dynamic_slice[{axis}, {start.dtype} {start}]": (
            lambda x: lax.dynamic_slice_in_dim(x, jnp.asarray(start) + 0, max(1, size // 2), axis),
            (k,),
            0,
        ),
        f"write[{axis}, {start.dtype} {start}]": (
            lambda x, y: lax.dynamic_update_slice_in_dim(
                x, lax.slice_in_dim(y, 0, max(1, size // 2), axis=axis), jnp.asarray(start) + 0, axis
            ),
            (k, j),
            other.bound,
        ),
        "stop": (lambda x: lax.stop_gradient(x) + lax.stop_gradient(x), (k,), value.bound),
    }
    name = rng.choice(sorted(kinds))
    if name.startswith("write") and j == k >= len(function.arguments):
        return False  # behind a reshape, `jax.jit` itself reads what it has already overwritten, on CPUs
    run, reads, more = kinds[name]
    grain = min([function.values[n].grain for n in reads])
    grain = min(grain, 1.0) if name.startswith("pad") and grain else grain
    return function.add(name, run, *reads, bound=value.bound + more, grain=grain, sums=value.is_complex)


def _of_bits(function: Function) -> bool:
    """What works on bits, compares, counts or narrows: no sum passes it."""
    k = function.pick(is_array)
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    if value.is_complex:
        return False
    axis, j = function.axis(k), function.alike(k)
    if value.is_float:
        unsigned = f"uint{8 * jnp.dtype(value.dtype).itemsize}"
        how: dict[str, Any] = {"bound": max(1.0, value.bound), "grain": value.grain}
        plain = {
            "bits": lambda x: lax.bitcast_convert_type(jnp.where(x == 0, 0, x * 1).astype(x.dtype), unsigned) & 63,
            "is_finite": lax.is_finite,
            "less": lambda x: x < jnp.ones_like(x),
            "eq": lambda x: x == lax.rev(x, (axis,)),
        }
        exact = {
            "sign": lax.sign,
            "floor": lax.floor,
            "clamp": lambda x: lax.clamp(jnp.asarray(-1, x.dtype), x, jnp.asarray(2, x.dtype)),
            "relu": lambda x: jnp.where(x > 0, x, 0).astype(x.dtype),
            "cummax": lambda x: lax.cummax(jnp.where(x == x, x, 0).astype(x.dtype), axis),
        }
        if value.bound < _BOUND_OF_FINITE and rng.random() < 0.2:
            return function.add("square", lambda x: x**2, k, bound=value.bound**2, grain=value.grain**2)
        name = rng.choice(sorted(plain | exact))
        if name in exact:
            grain = min(1.0, value.grain)
            return function.add(name, exact[name], k, **how | {"grain": grain, "sums": True})
        return function.add(name, plain[name], k)
    shift = rng.choice((1, 3))
    narrow, pair = rng.choice(("int4", "uint4")), tuple(2 if dim == axis else 1 for dim in range(len(value.shape)))
    integers: dict[str, Callable[..., Any]] = {
        f"shift_left {shift}": lambda x: lax.shift_left(x, jnp.full_like(x, shift)),
        f"shift_right {shift}": lambda x: lax.shift_right_arithmetic(x, jnp.full_like(x, shift)),
        "not": lax.bitwise_not,
        "popcount": lax.population_count,
        "clz": lax.clz,
        "square": lambda x: x**2,
        f"reduce_and[{axis}]": lambda x: lax.reduce_and(x, (axis,)),
        f"reduce_or[{axis}]": lambda x: lax.reduce_or(x, (axis,)),
        f"reduce_xor[{axis}]": lambda x: lax.reduce_xor(x, (axis,)),
        f"cumprod[{axis}]": lambda x: lax.cumprod(x, axis),
        f"cummin[{axis}]": lambda x: lax.cummin(x, axis),
        f"windows[{axis}]": lambda x: lax.reduce_window(x, np.zeros((), x.dtype), lax.add, pair, (1,) * x.ndim, "SAME"),
        f"sum in {narrow}": lambda x: lax.reduce_sum(x.astype(narrow), (axis,)).astype(x.dtype),
        "less": lambda x: x < jnp.full_like(x, 3),
        "bits": lambda x: lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}")),
        "random": lambda x: x ^ jax.random.bits(jax.random.key(3), x.shape, jnp.uint32).astype(x.dtype),
    }  # fmt: skip
    pairs: dict[str, Callable[..., Any]] = {
        "and": lax.bitwise_and,
        "or": lax.bitwise_or,
        "xor": lax.bitwise_xor,
        "divmod": lambda x, y: x // jnp.where(y == 0, 1, y).astype(y.dtype),
        "scaled": lambda x, y: x * (y & 3),
    }
    name = rng.choice(sorted(integers | pairs))
    return function.add(name, integers[name], k) if name in integers else function.add(name, pairs[name], k, j)


def _counted(function: Function) -> bool:
    """Truth values, reduced and counted."""
    k = function.pick(lambda value: bool(value.shape) and value.dtype == "bool")
    if k is None:
        return False
    axis = function.axis(k)
    dtype = function.rng.choice(("int8", "int32", "bfloat16", "float32"))
    kinds: dict[str, Callable[[Any], Any]] = {
        "any": lambda x: lax.reduce_or(x, (axis,)),
        "all": lambda x: lax.reduce_and(x, (axis,)),
        "count": lambda x: x.sum(axis, dtype=dtype),
        "matrix": lambda x: lax.dot_general(factor(x), factor(x), (((axis,), (axis,)), ((), ()))),
        "not": lax.bitwise_not,
        "most": lambda x: lax.reduce_max(x, (axis,)),
    }
    name = function.rng.choice(sorted(kinds))
    how: dict[str, Any] = {}
    if name == "count" and dtype in ("bfloat16", "float32"):
        how = {"bound": float(function.values[k].shape[axis]), "grain": 1.0, "sums": True}
    return function.add(f"{name}[{axis}]", kinds[name], k, **how)


def _picked_by_a_value(function: Function) -> bool:
    """A look-up or a scatter whose indices are computed, of any integer type and far out of range."""
    k = function.pick(is_array)
    j = function.pick(lambda value: value.is_integer and bool(value.shape))
    if k is None or j is None:
        return False
    value, rng, axis = function.values[k], function.rng, function.axis(k)
    mode = rng.choice(("clip", "fill", "promise_in_bounds"))
    kind = rng.choice(("take", "take", "along", "add", "slice", "pick"))

    def indices(x: Any) -> Any:
        return x.reshape(-1)[:4]

    if kind in ("slice", "pick"):
        pick = lambda x, rows: lax.dynamic_index_in_dim(x, rows.reshape(-1)[0], axis, keepdims=False)  # noqa: E731
        part = lambda x, rows: lax.dynamic_slice_in_dim(x, rows.reshape(-1)[1 % rows.size], 1, axis)  # noqa: E731
        run = pick if kind == "pick" else part
        return function.add(f"{kind}[{axis}]", run, k, j, bound=value.bound, grain=value.grain)
    if kind == "take":
        run = lambda x, rows: jnp.take(x, indices(rows), axis, mode=mode, unique_indices=False)  # noqa: E731
        if mode == "promise_in_bounds":
            run = lambda x, rows: jnp.moveaxis(x, axis, 0).at[indices(rows)].get(mode=mode)  # noqa: E731
        return function.add(f"take[{axis}, {mode}]", run, k, j, bound=value.bound, grain=value.grain)
    if kind == "along":  # batched, of rows that are in range

        def run(x: Any, rows: Any) -> Any:
            along = (jnp.arange(x.size) + jnp.resize(rows, x.shape).ravel().astype(np.int32) * 0) % x.shape[axis]
            return jnp.take_along_axis(x, along.reshape(x.shape), axis)

        return function.add(f"take_along[{axis}]", run, k, j, bound=value.bound, grain=value.grain)

    def added(x: Any, rows: Any) -> Any:
        at = indices(rows)
        more = jnp.moveaxis(x, axis, 0)
        parts = jnp.concatenate([more, more, more, more])[: at.shape[0]]
        return more.at[at].add(parts, mode="drop" if mode == "fill" else mode)

    return function.add(f"add at[{axis}, {mode}]", added, k, j, bound=5 * value.bound, grain=value.grain, sums=True)


def _scaled_by_an_array(function: Function) -> bool:
    """A product with, or a quotient by, numbers that are known: finite all, or with one that is not."""
    k = function.pick(lambda value: bool(value.shape) and value.is_float and not value.is_complex)
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    kind = rng.choice(("finite", "infinite", "zero", "integers"))
    numbers = np.array([1.0, 2.0, -1.0, 0.5])[np.arange(value.shape[-1]) % 4]
    if kind == "integers":
        numbers = np.arange(value.shape[-1])
        bound, grain = value.bound * max(1, value.shape[-1] - 1), value.grain
        run = lambda x: x * jnp.arange(x.shape[-1], dtype="int8").astype(x.dtype)  # noqa: E731
        return function.add("mul integers", run, k, bound=bound, grain=grain)
    if kind != "finite":
        numbers[0] = {"infinite": np.inf, "zero": 0.0}[kind]
    by = rng.random() < 0.4
    run = (lambda x: x / numbers.astype(x.dtype)) if by else (lambda x: x * numbers.astype(x.dtype))
    name = f"{'div' if by else 'mul'} {kind} array"
    return function.add(name, run, k, bound=2 * value.bound, grain=value.grain / 2)


OPERATIONS: tuple[Callable[[Function], bool], ...] = (
    _convolved, _batched_product, _transformed, _taken_apart, _taken_apart, branched, looped, derived,
    _of_bits, _of_bits, _counted, _picked_by_a_value, _scaled_by_an_array,
)  # fmt: skip
