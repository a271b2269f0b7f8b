"""Is an exchange correct? Shares travel from holders to devices that lack them, every element once."""

from __future__ import annotations

import numpy as np

from redistrib.errors import VerificationError
from redistrib.plans._diagnostics import box, check_numbers, describe, first
from redistrib.plans.steps import Exchange, ReduceExchange
from redistrib.plans.verify_cover import check_cover
from redistrib.theory.placement import Int64, Placement


def check_exchange(step: int, exchange: Exchange) -> None:
    """Check the shares and rounds of an exchange.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    check_shares(step, exchange)
    check_cover(step, exchange)


def check_shares(step: int, exchange: Exchange | ReduceExchange) -> None:
    """Check that shares lie in the tiles of their senders and receivers, and check their rounds.

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
    """Check that every share lies in the tile of its sender before and of its receiver after the step."""
    shares, rank = exchange.shares, exchange.before.rank
    start, size = shares.box.start.shape, shares.box.size.shape
    if not start == size == (len(shares), rank):
        raise VerificationError(
            "share rank",
            f"step {step} ({exchange.kind}) has boxes of rank {start[-1]} and {size[-1]} "
            f"(start and size), its array has rank {rank}",
            step,
            start=start[-1],
            size=size[-1],
            rank=rank,
        )
    check_numbers(step, exchange.kind, "a box", shares.sender, exchange.devices)
    check_numbers(step, exchange.kind, "a box", shares.receiver, exchange.devices)
    itself = shares.sender == shares.receiver
    if itself.any():
        device = int(shares.sender[first(itself)])
        raise VerificationError(
            "self send",
            f"step {step} ({exchange.kind}) has device {device} send to itself; what a device keeps is no box",
            step,
            device,
        )
    empty = (shares.box.size < 1).any(axis=1)
    if empty.any():
        k = first(empty)
        size = tuple(shares.box.size[k].tolist())
        raise VerificationError(
            "empty share",
            f"step {step} ({exchange.kind}) has device {shares.sender[k]} send device {shares.receiver[k]} "
            f"a box of size {size}; leave out boxes without elements",
            step,
            int(shares.sender[k]),
            receiver=int(shares.receiver[k]),
            size=size,
        )
    unheld = _first_outside(exchange, exchange.before, shares.sender)
    if unheld is not None:
        k = unheld
        sender = int(shares.sender[k])
        raise VerificationError(
            "share not held",
            f"step {step} ({exchange.kind}) has device {sender} send {_share(exchange, k)}, but it holds "
            f"{describe(exchange.before, sender)}",
            step,
            sender,
            receiver=int(shares.receiver[k]),
            share=_share(exchange, k),
        )
    unwanted = _first_outside(exchange, exchange.after, shares.receiver)
    if unwanted is not None:
        k = unwanted
        receiver = int(shares.receiver[k])
        raise VerificationError(
            "share not wanted",
            f"step {step} ({exchange.kind}) has device {receiver} receive {_share(exchange, k)}, but it ends with "
            f"{describe(exchange.after, receiver)}",
            step,
            receiver,
            sender=int(shares.sender[k]),
            share=_share(exchange, k),
        )


def _first_outside(exchange: Exchange | ReduceExchange, placement: Placement, device: Int64) -> int | None:
    """The first share outside the tile of its device."""
    shares = exchange.shares
    low, extent = placement.start[device], placement.boxes.size[device]
    nowhere = placement.nowhere[device]
    # not start + size, which exceeds 64 bits in a hostile plan
    outside = (shares.box.start < low) | (shares.box.size > low + extent - shares.box.start)
    if not outside.any() and not nowhere.any():
        return None
    return first(outside.any(axis=1) | nowhere)


def _check_rounds(step: int, exchange: Exchange | ReduceExchange) -> None:
    """Check that rounds count from 0, with at most one send and one receipt per device in each."""
    shares, count = exchange.shares, len(exchange.shares)
    rounds = shares.round
    if rounds.min() < 0 or rounds.max() >= count:
        k = first((rounds < 0) | (rounds >= count))
        raise VerificationError(
            "round number",
            f"step {step} ({exchange.kind}) has a box in round {rounds[k]}; {count} boxes travel in rounds "
            f"numbered from 0, at most to {count - 1}",
            step,
            int(shares.sender[k]),
            round=int(rounds[k]),
        )
    used = np.bincount(rounds)
    if not used.all():
        gap = first(used == 0)
        raise VerificationError(
            "round number",
            f"step {step} ({exchange.kind}) has no box in round {gap}, but some in round {len(used) - 1}; "
            "rounds are numbered without gaps",
            step,
            round=gap,
        )
    for device, verb, rule in (
        (shares.sender, "send", "round sender"),
        (shares.receiver, "receive", "round receiver"),
    ):
        key = rounds * exchange.devices + device  # below shares * devices
        ordered = np.sort(key)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            number, at_fault = divmod(int(ordered[first(twice)]), exchange.devices)
            raise VerificationError(
                rule,
                f"step {step} ({exchange.kind}) has device {at_fault} {verb} more than one box in round {number}; "
                "put them in different rounds",
                step,
                at_fault,
                round=number,
            )


def _share(exchange: Exchange | ReduceExchange, k: int) -> str:
    return box(exchange.shares.box.start[k], exchange.shares.box.size[k])
