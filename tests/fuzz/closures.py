"""Operations of random JAX functions that are inner functions under `jax.jit` which close over arrays.

They come last in a function, so that functions drawn before there were these stay what they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.values import Function, Value

SHARE = 0.25  # of the functions, which end with one of these
LARGEST = 2  # magnitude of what is closed over
KINDS = ("numpy", "jax", "traced", "both")


class _Use(NamedTuple):
    """What an inner function makes of its argument and of what it closes over, and how large that may be."""

    run: Callable[[Any, Any], Any]
    grown: Callable[[float, float], float]


USES: dict[str, _Use] = {
    "add": _Use(lambda x, c: x + c, lambda x, c: x + c),
    "subtract": _Use(lambda x, c: c - x, lambda x, c: x + c),
    "multiply": _Use(lambda x, c: x * c, lambda x, c: x * c),
    "where": _Use(lambda x, c: jnp.where(c > 0, x, c), max),
    "rows": _Use(lambda x, c: x[jnp.abs(jnp.nan_to_num(c)).astype(jnp.int32).reshape(-1)[:1] % x.shape[0]] + x,
                 lambda x, c: 2 * x),
}  # fmt: skip
PLACES: dict[str, tuple[Callable[[Callable[[Any], Any]], Callable[[Any], Any]], int]] = {  # and how often it is called
    "plain": (lambda f: f, 1),
    "twice": (lambda f: lambda x: f(f(x)), 2),
    "jit": (lambda f: jax.jit(lambda x: f(x)), 1),
    "checkpoint": (lambda f: jax.checkpoint(f), 1),
    "vmap": (lambda f: jax.vmap(f), 1),
    "cond": (lambda f: lambda x: lax.cond(x.reshape(-1)[0] > 0, f, lambda x: x, x), 1),
    "scan": (lambda f: lambda x: lax.scan(lambda carry, _: (f(carry), None), x, length=2)[0], 2),
}


def extend(function: Function, seed: str) -> None:
    """Add an inner function to some of the functions."""
    rng = random.Random(f"closures/{seed}")
    if rng.random() < SHARE:
        for _ in range(20):
            if _closing(function, rng):
                break


def _closing(function: Function, rng: random.Random) -> bool:
    k = function.pick(lambda value: bool(value.shape) and value.is_number and not value.is_complex)
    if k is None:
        return False
    value = function.values[k]
    kind, name, place = rng.choice(KINDS), rng.choice(sorted(USES)), rng.choice(sorted(PLACES))
    use, (placed, times) = USES[name], PLACES[place]
    j = function.alike(k)
    shape = value.shape[place == "vmap" :]
    if name == "rows" and not shape:
        return False
    held: Any = _array(rng, value, shape)
    if kind == "jax":
        held = jnp.asarray(held)
    traced = {"traced": lambda y: y, "both": lambda y: y + held}.get(kind)
    largest = LARGEST * (kind != "traced") + function.values[j].bound * (traced is not None)
    shared = jax.jit(lambda x: use.run(x, held))  # one function of all calls, whose trace JAX keeps

    def run(x: Any, y: Any) -> Any:
        if traced is None:
            return placed(shared)(x)
        captured = traced(y[0] if place == "vmap" else y)
        return placed(jax.jit(lambda x: use.run(x, captured)))(x)

    bound = value.bound
    for _ in range(times):
        bound = use.grown(bound, largest)
    grain = min(value.grain, function.values[j].grain) if name != "multiply" else value.grain
    if name == "multiply" and traced:
        grain *= min(function.values[j].grain, 1.0) ** times
    what = f"inner {name} of {kind} in {place}{list(np.shape(held))}"
    return function.add(what, run, k, j, bound=bound, grain=grain)


def _array(rng: random.Random, value: Value, shape: tuple[int, ...]) -> Any:
    """Small integers of the value's type, in a shape that is broadcast to its own."""
    shape = rng.choice((shape, shape, shape[rng.randrange(len(shape) + 1) :], tuple(1 for _ in shape)))
    least = -LARGEST if not value.dtype.startswith("uint") else 0
    drawn = np.random.default_rng(rng.randrange(2**32)).integers(least, LARGEST + 1, shape)
    return np.asarray(drawn).astype(jnp.dtype(value.dtype))
