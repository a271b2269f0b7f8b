"""Measured collectives, as backends report them to the fit of a cost model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One collective, timed.

    Attributes:
        kind: "allgather", "alltoall" or "allpermute".
        members: devices in a group; 2 for a permute.
        received: bytes that the busiest device receives from others.
        copied: bytes copied locally around the collective.
        seconds: the median of the repeats, warm-up left out.
        spread: half the distance between the quartiles, in seconds.
        transport: name of the transport; empty for a backend with one.
    """

    kind: str
    members: int
    received: int
    copied: int
    seconds: float
    spread: float
    transport: str = ""
