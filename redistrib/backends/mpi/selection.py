"""The selection of a transport for each stage: the fastest by the profile that fits the memory limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from redistrib.cost.latency import LatencyBandwidth
from redistrib.cost.presets import cost_model
from redistrib.errors import ProfileError
from redistrib.errors.base import shown
from redistrib.plans.data import Short

TRANSPORTS = ("shared", "packed", "datatypes")


def profile_of_transports(machine: Any) -> LatencyBandwidth:
    """A profile with figures of the transports, from any form that `cost_model` reads.

    Raises:
        ProfileError: if it lacks these figures or is no profile.
        ChoiceError: if it is no machine.
    """
    model = cost_model(machine)
    transports = model.transports if isinstance(model, LatencyBandwidth) else {}
    missing = [name for name in TRANSPORTS if name not in transports and name != "shared"]  # which hosts may lack
    if missing or not isinstance(model, LatencyBandwidth):
        raise ProfileError(
            f"profile {shown(model.name)} cannot choose a transport: it has no figures for "
            f"{' and '.join(map(repr, missing))}; write one with `mpiexec -n RANKS python -m mpi4py -m redistrib "
            f"calibrate --backend mpi -o FILE`, or leave machine out"
        )
    return model


def predicted(profile: LatencyBandwidth | None, name: str, members: int, nbytes: int) -> float:
    """Seconds of a stage by a transport; without a profile, the rank of the transport in the default order.

    Args:
        profile: the result of `profile_of_transports`, or None.
        name: the transport.
        members: devices that send to one another.
        nbytes: bytes that the busiest device receives.
    """
    if profile is None:
        return float(TRANSPORTS.index(name)) if name in TRANSPORTS else 0.0
    launch, member, per_byte = profile.transports.get(name, (math.inf, 0.0, 0.0))
    return launch + member * (members - 1) + per_byte * nbytes


def choose(
    stages: Sequence[Mapping[str, tuple[float, int]]], needed: int, limit: int | None, at_once: frozenset[str]
) -> list[str] | Short:
    """The transport of every stage, or the least limit if nothing fits.

    Args:
        stages: for each stage its possible transports, with predicted seconds and bytes of scratch.
        needed: bytes of source, target and the tiles between, for any choice.
        limit: bytes per device, or None.
        at_once: transports whose scratch adds up over the stages; the others reuse one staging memory.
    """
    chosen: list[str] = []
    staging = lasting = 0
    for options in stages:
        for name in sorted(options, key=lambda n: options[n][0]):
            scratch = options[name][1]
            total = needed + (lasting + scratch + staging if name in at_once else lasting + max(staging, scratch))
            if limit is None or total <= limit:
                chosen.append(name)
                if name in at_once:
                    lasting += scratch
                else:
                    staging = max(staging, scratch)
                break
        else:
            return Short(needed + max(min(scratch for _, scratch in o.values()) for o in stages))
    return Short(needed) if limit is not None and needed > limit else chosen
