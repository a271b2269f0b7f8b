"""Changes to summands: who holds which, what makes which, and how they are reduced."""

from __future__ import annotations

import random
from typing import Any

from proofs.bridge.change import any_step, breaking, devices, other_device, outsider
from proofs.bridge.export import Form, is_partial, summands


def _any_summands(rng: random.Random, form: Form) -> dict[str, Any] | None:
    placements = [placement for placement in form["placements"] if "summand" in placement]
    return rng.choice(placements) if placements else None


@breaking
def another_summand(rng: random.Random, form: Form) -> bool:
    """One device under one placement holds another summand, or one that there is not."""
    placement = _any_summands(rng, form)
    if placement is None:
        return False
    held, d = placement["summand"], rng.randrange(len(placement["summand"]))
    held[d] = rng.choice((held[d] + 1, (held[d] + 1) % placement["summands"], -1))
    return True


@breaking
def swapped_summands(rng: random.Random, form: Form) -> bool:
    placement = _any_summands(rng, form)
    if placement is None:
        return False
    held = placement["summand"]
    a, b = rng.sample(range(len(held)), 2)
    held[a], held[b] = held[b], held[a]
    return True


@breaking
def lost_summand(rng: random.Random, form: Form) -> bool:
    """Nobody holds it under one placement."""
    placement = _any_summands(rng, form)
    if placement is None:
        return False
    lost = rng.randrange(placement["summands"])
    placement["summand"] = [(k + (k == lost)) % placement["summands"] for k in placement["summand"]]
    return True


@breaking
def another_count_of_summands(rng: random.Random, form: Form) -> bool:
    placement = _any_summands(rng, form)
    if placement is None:
        return False
    placement["summands"] += rng.choice((-1, 1))
    return True


@breaking
def another_reduction(rng: random.Random, form: Form) -> bool:
    placement = _any_summands(rng, form)
    if placement is None:
        return False
    placement["reduction"] = rng.choice([kind for kind in ("sum", "max", "min") if kind != placement["reduction"]])
    return True


@breaking
def another_reduction_of_type(rng: random.Random, form: Form) -> bool:
    side = form[rng.choice(("source", "target"))]
    whole, reduction, axes = summands(side["type"])
    if not axes:
        return False
    other = rng.choice([kind for kind in ("sum", "max", "min") if kind != reduction])
    side["type"] = f"{whole} {other}{{{','.join(axes)}}}"
    return True


@breaking
def another_partial_axis(rng: random.Random, form: Form) -> bool:
    """Tiles of a type are summands along one axis more or less."""
    side = form[rng.choice(("source", "target"))]
    whole, reduction, axes = summands(side["type"])
    names = [name for name, _ in side["mesh"]["axes"] if name not in whole]
    if not names or not is_partial(form):
        return False
    axes = sorted(set(axes) ^ {rng.choice(names)})
    side["type"] = f"{whole} {reduction}{{{','.join(axes)}}}" if axes else whole
    return True


@breaking
def moved_split(rng: random.Random, form: Form) -> bool:
    step = any_step(rng, form, "reduce_exchange")
    if step is None:
        return False
    step["splits"][rng.randrange(len(step["splits"]))] += rng.choice((-1, 1))
    return True


@breaking
def another_splits(rng: random.Random, form: Form) -> bool:
    """All summands make the first or the last one."""
    step = any_step(rng, form, "reduce_exchange")
    if step is None or len(step["splits"]) < 3:
        return False
    end = rng.choice((step["splits"][0], step["splits"][-1]))
    step["splits"][1:-1] = [end] * (len(step["splits"]) - 2)
    return True


@breaking
def another_keeps(rng: random.Random, form: Form) -> bool:
    """One device more, less or in the place of another keeps what it held."""
    step = any_step(rng, form, "unreduce")
    if step is None:
        return False
    keeps = set(step["keeps"])
    way = rng.choice(("less", "more", "instead", "outsider", "twice"))
    if way in ("less", "instead") and keeps:
        lost = rng.choice(sorted(keeps))
        keeps.remove(lost)
        if way == "instead":
            keeps.add(other_device(rng, form, lost))
    elif way == "more":
        keeps.add(rng.randrange(devices(form)))
    elif way == "outsider":
        keeps.add(outsider(rng, form))
    step["keeps"] = sorted(keeps)
    if way == "twice" and keeps:
        step["keeps"].insert(0, step["keeps"][0])
    return True
