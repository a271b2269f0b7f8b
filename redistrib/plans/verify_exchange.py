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
    SelfSendError,
    ShareNotHeldError,
    ShareNotWantedError,
    ShareRankError,
    UncoveredTileError,
)
from redistrib.plans._evidence import box, check_numbers, first, held
from redistrib.plans.steps import Exchange, ReduceExchange
from redistrib.theory.semantics import Int64, Placement, volumes


def check_exchange(step: int, exchange: Exchange) -> None:
    """Check the shares and rounds of an exchange.

    Raises:
        VerificationError: the subclass of the first rule that is broken.
    """
    check_shares(step, exchange)
    _check_cover(step, exchange)


def check_shares(step: int, exchange: Exchange | ReduceExchange) -> None:
    """Check that shares lie in what their senders held and their receivers end with, and the rounds they travel in.

    Raises:
        VerificationError: the subclass of the first rule that is broken.
    """
    if exchange.realisation not in ("rounds", "ragged"):
        raise RealisationError(
            f"step {step} ({exchange.kind}) is to be realised as {exchange.realisation!r}; the realisations are "
            "'rounds' and 'ragged'",
            step,
            realisation=exchange.realisation,
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
        raise ShareRankError(
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
        raise SelfSendError(
            f"step {step} ({exchange.kind}) has device {device} send to itself; what a device keeps is no share",
            step,
            device,
        )
    empty = (shares.size < 1).any(axis=1)
    if empty.any():
        k = first(empty)
        size = tuple(shares.size[k].tolist())
        raise EmptyShareError(
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
        raise ShareNotHeldError(
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
        raise ShareNotWantedError(
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
    low = placement.start[device]
    # never start + size, which a hostile plan can make exceed 64 bits
    outside = (shares.start < low) | (shares.size > low + np.array(placement.tile, dtype=np.int64) - shares.start)
    if not outside.any():
        return None
    return first(outside.any(axis=1))


def _check_rounds(step: int, exchange: Exchange | ReduceExchange) -> None:
    """Rounds count from 0; in each, at most one send and one receipt per device."""
    shares, count = exchange.shares, len(exchange.shares)
    rounds = shares.round
    if rounds.min() < 0 or rounds.max() >= count:
        k = first((rounds < 0) | (rounds >= count))
        raise RoundNumberError(
            f"step {step} ({exchange.kind}) has a share in round {rounds[k]}; {count} shares travel in rounds "
            f"numbered from 0, at most to {count - 1}",
            step,
            int(shares.src[k]),
            round=int(rounds[k]),
        )
    used = np.bincount(rounds)
    if not used.all():
        gap = first(used == 0)
        raise RoundNumberError(
            f"step {step} ({exchange.kind}) has no share in round {gap}, but some in round {len(used) - 1}; "
            "rounds are numbered without gaps",
            step,
            round=gap,
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
                f"step {step} ({exchange.kind}) has device {at_fault} {verb} more than one share in round {number}; "
                "put them in different rounds",
                step,
                at_fault,
                round=number,
            )


def _check_cover(step: int, exchange: Exchange) -> None:
    """What a device keeps and receives fills its tile, every element once."""
    before, after, shares = exchange.before, exchange.after, exchange.shares
    if not after.tile_size:
        return  # nothing to fill, and no share fits in
    goal, tile = after.start, np.array(after.tile, dtype=np.int64)
    low = np.maximum(before.start, goal)
    high = np.minimum(before.start + np.array(before.tile, dtype=np.int64), goal + tile)
    keeps = np.flatnonzero((low < high).all(axis=1))
    if _are_meets(exchange):
        holder, owner = np.concatenate([keeps, shares.src]), np.concatenate([keeps, shares.dst])
        if not _are_all_cells(exchange, holder, owner):
            _fail_cover(step, exchange)
        return
    start = np.concatenate([low[keeps], shares.start])
    stop = np.concatenate([high[keeps], shares.start + shares.size])
    owner = np.concatenate([keeps, shares.dst])
    if not _fill_once(start - goal[owner], stop - goal[owner], owner, tile, after.devices):
        _fail_cover(step, exchange)


def _are_meets(exchange: Exchange) -> bool:
    """Whether every share, known to lie in both tiles, is all that its sender holds of its receiver's tile."""
    before, after, shares = exchange.before, exchange.after, exchange.shares
    held_start, goal = before.start[shares.src], after.start[shares.dst]
    low = np.maximum(held_start, goal)
    high = np.minimum(held_start + np.array(before.tile, dtype=np.int64), goal + np.array(after.tile, dtype=np.int64))
    return bool((high - low == shares.size).all())


def _are_all_cells(exchange: Exchange, holder: Int64, owner: Int64) -> bool:
    """Whether the tiles of the holders are the different cells of the first grid that meet their owner's tile.

    Every holder's tile does meet it, so it is enough that they differ and are as many as there are to meet.
    """
    before, after = exchange.before, exchange.after
    tile = np.array(before.tile, dtype=np.int64)
    cells = (after.start + np.array(after.tile, dtype=np.int64) - 1) // tile - after.start // tile + 1
    if len(owner) != sum(volumes(cells)):
        return False
    number, span = np.zeros(before.devices, dtype=np.int64), 1
    for i, count in enumerate(before.grid):
        number, span = _joined(number, span, before.index[:, i], count)
    key = np.sort(_joined(owner, before.devices, number[holder], span)[0])
    return not (key[1:] == key[:-1]).any()


def _fill_once(low: Int64, high: Int64, owner: Int64, tile: Int64, devices: int) -> bool:
    """Whether the boxes, relative to the tile of their owner, fill it once.

    They do iff their signed corners add up to those of the tile, since a function of bounded support is determined
    by its mixed difference. That needs neither volumes, which may exceed 64 bits, nor all pairs of boxes.
    """
    low = np.concatenate([np.zeros((devices, len(tile)), dtype=np.int64), low])
    high = np.concatenate([np.broadcast_to(tile, (devices, len(tile))), high])
    key, span = np.concatenate([np.arange(devices), owner]), devices
    sign = np.ones(len(key), dtype=np.int64)
    sign[:devices] = -1
    for i, extent in enumerate(tile.tolist()):
        if (low[:, i] == 0).all() and (high[:, i] == extent).all():
            continue  # every box spans the tile here, so corners along it say nothing more
        repeats = len(key) // len(low)
        corner = np.concatenate([np.tile(low[:, i], repeats), np.tile(high[:, i], repeats)])
        key, span = _joined(np.tile(key, 2), span, corner, extent + 1)
        sign = np.concatenate([sign, -sign])
    order = np.argsort(key)
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    return not np.add.reduceat(sign[order], starts).any()


def _joined(key: Int64, span: int, digit: Int64, base: int) -> tuple[Int64, int]:
    """One number for each pair of a key below `span` and a digit below `base`, and a bound on these numbers."""
    if span * base >= 2**62:  # renumber: then both are below the number of rows
        key, digit = (
            np.unique(key, return_inverse=True)[1],
            np.unique(digit, return_inverse=True)[1],
        )
        span, base = int(key.max()) + 1, int(digit.max()) + 1
    return key * base + digit, span * base


def _fail_cover(step: int, exchange: Exchange) -> NoReturn:
    """Find the device whose boxes overlap or leave a gap, and say where."""
    before, after, shares = exchange.before, exchange.after, exchange.shares
    boxes: list[list[tuple[_Box, int]]] = [[] for _ in range(after.devices)]
    goals: list[_Box] = [(tuple(start), after.tile) for start in after.start.tolist()]
    for d, start in enumerate(before.start.tolist()):
        kept = _meet((tuple(start), before.tile), goals[d])
        if kept is not None:
            boxes[d].append((kept, d))
    for src, dst, start, size in zip(
        *(t.tolist() for t in (shares.src, shares.dst, shares.start, shares.size)), strict=True
    ):
        boxes[dst].append(((tuple(start), tuple(size)), src))
    for device, parts in enumerate(boxes):
        for (one, sender), (other, rival) in itertools.combinations(parts, 2):
            common = _meet(one, other)
            if common is not None:
                origin = f"it keeps {box(*one)}" if sender == device else f"device {sender} sends {box(*one)}"
                raise OverlappingSharesError(
                    f"step {step} (exchange) fills {box(*common)} of device {device} twice: {origin} and "
                    f"device {rival} sends {box(*other)}",
                    step,
                    device,
                    senders=(sender, rival),
                    overlap=box(*common),
                )
        filled = sum(math.prod(size) for (_, size), _ in parts)
        if filled != after.tile_size:
            raise UncoveredTileError(
                f"step {step} (exchange) fills only {filled} of the {after.tile_size} elements {held(after, device)} "
                f"of device {device}; what it keeps and what it receives must fill its tile",
                step,
                device,
                filled=filled,
                needed=after.tile_size,
            )
    raise AssertionError("the boxes of every device fill its tile once")


_Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # start and size


def _meet(one: _Box, other: _Box) -> _Box | None:
    low = tuple(max(a, b) for a, b in zip(one[0], other[0], strict=True))
    high = tuple(min(a + n, b + m) for a, n, b, m in zip(one[0], one[1], other[0], other[1], strict=True))
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return None
    return low, tuple(b - a for a, b in zip(low, high, strict=True))


def _share(exchange: Exchange | ReduceExchange, k: int) -> str:
    return box(exchange.shares.start[k], exchange.shares.size[k])
