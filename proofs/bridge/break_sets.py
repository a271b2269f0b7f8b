"""Changes to who holds nothing: devices of meshes, rows of placements, senders without data."""

from __future__ import annotations

import random

from proofs.bridge.change import any_step, breaking, devices, holders
from proofs.bridge.export import Form, is_between_sets


@breaking
def another_device_in_mesh(rng: random.Random, form: Form) -> bool:
    """A mesh has a device that it had not, in the place of another."""
    mesh = form[rng.choice(("source", "target"))]["mesh"]["devices"]
    others = [device for device in range(devices(form)) if device not in mesh]
    if not is_between_sets(form) or not others:
        return False
    mesh[rng.randrange(len(mesh))] = rng.choice(others)
    return True


@breaking
def tile_taken_away(rng: random.Random, form: Form) -> bool:
    """Under one placement a device holds nothing."""
    placement = rng.choice(form["placements"]) if is_between_sets(form) and form["placements"] else None
    if placement is None or not holders(placement):
        return False
    device = rng.choice(holders(placement))
    placement["index"][device] = [-1] * len(placement["grid"])
    return True


@breaking
def tile_out_of_nothing(rng: random.Random, form: Form) -> bool:
    """Under one placement a device holds a tile that held nothing."""
    placement = rng.choice(form["placements"]) if is_between_sets(form) and form["placements"] else None
    if placement is None:
        return False
    empty = sorted(set(range(len(placement["index"]))) - set(holders(placement)))
    if not empty or not holders(placement):
        return False
    placement["index"][rng.choice(empty)] = list(placement["index"][rng.choice(holders(placement))])
    return True


@breaking
def half_of_a_row_missing(rng: random.Random, form: Form) -> bool:
    """A tile index of which only a part says that there is nothing."""
    placement = rng.choice(form["placements"]) if is_between_sets(form) and form["placements"] else None
    if placement is None or len(placement["grid"]) < 2:
        return False
    row = rng.choice(placement["index"])
    row[rng.randrange(len(row))] = 0 if row[0] == -1 else -1
    return True


@breaking
def sender_without_data(rng: random.Random, form: Form) -> bool:
    step = any_step(rng, form, "exchange", "allpermute") if is_between_sets(form) else None
    if step is None:
        return False
    moves = step["shares"] if step["kind"] == "exchange" else step["pairs"]
    empty = sorted(set(range(devices(form))) - set(holders(form["placements"][step["before"]])))
    if not moves or not empty:
        return False
    rng.choice(moves)[0] = rng.choice(empty)
    return True
