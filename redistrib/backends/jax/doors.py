"""The doors of this backend, see `redistrib/backends/README.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from redistrib.backends.jax import calibrate
from redistrib.backends.jax.execute import require_plan, to_jax
from redistrib.backends.refusals import refusal
from redistrib.extras import need
from redistrib.plans.plan import Plan
from redistrib.plans.samples import Sample
from redistrib.programs.data import ProgramData
from redistrib.programs.program import Program


def run(runnable: Plan | Program, where: jax.sharding.Mesh, **options: Any) -> Callable[..., Any]:
    """The function of global arrays of a plan or a program on a JAX mesh.

    Args:
        runnable: a plan, which moves one array, or a program, from its inputs to the list of its outputs.
        where: a JAX mesh with the axes of the plan's or the program's mesh.
        options: those of `to_jax` for a plan, of `program_to_jax` for a program.

    Raises:
        RedistribError: as these functions do.
    """
    if isinstance(runnable, ProgramData):
        function: Callable[..., Any] = _for_programs().program_to_jax(runnable, where, **options)
        return function
    return to_jax(runnable, where, **options)


def can(runnable: Plan | Program) -> str | None:
    """The reason why no JAX mesh can carry out a plan or a program, in one line; None if one can."""
    return refusal(_require, runnable)


def measure(where: Sequence[Any] | None = None, **options: Any) -> list[Sample]:
    """Time this backend's collectives.

    Args:
        where: JAX devices, at least two; all by default.
        options: those of `redistrib.backends.jax.calibrate.measure`.

    Returns:
        Samples for `redistrib.cost.fit.fit_profile`, in seconds and bytes.
    """
    return calibrate.measure(jax.devices() if where is None else where, **options)


def _require(runnable: Plan | Program) -> None:
    if isinstance(runnable, ProgramData):
        _for_programs().require_program(runnable)
    else:
        require_plan(runnable)


def _for_programs() -> Any:
    """What runs programs, which the wheel for programs installs."""
    need("redistrib.backends.jax.placed_function", "rd.to_jax of a program")
    from redistrib.backends.jax import placed_function

    return placed_function
