"""Changes to a plan's JSON form: the registry, and what they pick from a plan."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from proofs.bridge.export import Form

Change = Callable[[random.Random, Form], bool]
"""Alters a form; False where it does not apply."""

BREAKING: dict[str, Change] = {}
HARMLESS: dict[str, Change] = {}


def breaking(change: Change) -> Change:
    """Register a change meant to break a plan; now and then it makes another correct one."""
    BREAKING[change.__name__] = change
    return change


def harmless(change: Change) -> Change:
    """Register a change that keeps a correct plan correct."""
    HARMLESS[change.__name__] = change
    return change


def any_step(rng: random.Random, form: Form, *kinds: str) -> Form | None:
    steps = [step for step in form["steps"] if not kinds or step["kind"] in kinds]
    return rng.choice(steps) if steps else None


def any_groups(rng: random.Random, form: Form, least: int = 1) -> list[list[int]] | None:
    step = any_step(rng, form, "allgather", "alltoall", "reduce_scatter", "all_reduce")
    return step["groups"] if step and len(step["groups"]) >= least else None


def any_pairs(rng: random.Random, form: Form) -> list[list[int]] | None:
    step = any_step(rng, form, "allpermute")
    return step["pairs"] if step and step["pairs"] else None


def any_shares(rng: random.Random, form: Form) -> list[list[Any]] | None:
    step = any_step(rng, form, "exchange", "reduce_exchange")
    return step["shares"] if step and step["shares"] else None


def devices(form: Form) -> int:
    return 1 + max(max(form[side]["mesh"]["devices"], default=0) for side in ("source", "target"))


def holders(placement: Form) -> list[int]:
    """The devices that hold a tile under a placement."""
    return [device for device, row in enumerate(placement["index"]) if -1 not in row]


def other_device(rng: random.Random, form: Form, device: int) -> int:
    return (device + rng.randrange(1, max(2, devices(form)))) % devices(form)


def outsider(rng: random.Random, form: Form) -> int:
    return rng.choice((-1, devices(form), devices(form) + rng.randrange(1, 2**40)))


def replicas(form: Form, step: Form, device: int) -> list[int]:
    """The other devices that hold the same tile before a step, and the same summand of it."""
    placement = form["placements"][step["before"]]
    held = list(zip(placement["index"], placement.get("summand", [0] * len(placement["index"])), strict=True))
    return [other for other, row in enumerate(held) if other != device and row == held[device]]
