"""The operations of random JAX functions: each adds one to a function, if it has values that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.values import INTEGERS, MANTISSA, Function, Value, factor


def _numbers(value: Value) -> bool:
    return value.is_number


def _axis(function: Function, number: int) -> int | None:
    return function.axis(number) if function.values[number].shape else None


def _reduced(function: Function) -> bool:
    k = function.pick(_numbers)
    axis = None if k is None else _axis(function, k)
    if k is None or axis is None:
        return False
    value, size = function.values[k], function.values[k].shape[axis]
    kinds = "sum sum sum lax.sum max min prod argmax argmin cumsum cumprod xor cummax top_k"
    kind = function.rng.choice(kinds.split())
    grown: Any = {"bound": value.bound * size, "grain": value.grain, "sums": True}
    if kind in ("sum", "lax.sum"):
        run = (lambda x: x.sum(axis)) if kind == "sum" else (lambda x: lax.reduce_sum(x, (axis,)))
        return function.add(f"{kind}[{axis}]", run, k, **grown)
    if kind == "cumsum":
        return function.add(f"cumsum[{axis}]", lambda x: lax.cumsum(x, axis), k, **grown)
    if kind in ("prod", "cumprod", "xor"):
        if value.is_float or (kind == "xor" and not value.is_integer):
            return False
        run = {
            "prod": lambda x: lax.reduce_prod(x, (axis,)),
            "cumprod": lambda x: lax.cumprod(x, axis, reverse=True),
            "xor": lambda x: lax.reduce_xor(x, (axis,)),
        }[kind]
        return function.add(f"{kind}[{axis}]", run, k)
    if value.is_complex:
        return False
    if kind in ("cummax", "top_k"):
        how: Any = {"bound": value.bound, "grain": value.grain, "sums": True}
        most = min(2, size)
        run = (lambda x: lax.cummax(x, axis)) if kind == "cummax" else (lambda x: lax.top_k(x, most, axis=axis)[0])
        return function.add(f"{kind}[{axis}]", lambda x: run(jnp.where(x == x, x, 0)), k, **how)
    same: Any = {"bound": value.bound, "grain": value.grain, "sums": True} if kind in ("max", "min") else {}
    if same and value.is_float:  # of NaN some loops of XLA:CPU make another number
        return function.add(
            f"{kind}[{axis}]", lambda x: getattr(jnp, kind)(jnp.where(x == x, x, 0), axis=axis), k, **same
        )
    return function.add(f"{kind}[{axis}]", lambda x: getattr(jnp, kind)(x, axis=axis), k, **same)


def _product(function: Function) -> bool:
    k = function.pick(lambda value: _numbers(value) and len(value.shape) > 0)
    if k is None:
        return False
    one, axis = function.values[k], _axis(function, k)
    assert axis is not None
    size = one.shape[axis]
    j = function.pick(lambda value: value.dtype == one.dtype and size in value.shape)
    if j is None:
        return False
    other = function.values[j]
    at = function.rng.choice([dim for dim, n in enumerate(other.shape) if n == size])
    wide = {"int8": "int32", "uint8": "uint32", "bfloat16": "float32", "float16": "float32"}.get(one.dtype)
    wide = wide if function.rng.random() < 0.5 else None

    def run(a: Any, b: Any) -> Any:
        return lax.dot_general(factor(a), factor(b), (((axis,), (at,)), ((), ())), preferred_element_type=wide)

    bound = one.bound * other.bound * size * (2 if one.is_complex else 1)
    name = f"dot_general[{axis}, {at}{f', {wide}' if wide else ''}]"
    return function.add(name, run, k, j, bound=bound, grain=one.grain * other.grain, sums=True)


def _arithmetic(function: Function) -> bool:
    k = function.pick(_numbers)
    if k is None:
        return False
    j = function.alike(k)
    one, other = function.values[k], function.values[j]
    kind = function.rng.choice(("add", "sub", "mul", "div", "max", "min", "rem", "neg", "abs"))
    run = getattr(lax, kind)
    least = min(one.grain, other.grain)
    if kind in ("neg", "abs"):
        if kind == "abs" and one.is_complex:
            return False
        return function.add(kind, run, k, bound=one.bound, grain=one.grain)
    if kind in ("div", "rem") and one.is_complex:
        return False
    if kind == "rem" and one.is_float:
        return False
    if kind in ("div", "rem") and one.is_integer and j >= len(function.arguments):
        return False  # XLA:CPU ends the process where it finds out that a divisor is zero, such as a xor a
    how: Any = {
        "add": {"bound": one.bound + other.bound, "grain": least, "sums": one.is_complex},
        "sub": {"bound": one.bound + other.bound, "grain": least, "sums": one.is_complex},
        "mul": {
            "bound": 2 * one.bound * other.bound,
            "grain": one.grain * other.grain,
            "sums": one.is_complex,
        },
        "max": {"bound": max(one.bound, other.bound), "grain": least, "sums": True},
        "min": {"bound": max(one.bound, other.bound), "grain": least, "sums": True},
    }.get(kind, {})
    return function.add(kind, run, k, j, **how)


def _constant(function: Function) -> bool:
    """An operation with a number that is known, or with an argument that is one number."""
    k = function.pick(_numbers)
    if k is None:
        return False
    value = function.values[k]
    j = function.pick(lambda other: other.shape == () and other.dtype == value.dtype)
    kind = function.rng.choice(("mul", "div", "add"))
    if j is not None and value.shape and function.rng.random() < 0.6:
        scale, run = function.values[j], getattr(lax, kind)
        spread = lambda a, b: run(a, lax.broadcast(b, a.shape))  # noqa: E731
        if kind == "div":
            return not value.is_complex and function.add("div by", spread, k, j)
        bound = value.bound + scale.bound if kind == "add" else 2 * value.bound * scale.bound
        grain = min(value.grain, scale.grain) if kind == "add" else value.grain * scale.grain
        return function.add(f"{kind} by", spread, k, j, bound=bound, grain=grain, sums=value.is_complex)
    if value.is_integer:
        number = function.rng.choice((2, 3, 5, 7))
        operation = function.rng.choice((lax.mul, lax.div, lax.rem, lax.add, lax.sub))
        return function.add(f"{operation.__name__} {number}", lambda x: operation(x, jnp.full_like(x, number)), k)
    number = function.rng.choice((2.0, 0.5, 4.0, -1.0, 0.0, np.inf, np.nan))
    if kind == "div" and not value.is_complex and number in (2.0, 0.5, 4.0, -1.0):
        how: Any = {"bound": value.bound / abs(number), "grain": value.grain / max(1.0, abs(number))}
        return function.add(f"div {number}", lambda x: x / jnp.full_like(x, number), k, **how)
    if value.is_complex and not np.isfinite(number):
        return False
    scale_of = abs(number) if np.isfinite(number) and number else 1.0
    how = {"bound": value.bound * scale_of, "grain": value.grain * min(1.0, scale_of)}
    sums = value.is_complex
    return function.add(f"mul {number}", lambda x: x * jnp.full_like(x, number), k, sums=sums, **how)


def _converted(function: Function) -> bool:
    k = function.pick(lambda value: not value.is_complex)
    if k is None:
        return False
    value = function.values[k]
    dtype = function.rng.choice((*INTEGERS, "float32", "float16", "bfloat16", "bool", "complex64", "float8_e5m2"))
    how: Any = {}
    if dtype in MANTISSA:
        if value.is_float:
            how = {"bound": value.bound, "grain": value.grain}
        elif value.dtype == "bool" or value.dtype in ("int8", "uint8"):
            how = {"bound": 256.0 if value.is_integer else 1.0, "grain": 1.0}
        if how and not Value(value.shape, dtype, **how).is_exact:
            how = {}
    return function.add(f"to {dtype}", lambda x: lax.convert_element_type(x, jnp.dtype(dtype)), k, **how)


def _moved(function: Function) -> bool:
    """Layout: the elements stay as they are."""
    k = function.pick(lambda value: bool(value.shape))
    if k is None:
        return False
    value, rng, axis = function.values[k], function.rng, _axis(function, k)
    assert axis is not None
    size, rank = value.shape[axis], len(value.shape)
    zero = np.zeros((), jnp.dtype(value.dtype))
    start = np.int32(rng.randint(-20, 20))
    layouts: dict[str, Callable[[Any], Any]] = {
        "transpose": lambda x: x.T,
        "ravel": jnp.ravel,
        f"slice[{axis}]": lambda x: lax.slice_in_dim(x, 0, max(1, size // 2), axis=axis),
        f"rev[{axis}]": lambda x: lax.rev(x, (axis,)),
        f"pad[{axis}]": lambda x: lax.pad(x, zero, [(1, 0, 1) if dim == axis else (0, 0, 0) for dim in range(rank)]),
        "broadcast": lambda x: jnp.broadcast_to(x, (4, *x.shape)),
        "expand": lambda x: x[None],
        f"dynamic_slice[{axis}, {start}]": lambda x: lax.dynamic_slice_in_dim(x, start, max(1, size // 2), axis),
        # not of parts of the array itself, which XLA:CPU may have overwritten by the time that it reads them
        f"dynamic_update[{axis}, {start}]": lambda x: lax.dynamic_update_slice_in_dim(
            x, jnp.ones_like(lax.slice_in_dim(x, 0, max(1, size // 2), axis=axis)), start, axis
        ),
        f"sort[{axis}]": lambda x: lax.sort(x, dimension=axis),
        f"concatenate[{axis}]": lambda x: lax.concatenate([x, x], axis),
        f"barrier[{axis}]": lax.optimization_barrier,
        f"roll[{axis}]": lambda x: jnp.roll(x, 3, axis),
    }
    name = rng.choice(sorted(layouts))
    if name.startswith("sort") and not (_numbers(value) and not value.is_complex):
        return False
    if name.startswith("dynamic_update") and value.dtype == "bool":
        return False
    more = 1.0 if name.startswith("dynamic_update") else 0.0
    return function.add(name, layouts[name], k, bound=value.bound + more, grain=value.grain, sums="sort" in name)


def _selected(function: Function) -> bool:
    k = function.pick(lambda value: bool(value.shape))
    if k is None:
        return False
    j = function.alike(k)
    one, other = function.values[k], function.values[j]
    mask = np.arange(one.shape[-1]) % 3 == 0
    how: Any = {"bound": max(one.bound, other.bound), "grain": min(one.grain, other.grain)}
    masked = function.rng.random() < 0.3
    if masked and one.is_float:
        how |= {"bound": one.bound, "grain": one.grain, "sums": one.is_complex}
        return function.add("mask", lambda a: a * jnp.asarray(mask.astype(np.int8)).astype(a.dtype), k, **how)
    return function.add("where", lambda a, b: jnp.where(mask, a, b), k, j, **how)


def _indices(function: Function, size: int) -> Any:
    """Indices of any type, within the range and far beyond, either in the function or drawn here."""
    dtype = function.rng.choice(INTEGERS)
    limits = np.iinfo(dtype)
    around = (-size - 1, -size, -1, 0, 1, size // 2, size - 1, size, size + 3)
    near = [n for n in around if limits.min <= n <= limits.max]
    rows = [function.rng.choice((*near, *range(size), limits.max, limits.min)) for _ in range(4)]
    return np.array(rows).astype(dtype)


def _looked_up(function: Function) -> bool:
    k = function.pick(lambda value: bool(value.shape))
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    axis = _axis(function, k)
    assert axis is not None
    rows, raw = _indices(function, value.shape[axis]), rng.random() < 0.5
    mode = rng.choice(("clip", "fill", "promise_in_bounds"))
    if raw:
        sizes = tuple(1 if dim == axis else n for dim, n in enumerate(value.shape))
        offsets = tuple(range(1, len(value.shape)))
        numbers = lax.GatherDimensionNumbers(offsets, (axis,), (axis,))
        run = lambda x: lax.gather(x, jnp.asarray(rows)[:, None] + 0, numbers, sizes, mode=mode)  # noqa: E731
    else:
        run = lambda x: jnp.moveaxis(x, axis, 0).at[jnp.asarray(rows) + 0].get(mode=mode)  # noqa: E731
    name = f"{'gather' if raw else 'at.get'}[{axis}, {mode}, {rows.dtype}{rows.tolist()}]"
    return function.add(name, run, k, bound=value.bound, grain=value.grain)


def _scattered(function: Function) -> bool:
    k = function.pick(lambda value: bool(value.shape) and _numbers(value))
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    rows = _indices(function, value.shape[0])
    mode = rng.choice(("clip", "drop", "promise_in_bounds"))
    kind = rng.choice(("add", "add", "sub", "set", "max", "gradient"))
    if kind == "max" and value.is_complex:
        return False
    if kind == "set":  # which of two at one place is written last is not said
        rows = np.unique(rows % value.shape[0]).astype(rows.dtype)
    j = function.alike(k)
    numbers = lax.ScatterDimensionNumbers(tuple(range(1, len(value.shape))), (0,), (0,))
    count = len(rows)

    def run(x: Any, y: Any) -> Any:
        parts = jnp.concatenate([y, y])[:count] if y.shape[0] < count else y[:count]
        where = jnp.asarray(rows)[:, None] + 0
        if kind == "gradient":
            return jax.vjp(lambda t: t.at[where[:, 0]].get(mode=mode.replace("drop", "fill")), x)[1](parts)[0]
        operation = {"add": lax.scatter_add, "sub": lax.scatter_sub, "set": lax.scatter, "max": lax.scatter_max}[kind]
        return operation(x, where, parts, numbers, mode=mode)

    other = function.values[j]
    bound = value.bound + 4 * other.bound
    name = f"scatter-{kind}[{mode}, {rows.dtype}{rows.tolist()}]"
    return function.add(name, run, k, j, bound=bound, grain=min(value.grain, other.grain), sums=kind != "set")


def _iota(function: Function) -> bool:
    k = function.pick(lambda value: bool(value.shape) and _numbers(value))
    if k is None:
        return False
    value, axis = function.values[k], _axis(function, k)
    assert axis is not None

    def run(x: Any) -> Any:
        return x + lax.broadcasted_iota(x.dtype, x.shape, axis)

    bound = value.bound + value.shape[axis]
    return function.add(f"add iota[{axis}]", run, k, bound=bound, grain=value.grain, sums=True)


def _looped(function: Function) -> bool:
    """A loop too long to be unrolled, or a short scan along the first dimension."""
    k = function.pick(lambda value: bool(value.shape) and _numbers(value) and not value.is_complex)
    if k is None:
        return False
    value = function.values[k]
    size = value.shape[0]
    if function.rng.random() < 0.5:
        run = lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros_like(x[0]), x)[0]  # noqa: E731
        return function.add("scan", run, k, bound=value.bound * size, grain=value.grain, sums=True)
    run = lambda x: lax.fori_loop(0, 130, lambda _, c: c + lax.reduce_sum(x, (0,)), jnp.zeros_like(x[0]))  # noqa: E731
    return function.add("fori_loop", run, k, bound=value.bound * size * 130, grain=value.grain, sums=True)


def _carried(function: Function) -> bool:
    """Loops that carry what turns, what is added up beside what is read, and what other loops carry."""
    k = function.pick(lambda value: bool(value.shape) and _numbers(value) and not value.is_complex)
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    size, rows = value.shape[0], math.prod(value.shape)
    kind = rng.choice(("turned", "added up", "loop of loops", "rows that stop", "unrolled"))
    if kind == "turned" and len(value.shape) == 2 and value.shape[0] == value.shape[1]:
        run = lambda x: lax.scan(lambda c, _: (c.T + x, None), x, length=3)[0]  # noqa: E731
        return function.add(kind, run, k, bound=4 * value.bound, grain=value.grain, sums=True)
    if kind == "added up":

        def added(x: Any) -> Any:
            def step(state: Any, row: Any) -> Any:
                total, last = state
                return (total + lax.reduce_sum(x, (0,)), row), last

            (total, last), before = lax.scan(step, (jnp.zeros_like(x[0]), x[0]), x)
            return total + last + lax.reduce_sum(before, (0,))

        return function.add(kind, added, k, bound=(2 * size + 1) * size * value.bound, grain=value.grain, sums=True)
    if kind == "loop of loops":
        backwards = rng.random() < 0.5

        def nested(x: Any) -> Any:
            def step(c: Any, row: Any) -> Any:
                return lax.fori_loop(0, 2, lambda _, c: c + row, c), c

            last, before = lax.scan(step, jnp.zeros_like(x[0]), x, reverse=backwards)
            return before + last

        return function.add(kind, nested, k, bound=4 * size * value.bound, grain=value.grain, sums=True)
    if kind == "rows that stop":

        def stopped(x: Any) -> Any:
            def row(x: Any, most: Any) -> Any:
                return lax.while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, s[1] + x), (0, x))[1]

            return jax.vmap(row)(x, jnp.arange(size) % 3)

        return function.add(kind, stopped, k, bound=3 * value.bound, grain=value.grain, sums=True)
    run = lambda x: lax.scan(lambda c, row: (c + row, None), jnp.zeros_like(x[0]), x, unroll=size)[0]  # noqa: E731
    return function.add("unrolled", run, k, bound=rows * value.bound, grain=value.grain, sums=True)


OPERATIONS: tuple[Callable[[Function], bool], ...] = (
    _reduced, _reduced, _reduced, _product, _product, _arithmetic, _arithmetic, _constant, _constant, _converted,
    _moved, _moved, _selected, _looked_up, _looked_up, _scattered, _iota, _looped, _carried,
)  # fmt: skip
