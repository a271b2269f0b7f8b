"""Which realisation a stage gets: the fastest by profile that fits the memory limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from redistrib.errors import MemoryLimitError, ProfileError

REALISATIONS = ("shared", "packed", "datatypes")


def predicted(profile: Mapping[str, Any] | None, name: str, members: int, nbytes: int) -> float:
    """Seconds that a realisation takes for a stage, or its place in the usual order without a profile.

    Args:
        profile: what `calibrate.run` returned, or None.
        name: the realisation.
        members: devices that share data.
        nbytes: bytes that the busiest device receives.

    Raises:
        ProfileError: if the profile holds no such figures.
    """
    if profile is None or "realisations" not in profile:
        return float(REALISATIONS.index(name))
    table = profile["realisations"]
    if name not in table:
        return math.inf
    try:
        launch, member, per_byte = (float(v) for v in table[name])
    except (TypeError, ValueError):
        raise ProfileError(
            f"the profile's figures for {name!r} are {table[name]!r}; three numbers are needed: seconds a launch, "
            f"seconds a member, seconds a byte; write a profile with `redistrib calibrate --backend mpi`"
        ) from None
    return launch + member * (members - 1) + per_byte * nbytes


def choose(
    stages: Sequence[Mapping[str, tuple[float, int]]], needed: int, limit: int | None, at_once: frozenset[str]
) -> list[str]:
    """The realisation of every stage.

    Args:
        stages: for each stage its possible realisations, with predicted seconds and bytes of scratch.
        needed: bytes needed whatever is chosen: source, target and what lies between.
        limit: bytes per device, or None.
        at_once: realisations whose scratch adds up over the stages; others reuse one staging memory.

    Raises:
        MemoryLimitError: if nothing fits.
    """
    chosen: list[str] = []
    staging = standing = 0
    for options in stages:
        for name in sorted(options, key=lambda n: options[n][0]):
            scratch = options[name][1]
            total = needed + (standing + scratch + staging if name in at_once else standing + max(staging, scratch))
            if limit is None or total <= limit:
                chosen.append(name)
                if name in at_once:
                    standing += scratch
                else:
                    staging = max(staging, scratch)
                break
        else:
            least = needed + max(min(scratch for _, scratch in o.values()) for o in stages)
            raise MemoryLimitError(limit if limit is not None else 0, least)
    if limit is not None and needed > limit:
        raise MemoryLimitError(limit, needed)
    return chosen
