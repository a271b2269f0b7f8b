"""JAX's transformations as functions of functions that keep shape and sharding, so that any compose with any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp

Function = Callable[[Any], Any]


def _tangent(f: Function) -> Function:
    return lambda x: jax.jvp(f, (x,), (2 * x,))[1]


def _gradient(f: Function) -> Function:
    return jax.grad(lambda x: jnp.sum(jnp.sin(f(x))))


def _linearized(f: Function) -> Function:
    return lambda x: jax.linearize(f, x)[1](3 * x)


def _pulled_back(f: Function) -> Function:
    def run(x: Any) -> Any:
        y, back = jax.vjp(f, x)
        return back(y)[0]

    return run


def _of_rows_of_an_identity(jacobian: Callable[..., Any]) -> Callable[[Function], Function]:
    """The Jacobian along one number that scales the argument: a batch of one tangent, or of all cotangents."""
    return lambda f: lambda x: jacobian(lambda scale: f(x * scale))(jnp.ones((), x.dtype))


def _scanned(f: Function) -> Function:
    return lambda x: jax.lax.scan(lambda carry, _: (f(carry), None), x, None, length=2)[0]


def _own_gradient(f: Function) -> Function:
    run = jax.custom_vjp(f)

    def forward(x: Any) -> Any:
        return f(x), x

    def backward(x: Any, cotangent: Any) -> Any:
        return (jax.vjp(f, x)[1](2 * cotangent)[0],)

    run.defvjp(forward, backward)
    return run


TRANSFORMATIONS: dict[str, Callable[[Function], Function]] = {
    "jit": jax.jit,
    "vmap": jax.vmap,
    "grad": _gradient,
    "jvp": _tangent,
    "linearize": _linearized,
    "vjp": _pulled_back,
    "jacfwd": _of_rows_of_an_identity(jax.jacfwd),
    "checkpoint": jax.checkpoint,
    "scan": _scanned,
    "custom_vjp": _own_gradient,
}
_FORWARD = {"jvp", "linearize", "jacfwd"}


def compositions(depth: int) -> Iterator[tuple[str, ...]]:
    """The names of all compositions of at most `depth` transformations, outermost first.

    Forward mode around `custom_vjp` is left out: JAX has none.
    """
    for length in range(depth + 1):
        for names in product(TRANSFORMATIONS, repeat=length):
            inside = max((k for k, name in enumerate(names) if name == "custom_vjp"), default=0)
            if not _FORWARD & {*names[:inside]} and not _differentiates_twice(names[:inside]):
                yield names


def _differentiates_twice(names: Sequence[str]) -> bool:
    """Whether a gradient is taken of a gradient, which is forward mode over reverse mode to JAX."""
    return sum(name in ("grad", "vjp", "custom_vjp") for name in names) > 1


def composed(names: Sequence[str], f: Function) -> Function:
    """The function under all transformations, the first of them outermost."""
    for name in reversed(names):
        f = TRANSFORMATIONS[name](f)
    return f
