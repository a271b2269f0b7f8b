"""Plans in parts: chains of collectives, one for each part, of which no two are in one step at a time.

Part p + 1 enters a step when part p has left it: no compiler joins the collectives of two parts into one, and at most
one part is in flight in every step. What else goes on at once is the compiler's choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from redistrib.backends.jax.boxes import box, put
from redistrib.backends.jax.context import LoweringContext
from redistrib.backends.jax.lowering import local_program, zero_after
from redistrib.backends.jax.values import Program
from redistrib.plans.parts import waves
from redistrib.plans.plan import Plan
from redistrib.plans.steps import DynSlice, Step


def plan_program(plan: Plan, context: LoweringContext) -> Program:
    """The function from a device's source tile to its target tile; see `local_program`.

    Where collectives are to run one after the other, a plan in parts is carried out whole.
    """
    if plan.along is None or context.schedule != "overlap":
        return local_program(plan.steps, context)
    phases = [local_program(steps, context) for steps in _phases(plan.part)]
    part, along, rank = plan.part, plan.along, plan.before.rank

    def at(number: int, extent: int) -> list[int]:
        return [number * extent if i == along else 0 for i in range(rank)]

    def program(tile: jax.Array) -> jax.Array:
        out: jax.Array = lax.empty((*plan.after.tile, *tile.shape[rank:]), tile.dtype)
        held: dict[int, jax.Array] = {}
        latest: list[jax.Array | None] = [None] * len(phases)
        for wave in waves(plan.parts, len(phases)):
            for number, phase in wave:
                if phase == 0:
                    held[number] = box(tile, at(number, part[0].before.tile[along]), part[0].before.tile)
                before = latest[phase]
                mine = held[number] if before is None else after(before, held[number], context)
                held[number] = latest[phase] = phases[phase](mine)
                if phase == len(phases) - 1:
                    out = put(out, held.pop(number), at(number, part[-1].after.tile[along]))
        return out

    return program


def after(latest: jax.Array, tile: jax.Array, context: LoweringContext) -> jax.Array:
    """The tile, known only once another array is."""
    known = jnp.broadcast_to(zero_after(latest, context) == 0, tile.shape)
    return lax.select(known, tile, jnp.zeros_like(tile))


def _phases(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps, each that moves data with the slices before it; slices at the end go with the last."""
    phases: list[list[Step]] = []
    local: list[Step] = []
    for step in steps:
        local.append(step)
        if not isinstance(step, DynSlice):
            phases.append(local)
            local = []
    if local:
        phases = [*phases[:-1], [*phases[-1], *local]] if phases else [local]
    return phases
