"""Seeded changes to a plan's JSON form: those that break it, and those that must not matter.

Every change is a function of a random generator and a form that it may alter, False where it does not apply. A change
meant to break a plan now and then makes another correct plan; so nothing here says what the verdict must be,
only `HARMLESS` changes keep a correct plan correct.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

from proofs.bridge.export import Form, dimensions

Change = Callable[[random.Random, Form], bool]

BREAKING: dict[str, Change] = {}
HARMLESS: dict[str, Change] = {}


def _breaking(change: Change) -> Change:
    BREAKING[change.__name__] = change
    return change


def _harmless(change: Change) -> Change:
    HARMLESS[change.__name__] = change
    return change


def changed(change: Change, rng: random.Random, form: Form) -> Form | None:
    """The changed form; None where the change does not apply or changes nothing."""
    made = copy.deepcopy(form)
    return made if change(rng, made) and made != form else None


def _step(rng: random.Random, form: Form, *kinds: str) -> Form | None:
    steps = [step for step in form["steps"] if not kinds or step["kind"] in kinds]
    return rng.choice(steps) if steps else None


def _groups(rng: random.Random, form: Form, least: int = 1) -> list[list[int]] | None:
    step = _step(rng, form, "allgather", "alltoall")
    return step["groups"] if step and len(step["groups"]) >= least else None


def _pairs(rng: random.Random, form: Form) -> list[list[int]] | None:
    step = _step(rng, form, "allpermute")
    return step["pairs"] if step and step["pairs"] else None


def _shares(rng: random.Random, form: Form) -> list[list[Any]] | None:
    step = _step(rng, form, "exchange")
    return step["shares"] if step and step["shares"] else None


def _count(form: Form) -> int:
    return len(form["source"]["mesh"]["devices"])


def _other(rng: random.Random, form: Form, device: int) -> int:
    return (device + rng.randrange(1, max(2, _count(form)))) % _count(form)


def _outsider(rng: random.Random, form: Form) -> int:
    return rng.choice((-1, _count(form), _count(form) + rng.randrange(1, 2**40)))


# ------------------------------------------------------------------------------------------------- types


def _write(form: Form, side: str, dims: list[tuple[int, list[str], int]]) -> None:
    texts = [f"{tile}{{{','.join(axes)}}}{size}" if axes or tile != size else str(size) for tile, axes, size in dims]
    form[side]["type"] = "[" + ", ".join(texts) + "]"


def _retype(side: str) -> Change:
    def change(rng: random.Random, form: Form) -> bool:
        """Another well-formed type of the same array on the same mesh."""
        sizes = dict(form[side]["mesh"]["axes"])
        dims = dimensions(form[side]["type"])
        names = [name for _, axes, _ in dims for name in axes]
        unused = [name for name in sizes if name not in names]
        i = rng.randrange(len(dims)) if dims else 0
        if not dims:
            return False
        tile, axes, size = dims[i]
        way = rng.choice(("drop", "add", "swap"))
        if way == "drop" and axes:
            name = axes.pop(rng.randrange(len(axes)))
            dims[i] = (tile * sizes[name], axes, size)
        elif way == "add" and unused and tile % sizes[unused[0]] == 0:
            dims[i] = (tile // sizes[unused[0]], [*axes, unused[0]], size)
        elif way == "swap" and len(axes) > 1:
            axes.reverse()
        else:
            return False
        _write(form, side, dims)
        return True

    change.__name__ = f"wrong_{side}"
    return change


_breaking(_retype("source"))
_breaking(_retype("target"))


@_breaking
def malformed_type(rng: random.Random, form: Form) -> bool:
    side = rng.choice(("source", "target"))
    dims = dimensions(form[side]["type"])
    if not dims:
        return False
    i = rng.randrange(len(dims))
    tile, axes, size = dims[i]
    match rng.choice(("tile", "size", "axis", "again")):
        case "tile":
            dims[i] = (tile + 1, axes, size)
        case "size":
            dims[i] = (tile, axes, size + tile)
        case "axis":
            dims[i] = (tile, [*axes, "w"], size)
        case "again" if axes:
            dims[i] = (tile, [*axes, axes[0]], size)
    _write(form, side, dims)
    return True


@_breaking
def device_order(rng: random.Random, form: Form) -> bool:
    devices = form[rng.choice(("source", "target"))]["mesh"]["devices"]
    if len(devices) < 2:
        return False
    a, b = rng.sample(range(len(devices)), 2)
    devices[a], devices[b] = devices[b], devices[a]
    return True


@_breaking
def device_twice_in_mesh(rng: random.Random, form: Form) -> bool:
    devices = form[rng.choice(("source", "target"))]["mesh"]["devices"]
    devices[0] = devices[-1]
    return True


@_breaking
def other_axis_size(rng: random.Random, form: Form) -> bool:
    axes = form[rng.choice(("source", "target"))]["mesh"]["axes"]
    axis = rng.choice(axes)
    axis[1] += rng.choice((-1, 1))
    return True


# -------------------------------------------------------------------------------------------- placements


@_breaking
def moved_tile(rng: random.Random, form: Form) -> bool:
    """One device under one placement holds another tile, or one outside the grid."""
    placement = rng.choice(form["placements"]) if form["placements"] else None
    if placement is None or not placement["grid"]:
        return False
    row = rng.choice(placement["index"])
    i = rng.randrange(len(row))
    row[i] += rng.choice((-1, 1))
    return True


@_breaking
def swapped_tiles(rng: random.Random, form: Form) -> bool:
    """Two devices exchange their tiles under one placement: a wrong `after`, or a wrong start."""
    placement = rng.choice(form["placements"]) if form["placements"] else None
    if placement is None or len(placement["index"]) < 2:
        return False
    a, b = rng.sample(range(len(placement["index"])), 2)
    index = placement["index"]
    index[a], index[b] = index[b], index[a]
    return True


@_breaking
def other_grid(rng: random.Random, form: Form) -> bool:
    placement = rng.choice(form["placements"]) if form["placements"] else None
    if placement is None or not placement["grid"]:
        return False
    i = rng.randrange(len(placement["grid"]))
    count = placement["grid"][i]
    placement["grid"][i] = rng.choice((count * 2, count + 1, max(1, count // 2), 0, -count))
    return True


@_breaking
def lost_row(rng: random.Random, form: Form) -> bool:
    if not form["placements"]:
        return False
    rng.choice(form["placements"])["index"].pop()
    return True


# ------------------------------------------------------------------------------------------ steps in order


@_breaking
def dropped_step(rng: random.Random, form: Form) -> bool:
    if not form["steps"]:
        return False
    form["steps"].pop(rng.randrange(len(form["steps"])))
    return True


@_breaking
def repeated_step(rng: random.Random, form: Form) -> bool:
    if not form["steps"]:
        return False
    at = rng.randrange(len(form["steps"]))
    form["steps"].insert(at, copy.deepcopy(form["steps"][at]))
    return True


@_breaking
def steps_out_of_order(rng: random.Random, form: Form) -> bool:
    if len(form["steps"]) < 2:
        return False
    form["steps"].reverse()
    return True


@_breaking
def wrong_after(rng: random.Random, form: Form) -> bool:
    step = _step(rng, form)
    if step is None:
        return False
    step[rng.choice(("before", "after"))] = rng.randrange(-1, len(form["placements"]) + 1)
    return True


@_breaking
def wrong_kind(rng: random.Random, form: Form) -> bool:
    """A gather called an exchange among all, and the like."""
    step = _step(rng, form, "allgather", "alltoall")
    if step is None:
        return False
    step["kind"] = "alltoall" if step["kind"] == "allgather" else "allgather"
    return True


@_breaking
def nothing_but_a_slice(rng: random.Random, form: Form) -> bool:
    step = _step(rng, form, "allgather", "alltoall", "allpermute", "exchange")
    if step is None:
        return False
    for field in set(step) - {"before", "after"}:
        del step[field]
    step["kind"] = "dynslice"
    return True


@_breaking
def oversized_tile(rng: random.Random, form: Form) -> bool:
    """A detour over the whole array on every device: gathered at the end, then sliced again."""
    if not form["steps"]:
        return False
    last = form["steps"][-1]["after"]
    end = form["placements"][last]
    groups: dict[int, list[int]] = {}
    cells: dict[tuple[int, ...], list[int]] = {}
    for device, row in enumerate(end["index"]):
        cells.setdefault(tuple(row), []).append(device)
    if len(cells) < math.prod(end["grid"]) or len({len(same) for same in cells.values()}) > 1:
        return False
    for _, same in sorted(cells.items()):
        for k, device in enumerate(same):
            groups.setdefault(k, []).append(device)
    form["placements"].append({"grid": [1] * len(end["grid"]), "index": [[0] * len(row) for row in end["index"]]})
    whole = len(form["placements"]) - 1
    form["steps"] += [
        {"kind": "allgather", "before": last, "after": whole, "groups": list(groups.values())},
        {"kind": "dynslice", "before": whole, "after": last},
    ]
    return True


# ---------------------------------------------------------------------------------------------- groups


@_breaking
def members_change_groups(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form, 2)
    if groups is None:
        return False
    one, other = rng.sample(groups, 2)
    i, j = rng.randrange(len(one)), rng.randrange(len(other))
    one[i], other[j] = other[j], one[i]
    return True


@_breaking
def members_out_of_order(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form)
    if groups is None:
        return False
    rng.shuffle(rng.choice(groups))
    return True


@_breaking
def device_twice_in_groups(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form)
    if groups is None:
        return False
    group = rng.choice(groups)
    i = rng.randrange(len(group))
    group[i] = _other(rng, form, group[i])
    return True


@_breaking
def lost_group(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form, 2)
    if groups is None:
        return False
    groups.pop(rng.randrange(len(groups)))
    return True


@_breaking
def lost_member(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form)
    if groups is None:
        return False
    if rng.random() < 0.5:
        rng.choice(groups).pop()
    else:
        for group in groups:
            group.pop()
    return True


@_breaking
def merged_groups(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form, 2)
    if groups is None or len(groups) % 2:
        return False
    groups[:] = [one + other for one, other in zip(groups[::2], groups[1::2], strict=True)]
    return True


@_breaking
def outsider_in_group(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form)
    if groups is None:
        return False
    group = rng.choice(groups)
    group[rng.randrange(len(group))] = _outsider(rng, form)
    return True


# ----------------------------------------------------------------------------------------------- pairs


@_breaking
def swapped_receivers(rng: random.Random, form: Form) -> bool:
    pairs = _pairs(rng, form)
    if pairs is None or len(pairs) < 2:
        return False
    one, other = rng.sample(pairs, 2)
    one[1], other[1] = other[1], one[1]
    return True


@_breaking
def turned_pair(rng: random.Random, form: Form) -> bool:
    pairs = _pairs(rng, form)
    if pairs is None:
        return False
    rng.choice(pairs).reverse()
    return True


@_breaking
def lost_pair(rng: random.Random, form: Form) -> bool:
    pairs = _pairs(rng, form)
    if pairs is None:
        return False
    pairs.pop(rng.randrange(len(pairs)))
    return True


@_breaking
def sends_to_itself(rng: random.Random, form: Form) -> bool:
    """A pair or share from a device to itself, in the place of another or besides."""
    pairs = _pairs(rng, form)
    if pairs is not None:
        idle = [d for d in range(_count(form)) if all(d not in pair for pair in pairs)]
        if idle and rng.random() < 0.5:
            pairs.append([idle[0], idle[0]])
        else:
            pair = rng.choice(pairs)
            pair[0] = pair[1]
        return True
    shares = _shares(rng, form)
    if shares is None:
        return False
    share = rng.choice(shares)
    share[0] = share[1]
    return True


@_breaking
def other_end_of_pair(rng: random.Random, form: Form) -> bool:
    """A wrong sender or receiver; often one that is taken, so that a device sends or receives twice."""
    pairs = _pairs(rng, form)
    if pairs is None:
        return False
    pair, end = rng.choice(pairs), rng.randrange(2)
    pair[end] = _outsider(rng, form) if rng.random() < 0.2 else _other(rng, form, pair[end])
    return True


# ---------------------------------------------------------------------------------------------- shares


@_breaking
def moved_share(rng: random.Random, form: Form) -> bool:
    """Out of the sender's tile, out of the receiver's, or over another share."""
    shares = _shares(rng, form)
    if shares is None:
        return False
    share = rng.choice(shares)
    i = rng.randrange(len(share[3]))
    share[3][i] += rng.choice((-1, 1)) * rng.choice((1, share[4][i]))
    return True


@_breaking
def resized_share(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
        return False
    share = rng.choice(shares)
    size, i = share[4], rng.randrange(len(share[4]))
    size[i] = rng.choice((size[i] + 1, size[i] - 1, size[i] * 2, 0))
    return True


@_breaking
def resized_round(rng: random.Random, form: Form) -> bool:
    """All shares grow or shrink alike, so that rounds stay of one size."""
    shares = _shares(rng, form)
    if shares is None:
        return False
    i, by = rng.randrange(len(shares[0][4])), rng.choice((-1, 1))
    for share in shares:
        share[4][i] += by
    return True


@_breaking
def lost_share(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
        return False
    shares.pop(rng.randrange(len(shares)))
    return True


@_breaking
def share_sent_twice(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
        return False
    again = copy.deepcopy(rng.choice(shares))
    again[2] = 1 + max(share[2] for share in shares)
    shares.append(again)
    return True


@_breaking
def other_end_of_share(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
        return False
    share, end = rng.choice(shares), rng.randrange(2)
    share[end] = _outsider(rng, form) if rng.random() < 0.2 else _other(rng, form, share[end])
    return True


@_breaking
def crowded_round(rng: random.Random, form: Form) -> bool:
    """A share travels in a round in which its sender or receiver is busy, or that does not exist."""
    shares = _shares(rng, form)
    if shares is None:
        return False
    share = rng.choice(shares)
    share[2] = rng.randrange(-1, 2 + max(share[2] for share in shares))
    return True


@_breaking
def gap_in_rounds(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
        return False
    after = rng.randrange(1 + max(share[2] for share in shares))
    for share in shares:
        share[2] += share[2] >= after
    return True


# -------------------------------------------------------------------------------- what must not matter


@_harmless
def groups_in_another_order(rng: random.Random, form: Form) -> bool:
    groups = _groups(rng, form, 2)
    if groups is None:
        return False
    rng.shuffle(groups)
    return True


@_harmless
def pairs_in_another_order(rng: random.Random, form: Form) -> bool:
    pairs = _pairs(rng, form)
    if pairs is None:
        return False
    rng.shuffle(pairs)
    return True


@_harmless
def shares_in_another_order(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
        return False
    rng.shuffle(shares)
    return True


@_harmless
def rounds_in_another_order(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
        return False
    rounds = list(range(1 + max(share[2] for share in shares)))
    rng.shuffle(rounds)
    for share in shares:
        share[2] = rounds[share[2]]
    return True


@_harmless
def share_in_two_parts(rng: random.Random, form: Form) -> bool:
    shares = _shares(rng, form)
    if shares is None:
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


@_harmless
def ragged_exchange(rng: random.Random, form: Form) -> bool:
    step = _step(rng, form, "exchange")
    if step is None:
        return False
    step["realisation"] = "ragged"
    return True


@_harmless
def detour_over_a_permute(rng: random.Random, form: Form) -> bool:
    """There and back again: the tiles go round by one device, and home."""
    if not form["steps"]:
        return False
    last, count = form["steps"][-1]["after"], _count(form)
    if count < 2:
        return False
    index = form["placements"][last]["index"]
    away = len(form["placements"])
    form["placements"].append({"grid": list(form["placements"][last]["grid"]), "index": index[-1:] + index[:-1]})
    there = [[d, (d + 1) % count] for d in range(count)]
    form["steps"] += [
        {"kind": "allpermute", "before": last, "after": away, "pairs": there},
        {"kind": "allpermute", "before": away, "after": last, "pairs": [pair[::-1] for pair in there]},
    ]
    return True
