"""Is an exchange right? Shares travel from devices that hold them to devices that lack them, each element once."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from redistrib.errors import VerificationError
from redistrib.plans._cover import cut_dimensions, first_not_filled_once, joined, overlapping
from redistrib.plans._evidence import box, check_numbers, first, held
from redistrib.plans.steps import Exchange, ReduceExchange
from redistrib.theory.boxes import volumes
from redistrib.theory.placement import Int64, Placement


def check_exchange(step: int, exchange: Exchange) -> None:
    """Check the shares and rounds of an exchange.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    check_shares(step, exchange)
    _check_cover(step, exchange)


def check_shares(step: int, exchange: Exchange | ReduceExchange) -> None:
    """Check that shares lie in what their senders held and their receivers end with, and the rounds they travel in.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    if exchange.implementation not in ("rounds", "ragged"):
        raise VerificationError(
            "implementation",
            f"step {step} ({exchange.kind}) is to run as {exchange.implementation!r}; an exchange runs as "
            "'rounds' or 'ragged'",
            step,
            implementation=exchange.implementation,
        )
    if len(exchange.shares):
        _check_boxes(step, exchange)
        _check_rounds(step, exchange)


def _check_boxes(step: int, exchange: Exchange | ReduceExchange) -> None:
    """Every share lies in what its sender held and in what its receiver needs."""
    shares, rank = exchange.shares, exchange.before.rank
    if shares.start.shape != (len(shares), rank) or shares.size.shape != (
        len(shares),
        rank,
    ):
        raise VerificationError(
            "share rank",
            f"step {step} ({exchange.kind}) has shares of rank {shares.start.shape[-1]} and {shares.size.shape[-1]} "
            f"(start and size), its array has rank {rank}",
            step,
            start=shares.start.shape[-1],
            size=shares.size.shape[-1],
            rank=rank,
        )
    check_numbers(step, exchange.kind, "a share", shares.src, exchange.devices)
    check_numbers(step, exchange.kind, "a share", shares.dst, exchange.devices)
    itself = shares.src == shares.dst
    if itself.any():
        device = int(shares.src[first(itself)])
        raise VerificationError(
            "self send",
            f"step {step} ({exchange.kind}) has device {device} send to itself; what a device keeps is no share",
            step,
            device,
        )
    empty = (shares.size < 1).any(axis=1)
    if empty.any():
        k = first(empty)
        size = tuple(shares.size[k].tolist())
        raise VerificationError(
            "empty share",
            f"step {step} ({exchange.kind}) has device {shares.src[k]} send device {shares.dst[k]} "
            f"a share of size {size}; leave out shares without elements",
            step,
            int(shares.src[k]),
            receiver=int(shares.dst[k]),
            size=size,
        )
    unheld = _first_outside(exchange, exchange.before, shares.src)
    if unheld is not None:
        k = unheld
        sender = int(shares.src[k])
        raise VerificationError(
            "share not held",
            f"step {step} ({exchange.kind}) has device {sender} send {_share(exchange, k)}, but it holds "
            f"{held(exchange.before, sender)}",
            step,
            sender,
            receiver=int(shares.dst[k]),
            share=_share(exchange, k),
        )
    unwanted = _first_outside(exchange, exchange.after, shares.dst)
    if unwanted is not None:
        k = unwanted
        receiver = int(shares.dst[k])
        raise VerificationError(
            "share not wanted",
            f"step {step} ({exchange.kind}) has device {receiver} receive {_share(exchange, k)}, but it ends with "
            f"{held(exchange.after, receiver)}",
            step,
            receiver,
            sender=int(shares.src[k]),
            share=_share(exchange, k),
        )


def _first_outside(exchange: Exchange | ReduceExchange, placement: Placement, device: Int64) -> int | None:
    """The first share that is not inside the tile of its device."""
    shares = exchange.shares
    low, extent = placement.start[device], placement.boxes.size[device]
    nowhere = placement.nowhere[device]
    # never start + size, which a hostile plan can make exceed 64 bits
    outside = (shares.start < low) | (shares.size > low + extent - shares.start)
    if not outside.any() and not nowhere.any():
        return None
    return first(outside.any(axis=1) | nowhere)


def _check_rounds(step: int, exchange: Exchange | ReduceExchange) -> None:
    """Rounds count from 0; in each, at most one send and one receipt per device."""
    shares, count = exchange.shares, len(exchange.shares)
    rounds = shares.round
    if rounds.min() < 0 or rounds.max() >= count:
        k = first((rounds < 0) | (rounds >= count))
        raise VerificationError(
            "round number",
            f"step {step} ({exchange.kind}) has a share in round {rounds[k]}; {count} shares travel in rounds "
            f"numbered from 0, at most to {count - 1}",
            step,
            int(shares.src[k]),
            round=int(rounds[k]),
        )
    used = np.bincount(rounds)
    if not used.all():
        gap = first(used == 0)
        raise VerificationError(
            "round number",
            f"step {step} ({exchange.kind}) has no share in round {gap}, but some in round {len(used) - 1}; "
            "rounds are numbered without gaps",
            step,
            round=gap,
        )
    for device, verb, rule in (
        (shares.src, "send", "round sender"),
        (shares.dst, "receive", "round receiver"),
    ):
        key = rounds * exchange.devices + device  # below shares * devices
        ordered = np.sort(key)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            number, at_fault = divmod(int(ordered[first(twice)]), exchange.devices)
            raise VerificationError(
                rule,
                f"step {step} ({exchange.kind}) has device {at_fault} {verb} more than one share in round {number}; "
                "put them in different rounds",
                step,
                at_fault,
                round=number,
            )


def _check_cover(step: int, exchange: Exchange) -> None:
    """What a device keeps and receives fills its tile, every element once."""
    before, after, shares = exchange.before, exchange.after, exchange.shares
    if not after.tile_size or not len(after.holders):
        return  # nothing to fill, and no share fits in
    goal, tile = after.start, after.boxes.size
    low = np.maximum(before.start, goal)
    high = np.minimum(before.start + before.boxes.size, goal + tile)
    keeps = np.flatnonzero((low < high).all(axis=1) & ~before.nowhere & ~after.nowhere)
    holder, owner = np.concatenate([keeps, shares.src]), np.concatenate([keeps, shares.dst])
    if not before.cuts and not after.cuts and _are_meets(exchange) and _are_all_cells(exchange, holder, owner):
        return
    start, size = (table.reshape(len(shares), before.rank) for table in (shares.start, shares.size))
    start, stop = np.concatenate([low[keeps], start]), np.concatenate([high[keeps], start + size])
    low, high = start - goal[owner], stop - goal[owner]
    cut = cut_dimensions(step, exchange.kind, low, high, tile[owner])
    filled = np.flatnonzero(~after.boxes.empty)  # only these have a tile to fill, and only these own boxes
    device = first_not_filled_once(low[:, cut], high[:, cut], np.searchsorted(filled, owner), tile[filled][:, cut])
    if device is not None:
        device = int(filled[device])
        own = owner == device
        _fail_cover(step, exchange, device, holder[own], start[own], stop[own], cut)


def _are_meets(exchange: Exchange) -> bool:
    """Whether every share is all that its sender holds of its receiver's tile; shares are known to lie in both."""
    before, after, shares = exchange.before, exchange.after, exchange.shares
    held_start, goal = before.start[shares.src], after.start[shares.dst]
    low = np.maximum(held_start, goal)
    high = np.minimum(held_start + before.boxes.size[shares.src], goal + after.boxes.size[shares.dst])
    return bool((high - low == shares.size).all())


