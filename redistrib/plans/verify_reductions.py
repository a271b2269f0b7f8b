"""Is a step on partial sums correct? Every box must be the reduction of all its partial sums."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from redistrib.arith import distinct_rows
from redistrib.errors import VerificationError
from redistrib.errors.base import shown
from redistrib.plans._diagnostics import box, check_numbers, describe, fail_grids, first
from redistrib.plans.steps import (
    AllReduce,
    Exchange,
    ReduceExchange,
    ReduceScatter,
    Step,
    Unreduce,
)
from redistrib.plans.verify_cover import check_cover, runs
from redistrib.plans.verify_exchange import check_shares
from redistrib.plans.verify_groups import check_groups
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Placement, number_of


def as_slabs(number: int, step: Step) -> Step:
    """A step that moves partial sums, as a step on slabs of their stack; the step itself where tiles are whole.

    Raises:
        VerificationError: if the number or the reduction of partial sums changes.
    """
    before, after = step.before, step.after
    if before.summands == after.summands == 1:
        return step
    if (before.summands, before.reduction) != (after.summands, after.reduction):
        _fail_count(number, step, "it moves partial sums and makes none, so both must be equal")
    if isinstance(step, Exchange):
        step = _on_slabs(step)
    return replace(step, before=before.stacked(), after=after.stacked())


def _on_slabs(step: Exchange) -> Exchange:
    """An exchange whose boxes have the partial sum of their sender as first coordinate; a malformed one unchanged."""
    shares, before = step.shares, step.before
    if shares.box.start.ndim != 2 or shares.box.size.ndim != 2:
        return step
    sender = np.where((shares.sender >= 0) & (shares.sender < before.devices), shares.sender, 0)
    summand = before.label[sender][:, None]
    start = np.concatenate([summand, shares.box.start], axis=1)
    size = np.concatenate([np.ones_like(summand), shares.box.size], axis=1)
    return replace(step, shares=replace(shares, box=Boxes(start, size)))


def check_reduction(number: int, step: ReduceScatter | AllReduce) -> None:
    """Check a reduction over groups: grids, members, and that each group has every partial sum of one run once.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after, groups = step.before, step.after, step.groups
    members = step.group_size
    if before.summands != members * after.summands or (after.summands > 1 and before.reduction != after.reduction):
        _fail_count(number, step, f"groups of {members} make one partial sum of {members}")
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
    for index in (before.index[groups], after.coarse(before.grid)[groups]):
        stray = (index != before.index[groups[:, :1]]).any(axis=2)
        if stray.any():
            group, member = divmod(first(stray), members)
            device, leader = int(groups[group, member]), int(groups[group, 0])
            raise VerificationError(
                "disjoint members",
                f"step {number} ({step.kind}) has devices {leader} and {device} in one group; the first holds "
                f"{describe(before, leader)}, the other goes from {describe(before, device)} to "
                f"{describe(after, device)}",
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
            f"step {number} ({step.kind}) has partial sums {shown(has)} in group {group}, whose members end with "
            "partial sums "
            f"{shown(makes)}; they must end with one, made of the partial sums {shown(run[group].tolist())}, "
            "each held by one member",
            number,
            int(groups[group, 0]),
            group=group,
            summands=has,
            made=makes,
        )


def check_reduce_exchange(number: int, step: ReduceExchange) -> None:
    """Check the shares of a reduce-exchange, and that every device adds the partial sums of its result.

    A sum has each element of each partial sum exactly once, a maximum or minimum at least once.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after, shares = step.before, step.after, step.shares
    if before.summands > 1 and after.summands > 1 and before.reduction != after.reduction:
        _fail_count(number, step, "partial sums of one kind make no partial sums of another")
    check_shares(number, step)
    begin, end = runs(step)
    sent = before.label[shares.sender]
    wrong = (sent < begin[shares.receiver]) | (sent >= end[shares.receiver])
    if wrong.any():
        k = first(wrong)
        receiver = int(shares.receiver[k])
        raise VerificationError(
            "summand",
            f"step {number} ({step.kind}) has device {shares.sender[k]} send partial sum {sent[k]} "
            f"to device {receiver}, which ends with partial sum {after.label[receiver]}, "
            f"made of {_run(begin[receiver], end[receiver])}",
            number,
            receiver,
            sender=int(shares.sender[k]),
            summand=int(sent[k]),
        )
    check_cover(number, step)


def check_unreduce(number: int, step: Unreduce) -> None:
    """Check that tiles lie in their tiles after the step, and that every part of the array is in one partial sum.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after = step.before, step.after
    if before.summands > 1 and before.reduction != after.reduction:
        _fail_count(number, step, "partial sums of one kind make no partial sums of another")
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
            f"step {number} ({step.kind}) leaves device {device} with {describe(after, device)}, "
            f"which does not contain the {describe(before, device)} it held",
            number,
            device,
        )
    _check_parts(number, step)


def _check_parts(number: int, step: Unreduce) -> None:
    before, after = step.before, step.after
    part = np.concatenate([before.index, before.label[:, None]], axis=1)
    part = distinct_rows(part).inverse + 1  # number of the part of each device
    content = np.zeros_like(part)
    content[step.keeps] = part[step.keeps]  # 0: identity elements only
    tile = distinct_rows(after.index).inverse
    summand = tile * after.summands + after.label
    holder = np.full(int(summand.max()) + 1, -1, dtype=np.int64)
    holder[summand] = np.arange(step.devices)
    other = content != content[holder[summand]]
    if other.any():
        device = first(other)
        raise VerificationError(
            "unreduce",
            f"step {number} ({step.kind}) has devices {device} and {holder[summand[device]]} hold "
            f"{describe(after, device)}, made of different parts of the array",
            number,
            device,
        )
    expected = before.tiles // after.tiles * before.summands
    parts = distinct_rows(np.stack([tile, summand, content], axis=1)[content > 0]).rows
    distinct = distinct_rows(parts[:, [0, 2]]).rows[:, 0]
    tiles = int(tile.max()) + 1
    different = np.bincount(distinct, minlength=tiles)
    times = np.bincount(parts[:, 0], minlength=tiles)
    wrong = (different != expected) | ((times != expected) & (after.reduction == "sum"))
    if wrong.any():
        k = first(wrong)
        device = first(tile == k)
        raise VerificationError(
            "unreduce",
            f"step {number} ({step.kind}) makes {box(after.start[device], after.tile)} of {times[k]} parts, "
            f"{different[k]} of them different; its partial sums must have each of its {expected} parts, and in a "
            "sum once",
            number,
            device,
        )


def _run(begin: int, end: int) -> str:
    return f"partial sums {begin} to {end - 1}" if end > begin else "none"


def _fail_count(number: int, step: Step, rule: str) -> NoReturn:
    def described(placement: Placement) -> str:
        return (
            f"{placement.summands} partial sums by {placement.reduction}" if placement.summands > 1 else "whole tiles"
        )

    raise VerificationError(
        "summand count",
        f"step {number} ({step.kind}) goes from {described(step.before)} to {described(step.after)}; {rule}",
        number,
        before=step.before.summands,
        after=step.after.summands,
    )
