"""Whether plans of partial arrays add every summand once: each summand has a digit of its own in the sum."""

from __future__ import annotations

import math

import numpy as np

from redistrib.plans.plan import Plan
from redistrib.plans.reference import assemble, run, scatter
from redistrib.theory.placement import Placement


def digits(placement: Placement) -> np.ndarray:
    """Summand s contributes (N + 1)^s, times a factor by element: digits of a sum say how often each is there."""
    base = placement.devices + 1
    powers = np.array([pow(base, s, 2**63) for s in range(placement.summands)], dtype=np.int64)
    stack = np.broadcast_to(powers.reshape(-1, *[1] * placement.rank), (placement.summands, *placement.shape))
    return stack * (1 + np.arange(math.prod(placement.shape)).reshape(placement.shape) % 7)


def whole_of(stack: np.ndarray, placement: Placement) -> np.ndarray:
    return stack.sum(axis=0) if placement.reduction in ("sum", None) else getattr(stack, placement.reduction)(axis=0)


def is_exact(plan: Plan) -> bool:
    before, after = plan.before, plan.after
    stack = digits(before)
    if before.reduction in ("max", "min"):
        stack = np.random.default_rng(0).integers(-99, 99, stack.shape)
    whole = whole_of(stack, before)
    tiles = run(plan, scatter(stack if before.summands > 1 else whole, before))
    if after.summands == 1:
        return all(np.array_equal(got, want) for got, want in zip(tiles, scatter(whole, after), strict=True))
    return np.array_equal(assemble(tiles, after), whole)
