"""Is an exchange right? Shares travel from devices that hold them to devices that lack them, each element once."""

from __future__ import annotations

import itertools
import math
from typing import NoReturn, TypeAlias

import numpy as np

from redistrib.errors import (
    EmptyShareError,
    OverlappingSharesError,
    RealisationError,
    RoundNumberError,
    RoundReceiverError,
    RoundSenderError,
    RoundSizeError,
    SelfSendError,
    ShareNotHeldError,
    ShareNotWantedError,
    ShareRankError,
    UncoveredTileError,
)
from redistrib.plans._evidence import box, check_numbers, first, held
from redistrib.plans.steps import Exchange
from redistrib.theory.semantics import Int64, Placement


def check_exchange(step: int, exchange: Exchange) -> None:
    """Check the shares and rounds of an exchange.

    Raises:
        VerificationError: the subclass of the first rule that is broken.
    """
    if exchange.realisation not in ("rounds", "ragged"):
        raise RealisationError(
            f"step {step} (exchange) is to be realised as {exchange.realisation!r}; the realisations are "
            "'rounds' and 'ragged'",
            step,
            realisation=exchange.realisation,
        )
    if len(exchange.shares):
        _check_shares(step, exchange)
        _check_rounds(step, exchange)
    _check_cover(step, exchange)


