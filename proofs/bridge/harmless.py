"""Changes that must not matter: the verdict stays."""

from __future__ import annotations

import copy
import random

from proofs.bridge.change import any_groups, any_pairs, any_shares, any_step, harmless, holders, replicas
from proofs.bridge.export import Form, summands


@harmless
def groups_in_another_order(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form, 2)
    if groups is None:
        return False
    rng.shuffle(groups)
    return True


@harmless
def pairs_in_another_order(rng: random.Random, form: Form) -> bool:
    pairs = any_pairs(rng, form)
    if pairs is None:
        return False
    rng.shuffle(pairs)
    return True


@harmless
def shares_in_another_order(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None:
        return False
    rng.shuffle(shares)
    return True


@harmless
def rounds_in_another_order(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None:
        return False
    rounds = list(range(1 + max(share[2] for share in shares)))
    rng.shuffle(rounds)
    for share in shares:
        share[2] = rounds[share[2]]
    return True


@harmless
def share_in_two_parts(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None or not shares[0][4]:
        return False
    share = rng.choice(shares)
    i = max(range(len(share[4])), key=share[4].__getitem__)
    half = share[4][i] // 2
    alone = sum(other[2] == share[2] for other in shares) == 1
    if half == 0 or alone:
        return False
    rounds = 1 + max(other[2] for other in shares)
    second = copy.deepcopy(share)
    share[2], share[4][i] = rounds, half
    second[2], second[3][i], second[4][i] = rounds + 1, second[3][i] + half, second[4][i] - half
    shares.append(second)
    return True


@harmless
def ragged_exchange(rng: random.Random, form: Form) -> bool:
    step = any_step(rng, form, "exchange", "reduce_exchange")
    if step is None:
        return False
    step["implementation" if form.get("version", 1) > 1 else "realisation"] = "ragged"
    return True


@harmless
def detour_over_a_permute(rng: random.Random, form: Form) -> bool:
    """There and back again: the tiles go round by one device, and home."""
    if not form["steps"]:
        return False
    last = form["steps"][-1]["after"]
    placement, away = copy.deepcopy(form["placements"][last]), len(form["placements"])
    holds = holders(placement)
    if len(holds) < 2:
        return False
    there = [[d, holds[(k + 1) % len(holds)]] for k, d in enumerate(holds)]
    form["placements"].append(placement)
    for name in {"index", "summand"} & set(placement):
        held = list(placement[name])
        for sender, receiver in there:
            placement[name][receiver] = held[sender]
    form["steps"] += [
        {"kind": "allpermute", "before": last, "after": away, "pairs": there},
        {"kind": "allpermute", "before": away, "after": last, "pairs": [pair[::-1] for pair in there]},
    ]
    return True


@harmless
def replicas_change_groups(rng: random.Random, form: Form) -> bool:
    """Two devices that hold the same tile change places: their new tiles lie in one cell too."""
    step = any_step(rng, form, "allgather", "alltoall")
    if step is None:
        return False
    places = {device: (group, i) for group in step["groups"] for i, device in enumerate(group)}
    for device in rng.sample(sorted(places), len(places)):
        others = replicas(form, step, device)
        if others:
            other = rng.choice(others)
            (group, i), (another, j) = places[device], places[other]
            group[i], another[j] = other, device
            return True
    return False


@harmless
def partial_axes_in_another_order(rng: random.Random, form: Form) -> bool:
    """The summands of a type get other numbers, which mean nothing."""
    side = form[rng.choice(("source", "target"))]
    whole, reduction, axes = summands(side["type"])
    if len(axes) < 2:
        return False
    side["type"] = f"{whole} {reduction}{{{','.join(axes[::-1])}}}"
    return True
