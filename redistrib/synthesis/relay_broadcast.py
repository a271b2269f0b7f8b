"""Relay broadcasts for hosts of unequal size: a tile that several devices of a host want comes to the host once.

Slices and gathers divide every tile equally on all hosts. They cannot express this: a host of one device has no second
device for a half, and three devices do not divide two halves.
"""

from __future__ import annotations

import numpy as np

from redistrib.plans.steps import Exchange, Step
from redistrib.plans.transfers import missing_parts
from redistrib.synthesis import limits
from redistrib.synthesis.exchange import share_count
from redistrib.synthesis.host_balance import balanced_rounds
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import colour_rounds
from redistrib.theory.placement import Int64, Placement


def relay_broadcast(problem: Problem) -> list[list[Step]]:
    """Two exchanges: one between hosts, in which some devices wait, and one that sends these their tiles inside hosts.

    A device waits if another device of its host wants the same tile, and some of the tile is on other hosts. The tiles
    of a grid are disjoint, so no element receives to a host twice. Empty where no device waits, and for more than
    `limits.UNEQUAL_SHARES` shares.
    """
    before, after, hosts = problem.before, problem.after, problem.topology.hosts
    if hosts is None or not 0 < share_count(problem) <= limits.UNEQUAL_SHARES:
        return []
    waits = _waits(before, after, hosts)
    if not waits.any():
        return []
    index = np.where(waits[:, None], -1, after.index)
    between = Placement.unchecked(after.shape, after.grid, index, after.cuts)
    first, last = problem.between(before, between), problem.between(between, after)
    return [[_in_rounds(first, stay), _in_rounds(last, True)] for stay in (True, False)]


def _in_rounds(problem: Problem, stay: bool) -> Exchange:
    before, after, topology = problem.before, problem.after, problem.topology
    shares = colour_rounds(missing_parts(before, after.boxes), before, topology, stay=stay)
    return Exchange(before, after, balanced_rounds(shares, topology))


def _waits(before: Placement, after: Placement, hosts: Int64) -> np.ndarray:
    """`[devices]` whether each device waits for another device of its host that wants the same tile.

    The device that holds most of the tile does not wait.
    """
    overlap = after.boxes.meet(before.boxes).volumes()
    order = sorted(range(after.devices), key=lambda device: (-overlap[device], device))
    on_host = set(zip(hosts.tolist(), before.number.tolist(), strict=True))
    missing = missing_parts(before, after.boxes)
    columns = missing.receiver, hosts[missing.receiver], missing.tile
    rows = zip(*(column.tolist() for column in columns), strict=True)
    receives = {receiver for receiver, host, tile in rows if (host, tile) not in on_host}
    served: set[tuple[int, int]] = set()
    waits = np.zeros(after.devices, dtype=bool)
    for device in order:
        tile = int(hosts[device]), int(after.number[device])
        waits[device] = tile in served and device in receives
        served.add(tile)
    return waits