def _check_shares(step: int, exchange: Exchange) -> None:
    """Every share lies in what its sender held and in what its receiver needs."""
    shares, rank = exchange.shares, exchange.before.rank
    if shares.start.shape != (len(shares), rank) or shares.size.shape != (
        len(shares),
        rank,
    ):
        raise ShareRankError(
            f"step {step} (exchange) has shares of rank {shares.start.shape[-1]} and {shares.size.shape[-1]} "
            f"(start and size), its array has rank {rank}",
            step,
            start=shares.start.shape[-1],
            size=shares.size.shape[-1],
            rank=rank,
        )
    check_numbers(step, "exchange", "a share", shares.src, exchange.devices)
    check_numbers(step, "exchange", "a share", shares.dst, exchange.devices)
    itself = shares.src == shares.dst
    if itself.any():
        device = int(shares.src[first(itself)])
        raise SelfSendError(
            f"step {step} (exchange) has device {device} send to itself; what a device keeps is no share",
            step,
            device,
        )
    empty = (shares.size < 1).any(axis=1)
    if empty.any():
        k = first(empty)
        size = tuple(shares.size[k].tolist())
        raise EmptyShareError(
            f"step {step} (exchange) has device {shares.src[k]} send device {shares.dst[k]} a share of size {size}; "
            "leave out shares without elements",
            step,
            int(shares.src[k]),
            receiver=int(shares.dst[k]),
            size=size,
        )
    unheld = _first_outside(exchange, exchange.before, shares.src)
    if unheld is not None:
        k = unheld
        sender = int(shares.src[k])
        raise ShareNotHeldError(
            f"step {step} (exchange) has device {sender} send {_share(exchange, k)}, but it holds "
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
        raise ShareNotWantedError(
            f"step {step} (exchange) has device {receiver} receive {_share(exchange, k)}, but it ends with "
            f"{held(exchange.after, receiver)}",
            step,
            receiver,
            sender=int(shares.src[k]),
            share=_share(exchange, k),
        )


def _first_outside(exchange: Exchange, placement: Placement, device: Int64) -> int | None:
    """The first share that is not inside the tile of its device."""
    shares = exchange.shares
    low = placement.start[device]
    # never start + size, which a hostile plan can make exceed 64 bits
    outside = (shares.start < low) | (shares.size > low + np.array(placement.tile, dtype=np.int64) - shares.start)
    if not outside.any():
        return None
    return first(outside.any(axis=1))


def _check_rounds(step: int, exchange: Exchange) -> None:
    """Rounds count from 0; in each, one share size, and at most one send and one receipt per device."""
    shares, count = exchange.shares, len(exchange.shares)
    rounds = shares.round
    if rounds.min() < 0 or rounds.max() >= count:
        k = first((rounds < 0) | (rounds >= count))
        raise RoundNumberError(
            f"step {step} (exchange) has a share in round {rounds[k]}; {count} shares travel in rounds "
            f"numbered from 0, at most to {count - 1}",
            step,
            int(shares.src[k]),
            round=int(rounds[k]),
        )
    used = np.bincount(rounds)
    if not used.all():
        gap = first(used == 0)
        raise RoundNumberError(
            f"step {step} (exchange) has no share in round {gap}, but some in round {len(used) - 1}; "
            "rounds are numbered without gaps",
            step,
            round=gap,
        )
    leader = np.empty(len(used), dtype=np.int64)
    leader[rounds[::-1]] = np.arange(count - 1, -1, -1)  # the last assignment stays: the first share of the round
    odd = (shares.size != shares.size[leader[rounds]]).any(axis=1)
    if odd.any():
        k = first(odd)
        size, other = (
            tuple(shares.size[k].tolist()),
            tuple(shares.size[leader[rounds[k]]].tolist()),
        )
        raise RoundSizeError(
            f"step {step} (exchange) has shares of sizes {other} and {size} in round {rounds[k]}; "
            "a round is one collective with one share size: put them in different rounds",
            step,
            int(shares.src[k]),
            round=int(rounds[k]),
            sizes=(other, size),
        )
    for device, verb, error in (
        (shares.src, "send", RoundSenderError),
        (shares.dst, "receive", RoundReceiverError),
    ):
        key = rounds * exchange.devices + device  # below shares * devices
        ordered = np.sort(key)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            number, at_fault = divmod(int(ordered[first(twice)]), exchange.devices)
            raise error(
                f"step {step} (exchange) has device {at_fault} {verb} more than one share in round {number}; "
                "put them in different rounds",
                step,
                at_fault,
                round=number,
            )


def _check_cover(step: int, exchange: Exchange) -> None:
    """What a device keeps and receives fills its tile, every element once.

    Boxes fill a tile exactly once iff their signed corners add up to those of the tile, since a function of
    bounded support is determined by its mixed difference. That needs neither volumes, which may exceed 64 bits,
    nor a comparison of every two boxes.
    """
    before, after, shares = exchange.before, exchange.after, exchange.shares
    tile = np.array(after.tile, dtype=np.int64)
    goal = after.start
    kept_low = np.maximum(before.start, goal)
    kept_high = np.minimum(before.start + np.array(before.tile, dtype=np.int64), goal + tile)
    keeps = np.flatnonzero((kept_low < kept_high).all(axis=1))
    fills = np.arange(after.devices) if after.tile_size else np.arange(0)
    owner = np.concatenate([fills, keeps, shares.dst])
    base = goal[owner]
    low = np.concatenate([goal[fills], kept_low[keeps], shares.start]) - base
    high = np.concatenate([goal[fills] + tile, kept_high[keeps], shares.start + shares.size]) - base
    sign = np.ones(len(owner), dtype=np.int64)
    sign[: len(fills)] = -1
    key, span = owner, after.devices
    for i in range(after.rank):
        if (low[:, i] == 0).all() and (high[:, i] == tile[i]).all():
            continue  # every box spans the tile here, so corners along it say nothing more
        repeats = len(key) // len(owner)
        corner = np.concatenate([np.tile(low[:, i], repeats), np.tile(high[:, i], repeats)])
        key, span = _joined(np.tile(key, 2), span, corner, int(tile[i]) + 1)
        sign = np.concatenate([sign, -sign])
    order = np.argsort(key)
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(key) else order
    excess = np.add.reduceat(sign[order], starts) if len(key) else sign
    if excess.any():
        at = order[starts[first(excess != 0)]] % len(owner)
        _fail_cover(step, exchange, int(owner[at]))


def _joined(key: Int64, span: int, digit: Int64, base: int) -> tuple[Int64, int]:
    """One number for each pair of a key below `span` and a digit below `base`, and a bound on these numbers."""
    if span * base >= 2**62:  # renumber: then both are below the number of rows
        key, digit = (
            np.unique(key, return_inverse=True)[1],
            np.unique(digit, return_inverse=True)[1],
        )
        span, base = int(key.max()) + 1, int(digit.max()) + 1
    return key * base + digit, span * base


def _fail_cover(step: int, exchange: Exchange, device: int) -> NoReturn:
    """Say whether the boxes of one device overlap or leave a gap."""
    before, after, shares = exchange.before, exchange.after, exchange.shares
    to_device = np.flatnonzero(shares.dst == device).tolist()
    boxes = [
        (
            tuple(shares.start[k].tolist()),
            tuple(shares.size[k].tolist()),
            int(shares.src[k]),
        )
        for k in to_device
    ]
    kept = _meet(
        (tuple(before.start[device].tolist()), before.tile),
        (tuple(after.start[device].tolist()), after.tile),
    )
    if kept is not None:
        boxes.insert(0, (*kept, device))
    for one, other in itertools.combinations(boxes, 2):
        common = _meet(one[:2], other[:2])
        if common is not None:
            origin = f"it keeps {box(*one[:2])}" if one[2] == device else f"device {one[2]} sends {box(*one[:2])}"
            raise OverlappingSharesError(
                f"step {step} (exchange) fills {box(*common)} of device {device} twice: {origin} and "
                f"device {other[2]} sends {box(*other[:2])}",
                step,
                device,
                senders=(one[2], other[2]),
                overlap=box(*common),
            )
    filled = sum(math.prod(size) for _, size, _ in boxes)
    raise UncoveredTileError(
        f"step {step} (exchange) fills only {filled} of the {after.tile_size} elements {held(after, device)} of "
        f"device {device}; what it keeps and what it receives must fill its tile",
        step,
        device,
        filled=filled,
        needed=after.tile_size,
    )


_Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # start and size


def _meet(one: _Box, other: _Box) -> _Box | None:
    low = tuple(max(a, b) for a, b in zip(one[0], other[0], strict=True))
    high = tuple(min(a + n, b + m) for a, n, b, m in zip(one[0], one[1], other[0], other[1], strict=True))
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return None
    return low, tuple(b - a for a, b in zip(low, high, strict=True))


def _share(exchange: Exchange, k: int) -> str:
    return box(exchange.shares.start[k], exchange.shares.size[k])
