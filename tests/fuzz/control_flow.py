"""Control flow of random JAX functions: branches, loops, and derivatives of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.values import Function, Value, is_array


def _adds_up(value: Value) -> bool:
    """Whether the sum of all elements is exact, so that a test of it is the same on any devices."""
    return value._replace(bound=value.bound * math.prod(value.shape)).is_exact


def branched(function: Function) -> bool:
    """A branch of which one side adds up, or a loop until a test fails."""
    k = function.pick(lambda value: is_array(value) and not value.is_complex and _adds_up(value))
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    size, scalar = value.shape[0], rng.choice((-3, 0, 2))

    def test(x: Any) -> Any:
        return lax.reduce_sum(x, tuple(range(x.ndim))) > jnp.asarray(max(scalar, 0), x.dtype)

    how: dict[str, Any] = {"grain": value.grain, "sums": True}
    kind = rng.choice(("cond", "switch", "while", "scan"))
    if kind == "cond":
        run = lambda x: lax.cond(test(x), lambda x: x.sum(0, dtype=x.dtype), lambda x: x[0] * 2, x)  # noqa: E731
        return function.add("cond", run, k, bound=value.bound * max(size, 2), **how)
    if kind == "switch":

        def run(x: Any) -> Any:
            number = jnp.where(test(x), 2, 0)
            return lax.switch(number, [lambda x: x + x, lambda x: -x, lambda x: x - lax.rev(x, (0,))], x)

        return function.add("switch", run, k, bound=2 * value.bound, **how)
    if kind == "while":

        def run(x: Any) -> Any:
            def body(state: Any) -> Any:
                return state[0] + 1, state[1] + lax.reduce_sum(x, (0,))

            return lax.while_loop(lambda state: state[0] < 3, body, (0, jnp.zeros_like(x[0])))[1]

        return function.add("while", run, k, bound=3 * size * value.bound, **how)

    def run(x: Any) -> Any:
        last, rows = lax.scan(lambda c, row: (c + row, c - row), jnp.zeros_like(x[0]), x, reverse=True)
        return rows + last

    return function.add("scan rows", run, k, bound=2 * (size + 1) * value.bound, **how)


def looped(function: Function) -> bool:
    """A loop that carries sums, stacks what its steps make, changes places, holds another loop or a branch."""
    k = function.pick(lambda value: is_array(value) and not value.is_complex)
    if k is None:
        return False
    value, rng, axis = function.values[k], function.rng, function.axis(k)
    j = function.alike(k)
    other, size = function.values[j], value.shape[axis]
    both = value.bound + other.bound

    def total(x: Any) -> Any:
        return lax.reduce_sum(x, (axis,))

    def swap(x: Any, y: Any) -> Any:
        return lax.scan(lambda state, _: (state[::-1], None), (x, y), length=3)[0][0]

    def stacked(x: Any, y: Any) -> Any:
        rows = lax.scan(lambda c, row: (c + row, c - row), jnp.zeros_like(x[0]), x)[1]
        return lax.scan(lambda c, row: (c, row + row), y, rows, reverse=True)[1]

    def nested(x: Any, y: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, c: lax.fori_loop(0, 2, lambda _, c: c - y, c), x)

    def until(x: Any, y: Any) -> Any:
        def goes_on(state: Any) -> Any:
            return (state[0] < 3) & (lax.reduce_max(state[1], tuple(range(x.ndim))) < 64)

        return lax.while_loop(goes_on, lambda state: (state[0] + 1, state[1] + y), (0, x))[1]

    def branch(x: Any, y: Any) -> Any:
        def one(c: Any, number: Any) -> Any:
            return lax.cond(number > 0, lambda c: c + y, lambda c: -c, c), total(c)

        return lax.scan(one, x, jnp.arange(3))[1]

    steps = rng.choice([n for n in range(1, max(value.shape[0], 1) + 1) if value.shape[0] % n == 0])

    def microbatches(x: Any, y: Any) -> Any:
        parts = x.reshape(steps, x.shape[0] // steps, *x.shape[1:])
        return y + lax.scan(lambda c, rows: (c + lax.reduce_sum(rows, (0,)), None), jnp.zeros_like(x[0]), parts)[0]

    def turned(x: Any, y: Any) -> Any:
        last, sums = lax.fori_loop(0, 3, lambda _, state: (state[0] + y, -state[1]), (x, total(x)))
        return last - lax.expand_dims(sums, (axis,))

    kinds: dict[str, tuple[Callable[..., Any], float]] = {
        "microbatches": (microbatches, max(value.shape[0], 1) * value.bound + other.bound),
        "turned": (turned, (1 + size) * value.bound + 3 * other.bound),
        "sums carried": (
            lambda x, y: lax.scan(lambda c, _: (c + total(x), None), jnp.zeros_like(total(x)), length=3)[0] + total(y),
            (3 * value.bound + other.bound) * max(size, 1),
        ),
        "swap": (swap, both),
        "stacked": (stacked, 2 * (value.shape[0] + 1) * value.bound),
        "nested": (nested, value.bound + 4 * other.bound),
        "until": (until, value.bound + 3 * other.bound),
        "branch": (branch, max(size, 1) * (value.bound + 3 * other.bound)),
    }
    name = rng.choice(sorted(kinds))
    run, bound = kinds[name]
    grain = min(value.grain, other.grain)
    return function.add(f"loop {name}[{axis}]", run, k, j, bound=bound, grain=grain, sums=True)


def derived(function: Function) -> bool:
    """The transpose of a linear function, on another value as its cotangent."""
    k = function.pick(lambda value: is_array(value) and value.is_float and not value.is_complex)
    if k is None:
        return False
    j = function.alike(k)
    one, other = function.values[k], function.values[j]
    size, rows = one.shape[0], np.array([0, 1, 0]) % one.shape[0]
    functions: dict[str, tuple[Callable[[Any], Any], float]] = {
        "sum": (lambda x: x + lax.reduce_sum(x, (0,)), size + 1.0),
        "scaled sum": (lambda x: x / jnp.asarray(2, x.dtype) + lax.reduce_sum(x, (0,)), size + 1.0),
        "rows": (lambda x: x.at[jnp.asarray(rows) + 0].get().sum(0, dtype=x.dtype) + x, 4.0),
        "scan": (lambda x: x + lax.scan(lambda c, row: (c + row, None), jnp.zeros_like(x[0]), x)[0], size + 1.0),
        "remat": (lambda x: jax.checkpoint(lambda x: x + x.sum(0, dtype=x.dtype))(x), size + 1.0),
        "long scan": (lambda x: lax.scan(lambda c, _: (c - x, None), x, None, length=130)[0], 132.0),
    }
    name = function.rng.choice(sorted(functions))
    run, grown = functions[name]

    def derived(x: Any, y: Any) -> Any:
        return jax.vjp(run, x)[1](y)[0]

    grain = other.grain / (2 if name == "scaled sum" else 1)
    return function.add(f"gradient of {name}", derived, k, j, bound=other.bound * grown, grain=grain, sums=True)
