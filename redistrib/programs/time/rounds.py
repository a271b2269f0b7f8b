"""The rounds of a step of a plan, and the links that carry it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from redistrib.errors import RedistribError
from redistrib.plans.steps import AllReduce, Step
from redistrib.theory.topology import Topology


def rounds_of(step: Step, topology: Topology) -> tuple[bool, list[int]]:
    """Whether a step crosses between hosts, and the elements of the largest share of each round.

    There are no rounds of a reduction, which the platform's own collective does.
    """
    if isinstance(step, AllReduce):
        of = None if topology.hosts is None else topology.hosts[step.groups]
        return of is not None and bool((of != of[:, :1]).any()), []
    try:
        table = step.transfers()
    except RedistribError:
        return False, []
    hosts = topology.hosts
    crosses = hosts is not None and bool((hosts[table.sender] != hosts[table.receiver]).any())
    largest: dict[int, int] = defaultdict(int)
    for number_, volume in _volumes(table.round.tolist(), table.box.size.tolist()):
        largest[number_] = max(largest[number_], volume)
    return crosses, [largest[number_] for number_ in sorted(largest)]


def _volumes(rounds: list[int], sizes: list[list[int]]) -> Iterator[tuple[int, int]]:
    return ((number_, math.prod(size)) for number_, size in zip(rounds, sizes, strict=True))
