"""Random functions through `reshard(through=)`, which capture arrays of every kind, beside NumPy: the same elements.

Each function runs twice, with other captured values: the second call finds the first one's plan.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.errors import RedistribError
from tests.fuzz.guard import Failure, place

SHAPES = ((8,), (4, 6), (12, 4), (2, 3, 4), (6, 8), (), (0, 8))
DTYPES = ("float32", "bfloat16", "int32", "int8")
OPERATORS: dict[str, Callable[[Any, Any, Any], Any]] = {  # of NumPy or jax.numpy, an array, and a captured one
    "add": lambda _, x, c: x + c,
    "subtract": lambda _, x, c: c - x,
    "multiply": lambda _, x, c: x * c,
    "maximum": lambda np_, x, c: np_.maximum(x, c),
    "where": lambda np_, x, c: np_.where(c > 0, x, c),
    "derived": lambda np_, x, c: x + np_.flip(np_.cumsum(np_.atleast_1d(c), 0, dtype=c.dtype), 0)[-1:],
    "concatenate": lambda np_, x, c: np_.concatenate([x, np_.broadcast_to(c, x.shape)]) if x.ndim else x,
}
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "transpose": lambda _, x: x.T,
    "reshape": lambda _, x: x.reshape(-1),
    "flip": lambda np_, x: np_.flip(x),
    "halve": lambda _, x: x[: x.shape[0] // 2] if x.ndim else x,
    "repeat": lambda np_, x: np_.broadcast_to(x, (2, *x.shape)),
    "none": lambda _, x: x,
}


def check(seed: int, index: int) -> str:
    """Move a tree through the function of this number: "moved" or "refused".

    Raises:
        Failure: if elements or shardings are wrong, or anything but a `RedistribError` comes out.
    """
    rng = random.Random(f"through/{seed}/{index}")
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    source, target = _mesh(rng), _mesh(rng)
    steps = [(rng.choice([*VIEWS]), rng.choice([*OPERATORS]), rng.random() < 0.3) for _ in range(rng.choice((1, 1, 2)))]
    x = _values(rng, shape, dtype)
    drawn, result = [], x
    for view, operator, _ in steps:
        viewed = VIEWS[view](np, result)
        drawn.append((_captured_shape(rng, viewed.shape), rng.choice(("numpy", "jax", "source", "target", "other"))))
        result = _applied(np, result, view, operator, _values(rng, drawn[-1][0], dtype))
    to = NamedSharding(target, _spec(rng, result.shape, target))
    array = jax.device_put(x, NamedSharding(source, _spec(rng, shape, source)))
    told = f"{dtype}{list(shape)} on {source.shape}, {steps}, captured {drawn}, to {to.spec} on {target.shape}"
    context = rng.choice(("none", "none", "x64", "mesh"))
    outcome = "moved"
    for _ in range(2):
        values = [_values(rng, captured, dtype) for captured, _ in drawn]
        captured = [_placed(rng, value, kind, source, target) for value, (_, kind) in zip(values, drawn, strict=True)]
        expected = x
        for (view, operator, _), value in zip(steps, values, strict=True):
            expected = _applied(np, expected, view, operator, value)

        def function(given: Any, captured: list[Any] = captured) -> Any:
            for (view, operator, called), value in zip(steps, captured, strict=True):

                def step(x: Any, view: str = view, operator: str = operator, value: Any = value) -> Any:
                    return _applied(jnp, x, view, operator, value)

                given = jax.jit(step)(given) if called else step(given)
            return given

        try:
            with {"x64": lambda: jax.enable_x64(True), "mesh": lambda: jax.set_mesh(target)}.get(
                context, nullcontext
            )():
                moved = rd.reshard(array, to, through=function)
        except RedistribError as error:
            if "scatters a tile" not in str(error):
                raise Failure("refused", str(error)[:150], case=told) from error
            outcome = "refused"
            continue
        except Exception as error:
            raise Failure("exception", f"{type(error).__name__}: {str(error)[:150]}", place(error), told) from error
        if (moved.shape, moved.dtype, moved.sharding) != (expected.shape, expected.dtype, to):
            raise Failure("wrong", f"{moved.dtype}{list(moved.shape)} on {moved.sharding}", case=told)
        if not np.array_equal(np.asarray(moved), expected):
            raise Failure("wrong", "other elements", case=told)
    return outcome


def _applied(np_: Any, x: Any, view: str, operator: str, captured: Any) -> Any:
    viewed = VIEWS[view](np_, x)
    return OPERATORS[operator](np_, viewed, captured).astype(x.dtype)


def _values(rng: random.Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small integers, of which all types have every sum and product."""
    values = np.random.default_rng(rng.randrange(2**32)).integers(-2, 3, shape)
    return np.asarray(values).astype(jnp.dtype(dtype))


def _captured_shape(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that is broadcast to another."""
    sizes = tuple(1 if rng.random() < 0.3 else size for size in shape)
    return rng.choice((sizes, sizes[rng.randrange(len(sizes) + 1) :], ()))


def _placed(rng: random.Random, value: np.ndarray, kind: str, source: Mesh, target: Mesh) -> Any:
    if kind == "numpy":
        return value
    if kind == "jax":
        return jnp.asarray(value)
    mesh = {"source": source, "target": target}.get(kind) or _mesh(rng)
    return jax.device_put(value, NamedSharding(mesh, _spec(rng, value.shape, mesh)))


def _mesh(rng: random.Random) -> Mesh:
    sizes = rng.choice(((4,), (2, 2), (2,), (8,), (1,), (3,)))
    devices = rng.sample(jax.devices()[:8], math.prod(sizes))
    return Mesh(np.array(devices).reshape(sizes), tuple("xy"[: len(sizes)]), axis_types=(AxisType.Auto,) * len(sizes))


def _spec(rng: random.Random, shape: tuple[int, ...], mesh: Mesh) -> PartitionSpec:
    """Each axis on a dimension that it divides, or on none."""
    cuts: list[list[str]] = [[] for _ in shape]
    for name in mesh.axis_names:
        where = rng.randrange(len(shape) + 1)
        if where < len(shape) and shape[where] % math.prod(mesh.shape[n] for n in (*cuts[where], name)) == 0:
            cuts[where].append(name)
    return PartitionSpec(*(tuple(names) or None for names in cuts))
