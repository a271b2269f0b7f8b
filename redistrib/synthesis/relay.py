"""Plans for hosts of unequal size: what several devices of a host want comes to the host once, and is handed on there.

Slices and gathers treat all hosts alike, and so cannot say that: a host of one device has nobody to share with, and
three do not share out two halves.
"""

from __future__ import annotations

import numpy as np

from redistrib.plans.steps import Exchange, Step
from redistrib.synthesis.even import even_rounds
from redistrib.synthesis.exchange import MOST_UNEQUAL, lacking_shares, share_count
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import colour_rounds
from redistrib.theory.placement import Int64, Placement


def handed_on(problem: Problem) -> list[list[Step]]:
    """An exchange in which some devices wait, and one in which these are sent their tiles by others of their hosts.

    Those wait that want the same tile as another of their host, and would have to be sent some of it by other hosts.
    As the tiles of a grid have nothing in common, no element comes to a host twice. Empty where nobody has to wait, and
    for more shares than there is the time to arrange.
    """
    before, after, hosts = problem.before, problem.after, problem.topology.hosts
    if hosts is None or not 0 < share_count(problem) <= MOST_UNEQUAL:
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
    shares = colour_rounds(lacking_shares(before, after), before, topology, stay=stay)
    return Exchange(before, after, even_rounds(shares, topology))


def _waits(before: Placement, after: Placement, hosts: Int64) -> np.ndarray:
    """`[devices]` whether each device waits for another of its host that wants the same tile.

    The one that holds most of it does not.
    """
    held = after.boxes.meet(before.boxes).volumes()
    order = sorted(range(after.devices), key=lambda device: (-held[device], device))
    here = set(zip(hosts.tolist(), before.number.tolist(), strict=True))
    comes = {row[0] for row in lacking_shares(before, after) if (int(hosts[row[0]]), row[1]) not in here}
    served: set[tuple[int, int]] = set()
    waits = np.zeros(after.devices, dtype=bool)
    for device in order:
        tile = int(hosts[device]), int(after.number[device])
        waits[device] = tile in served and device in comes
        served.add(tile)
    return waits
