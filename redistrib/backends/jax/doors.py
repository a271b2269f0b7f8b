"""The doors of this backend, see `redistrib/backends/README.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from redistrib.backends.jax import calibrate
from redistrib.backends.jax.execute import require_plan, to_jax
from redistrib.backends.refusals import refusal
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample


def run(plan: Plan, where: jax.sharding.Mesh, **options: Any) -> Callable[..., Any]:
    """The function of one global array that carries out a plan on a JAX mesh.

    Args:
        plan: a plan, which moves one array.
        where: a JAX mesh with the axes of the plan's mesh.
        options: those of `to_jax`.

    Raises:
        RedistribError: as `to_jax` does.
    """
    return to_jax(plan, where, **options)


def can(plan: Plan) -> str | None:
    """The reason why no JAX mesh can carry out a plan, in one line; None if one can."""
    return refusal(require_plan, plan)


def measure(where: Sequence[Any] | None = None, **options: Any) -> list[Sample]:
    """Time this backend's collectives.

    Args:
        where: JAX devices, at least two; all by default.
        options: those of `redistrib.backends.jax.calibrate.measure`.

    Returns:
        Samples for `redistrib.cost.fit.fit_profile`, in seconds and bytes.
    """
    return calibrate.measure(jax.devices() if where is None else where, **options)
