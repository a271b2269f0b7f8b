"""Is a step right whose tiles are summands? Every box must be made of all summands that its reduction asks for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NoReturn

import numpy as np

from redistrib.errors import VerificationError
from redistrib.errors.base import shown
from redistrib.plans._cover import cut_dimensions, first_not_filled_once, times_covered, wrong_cell
from redistrib.plans._evidence import box, check_numbers, fail_grids, first, held
from redistrib.plans.steps import (
    AllReduce,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Shares,
    Step,
    Unreduce,
)
from redistrib.plans.verify_exchange import check_shares
from redistrib.plans.verify_groups import check_groups
from redistrib.theory.placement import Int64, Placement, number_of

_MOST_CELLS = 2**24  # between the borders of boxes, over all devices: some seconds


def as_slabs(number: int, step: Step) -> Step:
    """A step that only moves summands, as one that moves slabs of their stack; the step itself where tiles are whole.

    Raises:
        VerificationError: if the summands before are not those after.
    """
    before, after = step.before, step.after
    if before.summands == after.summands == 1:
        return step
    if (before.summands, before.reduction) != (after.summands, after.reduction):
        _fail_count(number, step, "it moves summands and makes none, so both must be equal")
    if isinstance(step, Exchange):
        step = replace(step, shares=_slabs(step.shares, before))
    return replace(step, before=before.stacked(), after=after.stacked())


def _slabs(shares: Shares, before: Placement) -> Shares:
    """Shares with the summand that their sender holds as their first coordinate, where they have any."""
    if shares.start.ndim != 2 or shares.size.ndim != 2:
        return shares
    src = np.where((shares.src >= 0) & (shares.src < before.devices), shares.src, 0)
    summand = before.label[src][:, None]
    start = np.concatenate([summand, shares.start], axis=1)
    size = np.concatenate([np.ones_like(summand), shares.size], axis=1)
    return Shares(shares.src, shares.dst, start, size, shares.round)


def check_reduction(number: int, step: ReduceScatter | AllReduce) -> None:
    """Check a reduction over groups: grids, members, and that each group has the summands of one run, every one once.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after, groups = step.before, step.after, step.groups
    members = step.group_size
    if before.summands != members * after.summands or (after.summands > 1 and before.reduction != after.reduction):
        _fail_count(number, step, f"groups of {members} make one summand of {members}")
    check_groups(number, step)
    if any(a % b for b, a in zip(before.grid, after.grid, strict=True)):
        why = "members keep equal parts of the sum, so each count must be a multiple of the one before"
        fail_grids(number, step, "slice grid", why)
    parts = tuple(a // b for b, a in zip(before.grid, after.grid, strict=True))
    expected = members if isinstance(step, ReduceScatter) else 1
    if np.prod(parts, dtype=object) != expected:
        raise VerificationError(
            "group size",
            f"step {number} ({step.kind}) has groups of {members}, but goes from the grid {before.grid} to "
            f"{after.grid}; it cuts each tile into {expected}",
            number,
            members=members,
            parts=parts,
        )
    for found in (before.index[groups], after.coarse(before.grid)[groups]):
        stray = (found != before.index[groups[:, :1]]).any(axis=2)
        if stray.any():
            group, member = divmod(first(stray), members)
            device, leader = int(groups[group, member]), int(groups[group, 0])
            raise VerificationError(
                "disjoint members",
                f"step {number} ({step.kind}) has devices {leader} and {device} in one group; the first holds "
                f"{held(before, leader)}, the other goes from {held(before, device)} to {held(after, device)}",
                number,
                device,
                other=leader,
                group=group,
            )
    if isinstance(step, ReduceScatter):
        part = number_of(after.index - before.index * np.array(parts, dtype=np.int64), parts)[groups]
        wrong = part != np.arange(members)
        if wrong.any():
            group, member = divmod(first(wrong), members)
            raise VerificationError(
                "member order",
                f"step {number} ({step.kind}) lists device {groups[group, member]} as member {member} of "
                f"group {group}, but it keeps part {part[group, member]} of the sum",
                number,
                int(groups[group, member]),
                group=group,
                member=member,
                part=int(part[group, member]),
            )
    _check_run(number, step)


def _check_run(number: int, step: ReduceScatter | AllReduce) -> None:
    before, after, groups = step.before, step.after, step.groups
    into = after.label[groups]
    run = into[:, :1] * step.group_size + np.arange(step.group_size)
    wrong = (np.sort(before.label[groups], axis=1) != run).any(axis=1) | (into != into[:, :1]).any(axis=1)
    if wrong.any():
        group = first(wrong)
        has, makes = before.label[groups[group]].tolist(), sorted(set(into[group].tolist()))
        raise VerificationError(
            "summand",
            f"step {number} ({step.kind}) has summands {shown(has)} in group {group}, whose members end with summands "
            f"{shown(makes)}; they must end with one, made of the summands {shown(run[group].tolist())}, "
            "each held by one member",
            number,
            int(groups[group, 0]),
            group=group,
            summands=has,
            made=makes,
        )


def check_reduce_exchange(number: int, step: ReduceExchange) -> None:
    """Check the shares of a reduce-exchange, and that every device adds up what makes its summand.

    In a sum each element of each summand counts exactly once, in a maximum or minimum at least once.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after, shares = step.before, step.after, step.shares
    if before.summands > 1 and after.summands > 1 and before.reduction != after.reduction:
        _fail_count(number, step, "summands of one kind make no summands of another")
    check_shares(number, step)
    splits = np.array(step.splits, dtype=np.int64)
    begin, end = splits[after.label], splits[after.label + 1]  # per device, the summands that make its own
    sent = before.label[shares.src]
    wrong = (sent < begin[shares.dst]) | (sent >= end[shares.dst])
    if wrong.any():
        k = first(wrong)
        receiver = int(shares.dst[k])
        raise VerificationError(
            "summand",
            f"step {number} ({step.kind}) has device {shares.src[k]} send summand {sent[k]} to device {receiver}, "
            f"which ends with summand {after.label[receiver]}, made of {_run(begin[receiver], end[receiver])}",
            number,
            receiver,
            sender=int(shares.src[k]),
            summand=int(sent[k]),
        )
    if after.tile_size:
        _check_sums(number, step, begin, end)


def _check_sums(number: int, step: ReduceExchange, begin: Int64, end: Int64) -> None:
    """Every device adds up the summands from `begin` to `end` of its tile."""
    before, after, shares = step.before, step.after, step.shares
    goal, tile = after.start, np.array(after.tile, dtype=np.int64)
    low = np.maximum(before.start, goal)
    high = np.minimum(before.start + np.array(before.tile, dtype=np.int64), goal + tile)
    keeps = np.flatnonzero((low < high).all(axis=1) & step.adds_own())
    owner = np.concatenate([keeps, shares.dst])
    start, size = (table.reshape(len(shares), before.rank) for table in (shares.start, shares.size))
    low = np.concatenate([low[keeps], start]) - goal[owner]
    high = np.concatenate([high[keeps], start + size]) - goal[owner]
    cut = cut_dimensions(number, step.kind, low, high, tile)
    slab = before.label[np.concatenate([keeps, shares.src])][:, None]
    low, high = np.concatenate([slab, low[:, cut]], axis=1), np.concatenate([slab + 1, high[:, cut]], axis=1)
    stack = np.array([before.summands, *tile[cut]], dtype=np.int64)
    if (before.reduction or after.reduction or "sum") == "sum":
        device = _first_not_added_once(low, high, owner, stack, begin, end)
        if device is not None:
            mine = owner == device
            first_corner = np.array([begin[device], *np.zeros(len(cut), dtype=np.int64)])
            last_corner = np.array([end[device], *tile[cut]])
            _fail_sum(number, step, device, cut, *wrong_cell(low[mine], high[mine], first_corner, last_corner))
        return
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(after.devices + 1))
    cells = 0
    for device in range(after.devices):
        mine = order[bounds[device] : bounds[device + 1]]
        reach = [(int(begin[device]), int(end[device])), *((0, extent) for extent in tile[cut].tolist())]
        borders = [np.unique([*ends, *low[mine, i], *high[mine, i]]) for i, ends in enumerate(reach)]
        cells += math.prod(len(border) for border in borders)
        if cells > _MOST_CELLS:
            raise VerificationError(
                "share rank",
                f"step {number} ({step.kind}) cuts tiles into more than {_MOST_CELLS} cells, which are too many to be "
                "checked; send fewer or larger boxes",
                number,
                most=_MOST_CELLS,
            )
        missing = np.argwhere(times_covered(low[mine], high[mine], borders) < 1)
        if len(missing):
            corner, behind = (
                [int(border[k + by]) for border, k in zip(borders, missing[0], strict=True)] for by in (0, 1)
            )
            _fail_sum(number, step, device, cut, np.array(corner), np.array(behind), 0)


def _first_not_added_once(low: Int64, high: Int64, owner: Int64, stack: Int64, begin: Int64, end: Int64) -> int | None:
    """The first device that does not add each of its summands once.

    A device does iff the slabs that it adds, and those that are not its own to add, fill a stack of its tile once.
    """
    devices = len(begin)
    unused_low, unused_high = np.zeros((2, devices, len(stack)), dtype=np.int64), np.tile(stack, (2, devices, 1))
    unused_high[0, :, 0] = begin
    unused_low[1, :, 0] = end
    some = (unused_high > unused_low).all(axis=2)
    low, high = np.concatenate([low, unused_low[some]]), np.concatenate([high, unused_high[some]])
    return first_not_filled_once(low, high, np.concatenate([owner, np.nonzero(some)[1]]), np.tile(stack, (devices, 1)))


def _fail_sum(
    number: int, step: ReduceExchange, device: int, cut: Int64, start: Int64, stop: Int64, times: int
) -> NoReturn:
    """Say which box of which summand a device does not add as often as it must."""
    after = step.after
    low, size = after.start[device].copy(), np.array(after.tile, dtype=np.int64)
    low[cut] += start[1:]
    size[cut] = (stop - start)[1:]
    once = (step.before.reduction or after.reduction or "sum") == "sum"
    raise VerificationError(
        "summand",
        f"step {number} ({step.kind}) has device {device} add summand {start[0]} of {box(low, size)} {times} times; "
        + ("a sum has each once" if once else "a maximum or minimum has each at least once"),
        number,
        device,
        summand=int(start[0]),
        times=times,
    )


def check_unreduce(number: int, step: Unreduce) -> None:
    """Check that tiles lie in what they become summands of, and that every part of the array is in one summand.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after = step.before, step.after
    if before.summands > 1 and before.reduction != after.reduction:
        _fail_count(number, step, "summands of one kind make no summands of another")
    check_numbers(number, step.kind, "the list of those that keep their tile", step.keeps, step.devices)
    if (np.diff(step.keeps) < 1).any():
        raise VerificationError(
            "unreduce",
            f"step {number} ({step.kind}) lists the devices {shown(step.keeps.tolist())}; list each once, ascending",
            number,
        )
    if any(b % a for b, a in zip(before.grid, after.grid, strict=True)):
        why = "a tile becomes part of a tile as large or larger, so each count must divide the one before"
        fail_grids(number, step, "unreduce", why)
    outside = (before.coarse(after.grid) != after.index).any(axis=1)
    if outside.any():
        device = first(outside)
        raise VerificationError(
            "unreduce",
            f"step {number} ({step.kind}) leaves device {device} with {held(after, device)}, "
            f"which does not contain the {held(before, device)} it held",
            number,
            device,
        )
    _check_parts(number, step)


def _check_parts(number: int, step: Unreduce) -> None:
    before, after = step.before, step.after
    part = np.concatenate([before.index, before.label[:, None]], axis=1)
    part = np.unique(part, axis=0, return_inverse=True)[1].reshape(-1) + 1  # what each device holds of the array
    content = np.zeros_like(part)
    content[step.keeps] = part[step.keeps]  # 0: neutral elements only
    tile = np.unique(after.index, axis=0, return_inverse=True)[1].reshape(-1)
    summand = tile * after.summands + after.label
    holder = np.full(int(summand.max()) + 1, -1, dtype=np.int64)
    holder[summand] = np.arange(step.devices)
    other = content != content[holder[summand]]
    if other.any():
        device = first(other)
        raise VerificationError(
            "unreduce",
            f"step {number} ({step.kind}) has devices {device} and {holder[summand[device]]} hold "
            f"{held(after, device)}, made of different parts of the array",
            number,
            device,
        )
    expected = before.tiles // after.tiles * before.summands
    made = np.unique(np.stack([tile, summand, content], axis=1)[content > 0], axis=0)
    distinct = np.unique(made[:, [0, 2]], axis=0)[:, 0]
    tiles = int(tile.max()) + 1
    found = np.bincount(distinct, minlength=tiles)
    times = np.bincount(made[:, 0], minlength=tiles)
    wrong = (found != expected) | ((times != expected) & (after.reduction == "sum"))
    if wrong.any():
        k = first(wrong)
        device = first(tile == k)
        raise VerificationError(
            "unreduce",
            f"step {number} ({step.kind}) makes {box(after.start[device], after.tile)} of {times[k]} parts, "
            f"{found[k]} of them different; its summands must have each of its {expected} parts, and in a sum once",
            number,
            device,
        )


def _run(begin: int, end: int) -> str:
    return f"summands {begin} to {end - 1}" if end > begin else "none"


def _fail_count(number: int, step: Step, rule: str) -> NoReturn:
    def said(placement: Placement) -> str:
        return f"{placement.summands} summands by {placement.reduction}" if placement.summands > 1 else "whole tiles"

    raise VerificationError(
        "summand count",
        f"step {number} ({step.kind}) goes from {said(step.before)} to {said(step.after)}; {rule}",
        number,
        before=step.before.summands,
        after=step.after.summands,
    )
