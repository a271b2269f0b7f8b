"""Operations of random JAX functions that are primitives of their own: products in groups, tiles, any and all, keys.

They come last in a function, so that functions drawn before there were these stay what they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.values import Function

SHARE = 0.25  # of the functions, which end with one of these


def extend(function: Function, seed: str) -> None:
    """Add one of these operations to some of the functions."""
    if random.Random(f"primitives/{seed}").random() < SHARE:
        for _ in range(20):
            if function.rng.choice(OPERATIONS)(function):
                break


def _in_groups(function: Function) -> bool:
    """Rows in groups, each with a matrix of its own; of finite values, since what is masked is multiplied by zero."""
    k = function.pick(lambda value: value.dtype in ("float32", "float64", "int32") and len(value.shape) == 2)
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    rows, size = value.shape
    groups = rng.choice((2, 4))
    counts = np.array([rng.randint(0, rows // groups) for _ in range(groups)], np.int32)
    weights = np.array([rng.randint(-2, 2) for _ in range(groups * size * 4)]).reshape(groups, size, 4)

    def run(x: Any) -> Any:
        finite = jnp.where(jnp.isfinite(x), x, 0) if value.is_float else x
        given = jnp.asarray(counts) + jnp.int32(0)
        return lax.ragged_dot(finite, jnp.asarray(weights, x.dtype) + jnp.zeros((), x.dtype), given)

    bound = 2 * value.bound * size
    return function.add(f"ragged_dot[{counts.tolist()}]", run, k, bound=bound, grain=value.grain, sums=True)


def _tiled(function: Function) -> bool:
    k = function.pick(lambda value: bool(value.shape) and len(value.shape) < 4)
    if k is None:
        return False
    value, rng = function.values[k], function.rng
    times = tuple(rng.choice((1, 2, 3)) for _ in value.shape)
    return function.add(f"tile{list(times)}", lambda x: jnp.tile(x, times), k, bound=value.bound, grain=value.grain)


def _any_or_all(function: Function) -> bool:
    k = function.pick(lambda value: bool(value.shape) and value.is_number and not value.is_complex)
    if k is None:
        return False
    axis, kind = function.axis(k), function.rng.choice(("any", "all"))
    return function.add(f"{kind}[{axis}]", lambda x: getattr(jnp, kind)(x > 0, axis=axis), k)


def _reduced_by_a_function(function: Function) -> bool:
    k = function.pick(lambda value: bool(value.shape) and value.dtype == "int32")
    if k is None:
        return False
    axis = function.axis(k)
    run = lambda x: lax.reduce(x, np.int32(1), lambda a, b: a * b, (axis,))  # noqa: E731
    return function.add(f"reduce[{axis}]", run, k)


def _bits_of_many_keys(function: Function) -> bool:
    k = function.pick(lambda value: value.dtype in ("int32", "uint32") and value.shape != () and 0 not in value.shape)
    if k is None:
        return False

    def run(x: Any) -> Any:
        keys = jax.vmap(jax.random.key)(x.reshape(x.shape[0], -1)[:, 0].astype(jnp.uint32))
        return jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, 3), (4,), jnp.uint32))(keys)

    return function.add("bits of keys", run, k)


OPERATIONS: tuple[Callable[[Function], bool], ...] = (
    _in_groups, _in_groups, _tiled, _any_or_all, _reduced_by_a_function, _bits_of_many_keys,
)  # fmt: skip
