"""Is a collective over groups correct? Groups partition the devices, and the tiles of their members join in order."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from redistrib.errors import VerificationError
from redistrib.plans._diagnostics import check_holds, check_numbers, describe, fail_grids, first
from redistrib.plans.steps import AllGather, AllReduce, AllToAll, ReduceScatter
from redistrib.theory.placement import Int64, number_of


def check_allgather(number: int, step: AllGather) -> None:
    """Check the grids, groups and members of a gather.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after = step.before, step.after
    if any(b % a for b, a in zip(before.grid, after.grid, strict=True)):
        why = "a gather merges equally many tiles everywhere, so each count must divide the one before"
        fail_grids(number, step, "gather grid", why)
    check_groups(number, step)
    _check_union(number, step)


def check_alltoall(number: int, step: AllToAll) -> None:
    """Check the grids, groups and members of an all-to-all.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after = step.before, step.after
    if any(b % a and a % b for b, a in zip(before.grid, after.grid, strict=True)):
        why = (
            "its boxes are of one shape only where in every dimension one count divides the other; "
            "an exchange has no such rule"
        )
        fail_grids(number, step, "all-to-all grid", why)
    check_groups(number, step)
    _check_union(number, step)


def check_groups(number: int, step: AllGather | AllToAll | ReduceScatter | AllReduce) -> None:
    """Check that groups partition the devices that hold a tile; as rows of one table they have equal size."""
    flat = step.groups.ravel()
    holders = step.before.holders
    appears = step.before.nowhere & ~step.after.nowhere
    if appears.any():
        device = first(appears)
        raise VerificationError(
            "idle tile",
            f"step {number} ({step.kind}) gives device {device}, which held nothing and is in no group, "
            f"{describe(step.after, device)}",
            number,
            device,
            held=describe(step.before, device),
            ends=describe(step.after, device),
        )
    if len(flat) == len(holders) and (np.sort(flat) == holders).all():
        return
    check_numbers(number, step.kind, "a group", flat, step.devices)
    count = np.bincount(flat, minlength=step.devices)
    if count.max() > 1:
        device = first(count > 1)
        rows = np.nonzero((step.groups == device).any(axis=1))[0].tolist()
        raise VerificationError(
            "duplicate member",
            f"step {number} ({step.kind}) names device {device} {count[device]} times, in groups {rows}; "
            "groups partition the devices",
            number,
            device,
            times=int(count[device]),
            groups=rows,
        )
    check_holds(number, step, flat)
    device = first((count == 0) & ~step.before.nowhere)
    raise VerificationError(
        "missing member",
        f"step {number} ({step.kind}) has device {device} in no group; groups partition the devices, "
        "a device with nothing to do included",
        number,
        device,
    )


def _check_union(number: int, step: AllGather | AllToAll) -> None:
    """after(d) is the disjoint union of before(m) & after(d) over the members m of d's group, in member order.

    On the grid that is the coarser of the two in each dimension, all members must lie in one cell, before and
    after; then before(m) & after(d) is one share, and the union is exact iff the members' tiles are the
    different parts of that cell.
    """
    before, after, groups = step.before, step.after, step.groups
    common = tuple(min(b, a) for b, a in zip(before.grid, after.grid, strict=True))
    merged = np.array([b // c for b, c in zip(before.grid, common, strict=True)], dtype=np.int64)
    members = groups.shape[1]
    parts = math.prod(merged.tolist())
    if parts != members:
        raise VerificationError(
            "group size",
            f"step {number} ({step.kind}) has groups of {members}, but goes from the grid {before.grid} "
            f"to {after.grid}, which merges {parts} tiles into one",
            number,
            members=members,
            parts=parts,
        )
    cell, chunk = np.divmod(before.index, merged)
    cell_after = after.coarse(common)
    expected = cell_after[groups[:, 0]]
    for cells, is_sender in ((cell[groups], True), (cell_after[groups], False)):
        stray = cells != expected[:, None]
        if stray.any():
            group, member = divmod(first(stray.any(axis=2)), members)
            device, leader = int(groups[group, member]), int(groups[group, 0])
            sender, receiver = (device, leader) if is_sender else (leader, device)
            raise VerificationError(
                "disjoint members",
                f"step {number} ({step.kind}) has devices {sender} and {receiver} in one group, but device {sender} "
                f"holds {describe(before, sender)}, none of it part of the {describe(after, receiver)} "
                f"that device {receiver} ends with",
                number,
                receiver,
                sender=sender,
                group=group,
            )
    order = number_of(chunk, tuple(merged.tolist()))[groups]
    wrong = order != np.arange(members)
    if wrong.any():
        group, member = divmod(first(wrong), members)
        _fail_order(number, step, group, member, order[group])


def _fail_order(number: int, step: AllGather | AllToAll, group: int, member: int, order: Int64) -> None:
    before, members = step.before, step.groups[group]
    parts = order.tolist()
    times = Counter(parts)
    repeated = next((p for p in parts if times[p] > 1), None)
    if repeated is not None:
        one, other = (int(d) for d in members[order == repeated][:2])
        raise VerificationError(
            "repeated chunk",
            f"step {number} ({step.kind}) has devices {one} and {other} in one group, both holding "
            f"{describe(before, one)}; a group merges different tiles",
            number,
            one,
            other=other,
            group=group,
        )
    device = int(members[member])
    raise VerificationError(
        "member order",
        f"step {number} ({step.kind}) lists device {device} as member {member} of group {group}, but its tile is "
        f"part {parts[member]} of what the group merges; list {members[np.argsort(order)].tolist()}",
        number,
        device,
        group=group,
        member=member,
        part=parts[member],
    )
