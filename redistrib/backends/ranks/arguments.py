"""The arguments that ranks compare before they prepare anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redistrib.errors import CommunicatorError, TilesError
from redistrib.errors.base import shown
from redistrib.report import counted
from redistrib.sizes import parse_size


def compared_arguments(
    kind: str, runnable: Any, sort: type, digest: Callable[[Any], str], limit: Any
) -> tuple[str, int | None]:
    """The digest of what is to be run, and the memory limit in bytes.

    A backend calls it before its ranks meet, and tells an error to all ranks.

    Args:
        kind: "plan" or "program", for messages.
        runnable: what a caller gives for one.
        sort: the class of `runnable`.
        digest: of a `runnable`, equal on all ranks with an equal one.
        limit: bytes, a text such as "2GiB", or None.

    Raises:
        CommunicatorError: if `runnable` is of another class.
        ChoiceError: if the limit has no meaning.
    """
    is_one = isinstance(runnable, sort)  # on its own, because it would narrow the type
    if not is_one:
        raise CommunicatorError(f"{shown(runnable)} is no {kind}; give one, for example from its JSON or text")
    return digest(runnable), None if limit is None else parse_size(limit)


def require_absent(tile: object, subject: str) -> None:
    """Refuse a tile on a rank that holds none.

    Raises:
        TilesError: if it is not None; it names the subject.
    """
    if tile is not None:
        raise TilesError(f"{subject} is given where this rank holds nothing; pass None")


def require_rank_each(what: str, devices: int, where: str, ranks: int, way_out: str) -> None:
    """Refuse processes of which there is not one for each device.

    Args:
        what: the words before the number of devices, such as "the mesh has".
        devices: number of devices.
        where: what has `ranks` ranks, for the message.
        ranks: number of processes.
        way_out: what gives as many ranks.

    Raises:
        CommunicatorError: names both numbers.
    """
    if ranks != devices:
        raise CommunicatorError(
            f"{what} {counted(devices, 'device', 'devices')} and {where} has {counted(ranks, 'rank', 'ranks')}; "
            f"give it one rank per device, for example with {way_out}"
        )