def _are_all_cells(exchange: Exchange, holder: Int64, owner: Int64) -> bool:
    """Whether the tiles of the holders are the different cells of the first grid that meet their owner's tile.

    Every holder's tile does meet it, so it is enough that they differ and are as many as there are to meet.
    """
    before, after = exchange.before, exchange.after
    tile = np.array(before.tile, dtype=np.int64)
    start = after.start[after.holders]
    cells = (start + np.array(after.tile, dtype=np.int64) - 1) // tile - start // tile + 1
    if len(owner) != sum(volumes(cells)):
        return False
    number, span = np.zeros(before.devices, dtype=np.int64), 1
    for i, count in enumerate(before.grid):
        number, span = joined(number, span, before.index[:, i], count)
    key = np.sort(joined(owner, before.devices, number[holder], span)[0])
    return not (key[1:] == key[:-1]).any()


def _fail_cover(
    step: int, exchange: Exchange, device: int, sender: Int64, start: Int64, stop: Int64, cut: Int64
) -> NoReturn:
    """Say where the boxes of a device, parts of its tile along some dimensions, overlap, or how many they leave."""
    after = exchange.after
    filled, needed = sum(volumes(stop - start)), after.box(device).volume
    if filled < needed:
        raise VerificationError(
            "uncovered tile",
            f"step {step} (exchange) fills only {filled} of the {needed} elements {held(after, device)} "
            f"of device {device}; what it keeps and what it receives must fill its tile",
            step,
            device,
            filled=filled,
            needed=needed,
        )
    goal = after.start[device, cut]
    one, other = overlapping(start[:, cut], stop[:, cut], goal, goal + after.boxes.size[device, cut])
    low, high = np.maximum(start[one], start[other]), np.minimum(stop[one], stop[other])
    giver, rival = int(sender[one]), int(sender[other])
    first_box = box(start[one], stop[one] - start[one])
    origin = f"it keeps {first_box}" if giver == device else f"device {giver} sends {first_box}"
    raise VerificationError(
        "overlapping shares",
        f"step {step} (exchange) fills {box(low, high - low)} of device {device} twice: {origin} and "
        f"device {rival} sends {box(start[other], stop[other] - start[other])}",
        step,
        device,
        senders=(giver, rival),
        overlap=box(low, high - low),
    )


def _share(exchange: Exchange | ReduceExchange, k: int) -> str:
    return box(exchange.shares.start[k], exchange.shares.size[k])
