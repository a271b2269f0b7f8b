"""Primitives without a rule: those that other primitives implement are replaced by these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core as jex

from redistrib.backends.jax.private import implementation
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Opens


def opened(eqn: Any) -> jex.ClosedJaxpr | None:
    """The equations that implement an equation, by tracing the implementation of its primitive.

    None if the primitive is one of XLA, has an effect, or computes other arrays when traced.
    """
    primitive = eqn.primitive
    if record_of(primitive.name).opens in (Opens.NEVER, Opens.LOOP) or eqn.effects:
        return None
    function = implementation(primitive)
    if function is None:
        return None
    try:
        inner = jax.make_jaxpr(lambda *operands: function(*operands, **eqn.params))(*(var.aval for var in eqn.invars))
    except Exception:  # an implementation may need arrays, and fail in any way on traced values
        return None
    actual, expected = ([(item.shape, item.dtype) for item in side] for side in (inner.out_avals, _avals(eqn.outvars)))
    return inner if actual == expected and not _contains(inner.jaxpr, primitive) else None


def _avals(variables: Any) -> list[Any]:
    return [var.aval for var in variables]


def _contains(jaxpr: Any, primitive: Any) -> bool:
    return any(
        eqn.primitive is primitive or any(_contains(inner, primitive) for inner in _inside(eqn)) for eqn in jaxpr.eqns
    )


def calls(eqn: Any, kind: str) -> bool:
    """Whether an equation calls a function with a primitive of this name, directly or not."""
    return any(
        inner_eqn.primitive.name == kind or calls(inner_eqn, kind) for jaxpr in _inside(eqn) for inner_eqn in jaxpr.eqns
    )


def _inside(eqn: Any) -> list[Any]:
    values = [v for value in eqn.params.values() for v in (value if isinstance(value, tuple | list) else (value,))]
    return [getattr(value, "jaxpr", value) for value in values if isinstance(value, jex.ClosedJaxpr | jex.Jaxpr)]


def of_platform(platforms: Sequence[tuple[str, ...] | None], platform: str) -> int:
    """The number of the branch for a platform; None stands for all other platforms."""
    names = {"gpu": ("gpu", "cuda", "rocm")}.get(platform, (platform,))
    named = (k for k, form in enumerate(platforms) if form is not None and any(name in form for name in names))
    others = (k for k, form in enumerate(platforms) if form is None)
    return next(named, next(others, 0))
