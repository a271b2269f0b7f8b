"""Changes to types, meshes, placements and the order of steps."""

from __future__ import annotations

import copy
import math
import random

from proofs.bridge.change import Change, any_step, breaking, holders
from proofs.bridge.export import Form, dimensions, summands

# ------------------------------------------------------------------------------------------------- types


def _write(form: Form, side: str, dims: list[tuple[int, list[str], int]]) -> None:
    texts = [f"{tile}{{{','.join(axes)}}}{size}" if axes or tile != size else str(size) for tile, axes, size in dims]
    whole = summands(form[side]["type"])[0]
    form[side]["type"] = "[" + ", ".join(texts) + "]" + form[side]["type"][len(whole) :]


def _retype(side: str) -> Change:
    def change(rng: random.Random, form: Form) -> bool:
        """Another well-formed type of the same array on the same mesh."""
        sizes = dict(form[side]["mesh"]["axes"])
        dims = dimensions(summands(form[side]["type"])[0])
        names = [name for _, axes, _ in dims for name in axes] + summands(form[side]["type"])[2]
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


breaking(_retype("source"))
breaking(_retype("target"))


@breaking
def malformed_type(rng: random.Random, form: Form) -> bool:
    side = rng.choice(("source", "target"))
    dims = dimensions(summands(form[side]["type"])[0])
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


@breaking
def device_order(rng: random.Random, form: Form) -> bool:
    devices = form[rng.choice(("source", "target"))]["mesh"]["devices"]
    if len(devices) < 2:
        return False
    a, b = rng.sample(range(len(devices)), 2)
    devices[a], devices[b] = devices[b], devices[a]
    return True


@breaking
def device_twice_in_mesh(rng: random.Random, form: Form) -> bool:
    devices = form[rng.choice(("source", "target"))]["mesh"]["devices"]
    devices[0] = devices[-1]
    return True


@breaking
def other_axis_size(rng: random.Random, form: Form) -> bool:
    axes = form[rng.choice(("source", "target"))]["mesh"]["axes"]
    axis = rng.choice(axes)
    axis[1] += rng.choice((-1, 1))
    return True


# -------------------------------------------------------------------------------------------- placements


@breaking
def moved_tile(rng: random.Random, form: Form) -> bool:
    """One device under one placement holds another tile, or one outside the grid."""
    placement = rng.choice(form["placements"]) if form["placements"] else None
    if placement is None or not placement["grid"]:
        return False
    row = rng.choice(placement["index"])
    i = rng.randrange(len(row))
    row[i] += rng.choice((-1, 1))
    return True


@breaking
def swapped_tiles(rng: random.Random, form: Form) -> bool:
    """Two devices exchange their tiles under one placement: a wrong `after`, or a wrong start."""
    placement = rng.choice(form["placements"]) if form["placements"] else None
    if placement is None or len(placement["index"]) < 2:
        return False
    a, b = rng.sample(range(len(placement["index"])), 2)
    index = placement["index"]
    index[a], index[b] = index[b], index[a]
    return True


@breaking
def other_grid(rng: random.Random, form: Form) -> bool:
    placement = rng.choice(form["placements"]) if form["placements"] else None
    if placement is None or not placement["grid"]:
        return False
    i = rng.randrange(len(placement["grid"]))
    count = placement["grid"][i]
    placement["grid"][i] = rng.choice((count * 2, count + 1, max(1, count // 2), 0, -count))
    return True


@breaking
def lost_row(rng: random.Random, form: Form) -> bool:
    if not form["placements"]:
        return False
    rng.choice(form["placements"])["index"].pop()
    return True


# ------------------------------------------------------------------------------------------ steps in order


@breaking
def dropped_step(rng: random.Random, form: Form) -> bool:
    if not form["steps"]:
        return False
    form["steps"].pop(rng.randrange(len(form["steps"])))
    return True


@breaking
def repeated_step(rng: random.Random, form: Form) -> bool:
    if not form["steps"]:
        return False
    at = rng.randrange(len(form["steps"]))
    form["steps"].insert(at, copy.deepcopy(form["steps"][at]))
    return True


@breaking
def steps_out_of_order(rng: random.Random, form: Form) -> bool:
    if len(form["steps"]) < 2:
        return False
    form["steps"].reverse()
    return True


@breaking
def wrong_after(rng: random.Random, form: Form) -> bool:
    step = any_step(rng, form)
    if step is None:
        return False
    step[rng.choice(("before", "after"))] = rng.randrange(-1, len(form["placements"]) + 1)
    return True


@breaking
def wrong_kind(rng: random.Random, form: Form) -> bool:
    """A gather called an exchange among all, and the like."""
    step = any_step(rng, form, "allgather", "alltoall", "reduce_scatter", "all_reduce")
    if step is None:
        return False
    others = {
        "allgather": "alltoall", "alltoall": "allgather", "reduce_scatter": "all_reduce", "all_reduce": "reduce_scatter"
    }  # fmt: skip
    step["kind"] = others[step["kind"]]
    step.pop("implementation", None)
    if step["kind"] == "reduce_scatter":
        step["implementation"] = "native"
    return True


@breaking
def nothing_but_a_slice(rng: random.Random, form: Form) -> bool:
    step = any_step(rng, form)
    if step is None or step["kind"] == "dynslice":
        return False
    for field in set(step) - {"before", "after"}:
        del step[field]
    step["kind"] = "dynslice"
    return True


@breaking
def oversized_tile(rng: random.Random, form: Form) -> bool:
    """A detour over the whole array on every device: gathered at the end, then sliced again."""
    if not form["steps"]:
        return False
    last = form["steps"][-1]["after"]
    end = form["placements"][last]
    groups: dict[int, list[int]] = {}
    cells: dict[tuple[int, ...], list[int]] = {}
    for device in holders(end):
        cells.setdefault(tuple(end["index"][device]), []).append(device)
    if len(cells) < math.prod(end["grid"]) or len({len(same) for same in cells.values()}) > 1:
        return False
    for _, same in sorted(cells.items()):
        for k, device in enumerate(same):
            groups.setdefault(k, []).append(device)
    index = [[min(k, 0) for k in row] for row in end["index"]]  # who holds nothing still does
    form["placements"].append({"grid": [1] * len(end["grid"]), "index": index})
    whole = len(form["placements"]) - 1
    form["steps"] += [
        {"kind": "allgather", "before": last, "after": whole, "groups": list(groups.values())},
        {"kind": "dynslice", "before": whole, "after": last},
    ]
    return True
