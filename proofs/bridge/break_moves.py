"""Changes to who takes part in a step: groups, pairs and shares."""

from __future__ import annotations

import copy
import random

from proofs.bridge.change import (
    any_groups,
    any_pairs,
    any_shares,
    any_step,
    breaking,
    devices,
    other_device,
    outsider,
    replicas,
)
from proofs.bridge.export import Form

# ---------------------------------------------------------------------------------------------- groups


@breaking
def members_change_groups(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form, 2)
    if groups is None:
        return False
    one, other = rng.sample(groups, 2)
    i, j = rng.randrange(len(one)), rng.randrange(len(other))
    one[i], other[j] = other[j], one[i]
    return True


@breaking
def members_out_of_order(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form)
    if groups is None:
        return False
    rng.shuffle(rng.choice(groups))
    return True


@breaking
def device_twice_in_groups(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form)
    if groups is None:
        return False
    group = rng.choice(groups)
    i = rng.randrange(len(group))
    group[i] = other_device(rng, form, group[i])
    return True


@breaking
def lost_group(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form, 2)
    if groups is None:
        return False
    groups.pop(rng.randrange(len(groups)))
    return True


@breaking
def lost_member(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form)
    if groups is None:
        return False
    if rng.random() < 0.5:
        rng.choice(groups).pop()
    else:
        for group in groups:
            group.pop()
    return True


@breaking
def merged_groups(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form, 2)
    if groups is None or len(groups) % 2:
        return False
    groups[:] = [one + other for one, other in zip(groups[::2], groups[1::2], strict=True)]
    return True


@breaking
def outsider_in_group(rng: random.Random, form: Form) -> bool:
    groups = any_groups(rng, form)
    if groups is None:
        return False
    group = rng.choice(groups)
    group[rng.randrange(len(group))] = outsider(rng, form)
    return True


# ----------------------------------------------------------------------------------------------- pairs


@breaking
def swapped_receivers(rng: random.Random, form: Form) -> bool:
    pairs = any_pairs(rng, form)
    if pairs is None or len(pairs) < 2:
        return False
    one, other = rng.sample(pairs, 2)
    one[1], other[1] = other[1], one[1]
    return True


@breaking
def turned_pair(rng: random.Random, form: Form) -> bool:
    pairs = any_pairs(rng, form)
    if pairs is None:
        return False
    rng.choice(pairs).reverse()
    return True


@breaking
def lost_pair(rng: random.Random, form: Form) -> bool:
    pairs = any_pairs(rng, form)
    if pairs is None:
        return False
    pairs.pop(rng.randrange(len(pairs)))
    return True


@breaking
def sends_to_itself(rng: random.Random, form: Form) -> bool:
    """A pair or share from a device to itself, in the place of another or besides."""
    pairs = any_pairs(rng, form)
    if pairs is not None:
        idle = [d for d in range(devices(form)) if all(d not in pair for pair in pairs)]
        if idle and rng.random() < 0.5:
            pairs.append([idle[0], idle[0]])
        else:
            pair = rng.choice(pairs)
            pair[0] = pair[1]
        return True
    shares = any_shares(rng, form)
    if shares is None:
        return False
    share = rng.choice(shares)
    share[0] = share[1]
    return True


@breaking
def other_end_of_pair(rng: random.Random, form: Form) -> bool:
    """A wrong sender or receiver; often one that is taken, so that a device sends or receives twice."""
    pairs = any_pairs(rng, form)
    if pairs is None:
        return False
    pair, end = rng.choice(pairs), rng.randrange(2)
    pair[end] = outsider(rng, form) if rng.random() < 0.2 else other_device(rng, form, pair[end])
    return True


# ---------------------------------------------------------------------------------------------- shares


@breaking
def moved_share(rng: random.Random, form: Form) -> bool:
    """Out of the sender's tile, out of the receiver's, or over another share."""
    shares = any_shares(rng, form)
    if shares is None or not shares[0][4]:
        return False
    share = rng.choice(shares)
    i = rng.randrange(len(share[3]))
    share[3][i] += rng.choice((-1, 1)) * rng.choice((1, share[4][i]))
    return True


@breaking
def resized_share(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None or not shares[0][4]:
        return False
    share = rng.choice(shares)
    size, i = share[4], rng.randrange(len(share[4]))
    size[i] = rng.choice((size[i] + 1, size[i] - 1, size[i] * 2, 0))
    return True


@breaking
def resized_round(rng: random.Random, form: Form) -> bool:
    """All shares grow or shrink alike, so that what is padded stays as it was."""
    shares = any_shares(rng, form)
    if shares is None or not shares[0][4]:
        return False
    i, by = rng.randrange(len(shares[0][4])), rng.choice((-1, 1))
    for share in shares:
        share[4][i] += by
    return True


@breaking
def lost_share(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None:
        return False
    shares.pop(rng.randrange(len(shares)))
    return True


@breaking
def share_sent_twice(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None:
        return False
    again = copy.deepcopy(rng.choice(shares))
    again[2] = 1 + max(share[2] for share in shares)
    shares.append(again)
    return True


@breaking
def other_end_of_share(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None:
        return False
    share, end = rng.choice(shares), rng.randrange(2)
    share[end] = outsider(rng, form) if rng.random() < 0.2 else other_device(rng, form, share[end])
    return True


@breaking
def crowded_round(rng: random.Random, form: Form) -> bool:
    """A share travels in a round in which its sender or receiver is busy, or that does not exist."""
    shares = any_shares(rng, form)
    if shares is None:
        return False
    share = rng.choice(shares)
    share[2] = rng.randrange(-1, 2 + max(share[2] for share in shares))
    return True


@breaking
def gap_in_rounds(rng: random.Random, form: Form) -> bool:
    shares = any_shares(rng, form)
    if shares is None:
        return False
    after = rng.randrange(1 + max(share[2] for share in shares))
    for share in shares:
        share[2] += share[2] >= after
    return True


# --------------------------------------------- changes that leave the data right, and perhaps the plan


@breaking
def another_holder_sends(rng: random.Random, form: Form) -> bool:
    """A sender is replaced by another that holds the same tile; wrong where that one is busy."""
    step = any_step(rng, form, "allpermute", "exchange")
    if step is None:
        return False
    moves = step["pairs"] if step["kind"] == "allpermute" else step["shares"]
    for move in rng.sample(moves, len(moves)):
        others = [device for device in replicas(form, step, move[0]) if device != move[1]]
        if others:
            busy = [device for device in others if any(other[0] == device for other in moves)]
            move[0] = rng.choice(busy or others)
            return True
    return False


@breaking
def pair_named_twice(rng: random.Random, form: Form) -> bool:
    pairs = any_pairs(rng, form)
    if pairs is None:
        return False
    pairs.append(list(rng.choice(pairs)))
    return True
