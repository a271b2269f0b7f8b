"""Is a slice or a permute correct? A slice leaves every device a part of its tile; a permute moves whole tiles."""

from __future__ import annotations

import numpy as np

from redistrib.errors import VerificationError
from redistrib.plans._diagnostics import check_holds, check_numbers, describe, fail_grids, first
from redistrib.plans.steps import AllPermute, DynSlice
from redistrib.theory.placement import Int64


def check_dynslice(number: int, step: DynSlice) -> None:
    """Check that every device keeps a part of its tile, all parts of one size.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after = step.before, step.after
    if any(a % b for b, a in zip(before.grid, after.grid, strict=True)):
        why = "a slice cuts every tile into equal parts, so each count must be a multiple of the one before"
        fail_grids(number, step, "slice grid", why)
    outside = (after.coarse(before.grid) != before.index) & ~after.nowhere[:, None]
    if outside.any():
        device = first(outside.any(axis=1))
        raise VerificationError(
            "slice outside tile",
            f"step {number} (dynslice) leaves device {device} with {describe(after, device)}, "
            f"which is not part of the {describe(before, device)} it held",
            number,
            device,
            held=describe(before, device),
            kept=describe(after, device),
        )


def check_allpermute(number: int, step: AllPermute) -> None:
    """Check that every device ends with the received tile, or else its tile before, each sent and received once.

    Raises:
        VerificationError: for the first rule that is broken.
    """
    before, after = step.before, step.after
    if before.grid != after.grid:
        fail_grids(number, step, "permute grid", "a permute moves whole tiles, so the grid stays")
    sender, receiver = step.pairs[:, 0], step.pairs[:, 1]
    check_numbers(number, "allpermute", "a pair", step.pairs.ravel(), step.devices)
    if (sender == receiver).any():
        device = int(sender[first(sender == receiver)])
        raise VerificationError(
            "self send",
            f"step {number} (allpermute) has device {device} send to itself; leave the pair out",
            number,
            device,
        )
    check_holds(number, step, sender)
    _check_once(number, sender, "send", "duplicate sender", step.devices)
    _check_once(number, receiver, "receive", "duplicate receiver", step.devices)
    origin = np.arange(step.devices)
    origin[receiver] = sender
    wrong = after.index != before.index[origin]
    if wrong.any():
        device = first(wrong.any(axis=1))
        if origin[device] == device:
            raise VerificationError(
                "idle tile",
                f"step {number} (allpermute) sends device {device} nothing, yet it goes from "
                f"{describe(before, device)} to {describe(after, device)}",
                number,
                device,
                held=describe(before, device),
                ends=describe(after, device),
            )
        raise VerificationError(
            "permuted tile",
            f"step {number} (allpermute) sends device {device} the {describe(before, int(origin[device]))} that device "
            f"{origin[device]} holds, yet it ends with {describe(after, device)}",
            number,
            device,
            sender=int(origin[device]),
            sent=describe(before, int(origin[device])),
            ends=describe(after, device),
        )


def _check_once(number: int, devices: Int64, verb: str, rule: str, count: int) -> None:
    times = np.bincount(devices, minlength=count)
    if times.max() > 1:
        device = first(times > 1)
        raise VerificationError(
            rule,
            f"step {number} (allpermute) has device {device} {verb} {times[device]} tiles; "
            "a permute moves at most one tile from and to each device",
            number,
            device,
            times=int(times[device]),
        )
