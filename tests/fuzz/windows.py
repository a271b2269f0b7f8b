"""Operations of random JAX functions whose points read windows: convolutions and poolings along a dimension.

The dimension is the first of an array, or the second, so that schedules often cut it in space.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.fuzz.values import Function, is_array


class _Slid(NamedTuple):
    """How a window slides: taps, stride, dilation of taps and of elements, padding on both sides."""

    taps: int
    stride: int
    dilation: int
    spacing: int
    padding: Any

    @classmethod
    def drawn(cls, rng: random.Random) -> _Slid:
        taps, dilation = rng.choice((1, 2, 3, 3, 4, 5)), rng.choice((1, 1, 1, 2, 3))
        padding: Any = rng.choice(("SAME", "SAME", "SAME", "VALID", "drawn"))
        if padding == "drawn":
            padding = (rng.randint(-1, 4), rng.randint(-1, 4))
            if padding[0] < 0 < padding[1]:  # XLA for CPUs computes wrong sums
                padding = (0, padding[1])
        return cls(taps, rng.choice((1, 1, 1, 2, 2, 3)), dilation, rng.choice((1, 1, 1, 2)), padding)

    def __str__(self) -> str:
        return f"{self.taps}/{self.stride}, {self.dilation}:{self.spacing}, {self.padding}"


def _image(x: Any, along: int) -> Any:
    """An array as a batch of rows of channels, of which the rows are the dimension."""
    x = x.reshape(*x.shape[:2], -1)
    return x if along == 1 else jnp.moveaxis(x, 0, 1) if x.shape[2] > 1 else x[None, ..., 0]


def _added(function: Function, name: str, run: Callable[..., Any], *reads: int, **how: Any) -> bool:
    """Add an operation that makes something: some windows fit nowhere."""
    forms = [jax.ShapeDtypeStruct(function.values[k].shape, jnp.dtype(function.values[k].dtype)) for k in reads]
    try:
        made = jax.eval_shape(run, *forms)
    except (TypeError, ValueError, OverflowError):
        return False
    return 0 not in made.shape and function.add(name, run, *reads, **how)


def _convolved(function: Function) -> bool:
    """Of finite values: by the shapes XLA for CPUs decides whether padding, times an infinity, is NaN."""
    k = function.pick(lambda value: is_array(value) and 2 <= len(value.shape) <= 3 and 0 not in value.shape)
    if k is None:
        return False
    one, rng, slid = function.values[k], function.rng, _Slid.drawn(function.rng)
    j, along, filters = function.alike(k), rng.choice((0, 1)), rng.choice((1, 2, 4))
    groups = rng.choice(("features", "features", "batch"))

    def run(x: Any, y: Any) -> Any:
        x, y = (_image(jnp.where(jnp.isfinite(value), value, 1), along) for value in (x, y))
        count = filters if (x.shape[0] if groups == "batch" else x.shape[2]) % filters == 0 else 1
        channels = x.shape[2] if groups == "batch" else x.shape[2] // count
        kernel = jnp.resize(y, (slid.taps, channels, 2 * count))
        padding = slid.padding if isinstance(slid.padding, str) else (slid.padding,)
        if isinstance(padding, str) and slid.spacing > 1:
            padding = ((1, 2),)
        return lax.conv_general_dilated(
            x,
            kernel,
            (slid.stride,),
            padding,
            (slid.spacing,),
            (slid.dilation,),
            ("NWC", "WIO", "NWC"),
            **{"batch_group_count" if groups == "batch" else "feature_group_count": count},
        )

    products = slid.taps * int(np.prod(one.shape)) // one.shape[along] * (2 if one.is_complex else 1)
    bound = one.bound * function.values[j].bound * products
    grain = one.grain * function.values[j].grain
    name = f"slide[{along}: {slid}, {filters} {groups}]"
    return _added(function, name, run, k, j, bound=bound, grain=grain, sums=True)


def _pooled(function: Function) -> bool:
    """The largest, the least or the sum in each window; or, of the largest, what a gradient makes of it."""
    k = function.pick(lambda value: is_array(value) and not value.is_complex and 0 not in value.shape)
    if k is None:
        return False
    value, rng, slid = function.values[k], function.rng, _Slid.drawn(function.rng)
    axis, kind = function.axis(k), rng.choice(("max", "min", "sum", "gradient"))
    rank = len(value.shape)

    def along(number: int) -> tuple[int, ...]:
        return tuple(number if i == axis else 1 for i in range(rank))

    def run(x: Any, kind: str = kind) -> Any:
        if kind == "gradient":
            made, back = jax.vjp(lambda x: run(x, "max"), x)
            return back(jnp.where(jnp.isfinite(made), made, 1))[0]
        low, high = (-np.inf, np.inf) if value.is_float else (jnp.iinfo(x.dtype).min, jnp.iinfo(x.dtype).max)
        init, fn = {"max": (low, lax.max), "min": (high, lax.min), "sum": (0, lax.add)}[kind]
        padding: Any = slid.padding
        if not isinstance(padding, str):
            inside = tuple(max(0, n) for n in padding)
            padding = tuple(inside if i == axis else (0, 0) for i in range(rank))
        window = along(slid.taps), along(slid.stride), padding
        dilations = {} if kind == "max" else {"window_dilation": along(slid.dilation)}
        return lax.reduce_window(x, np.array(init, x.dtype), fn, *window, **dilations)

    bound = value.bound * (slid.taps if kind in ("sum", "gradient") else 1)
    inside = rng.choice(("", "", "", "branch of", "rematerialised"))
    name = f"{inside} pool {kind}[{axis}: {slid}]"
    how: dict[str, Any] = {"bound": bound, "grain": value.grain, "sums": kind != "max"}
    if inside == "branch of":

        def branch(x: Any) -> Any:
            return lax.cond(x.ravel()[0] > x.ravel()[-1], run, lambda x: lax.rev(run(x), (axis,)), x)

        return _added(function, name, branch, k, **how)
    return _added(function, name, jax.checkpoint(run) if inside else run, k, **how)


OPERATIONS: tuple[Callable[[Function], bool], ...] = (_convolved, _convolved, _pooled, _pooled)
