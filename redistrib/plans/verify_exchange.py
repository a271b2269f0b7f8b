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
            f"{describe(exchange.before, sender)}",
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
            f"{describe(exchange.after, receiver)}",
            step,
            receiver,
            sender=int(shares.src[k]),
            share=_share(exchange, k),
        )


def _first_outside(exchange: Exchange | ReduceExchange, placement: Placement, device: Int64) -> int | None:
    """The first share outside the tile of its device."""
    shares = exchange.shares
    low, extent = placement.start[device], placement.boxes.size[device]
    nowhere = placement.nowhere[device]
    # not start + size, which exceeds 64 bits in a hostile plan
    outside = (shares.start < low) | (shares.size > low + extent - shares.start)
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


def _share(exchange: Exchange | ReduceExchange, k: int) -> str:
    return box(exchange.shares.start[k], exchange.shares.size[k])
