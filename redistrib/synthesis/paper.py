"""The paper's algorithm alone: shortest path over weak types, then lowering (Sections 6 and 7)."""

from __future__ import annotations

import math
from dataclasses import replace

from redistrib.plans.steps import Step
from redistrib.synthesis.cost import CostModel
from redistrib.synthesis.lowering import lower_straight, lower_with_permute
from redistrib.synthesis.search import Crossing, Limit, Search, shortest_paths
from redistrib.theory.semantics import Placement
from redistrib.theory.weak import WeakSpace

# On many devices a path takes long to lower, and there are more of them. So there the search is shorter: nodes expanded
# times devices, and tiles dealt out to devices before the best plan so far is taken.
MOST_VISITED = 1 << 20
MOST_PLACED = 1 << 17
LEAST_VISITS = 120


def paper_steps(
    before: Placement, after: Placement, model: CostModel, search: Search, itemsize: int, limit: Limit | None = None
) -> list[Step] | None:
    """The paper's plan: the cheapest weak path, lowered, a permute priced in (Sections 6 and 7).

    Among plans of one price, one without a permute is taken. None if no path is below `search.below`; if then
    `limit.skipped` is still false, no sequence of the paper's collectives is.
    """
    space = WeakSpace(before.shape, before.devices, max(before.tile_size, after.tile_size))
    model = model.for_items(itemsize)
    hosts = model.hosts(before.devices)
    best: list[Step] | None = None
    best_key: tuple[float, ...] = (math.inf, 0)
    limit = limit or Limit()
    search = replace(search, expansions=min(search.expansions, max(LEAST_VISITS, MOST_VISITED // before.devices)))
    left = MOST_PLACED
    crossing = Crossing.of(before, after, hosts)
    for count, path in enumerate(shortest_paths(space, before.grid, after.grid, model, search, limit, crossing)):
        if (path.cost, 0) >= best_key[:2]:
            break
        left -= len(path.grids) * before.devices
        if best is not None and (count >= search.paths or left < 0):
            limit.skipped = True
            break
        steps = lower_straight(path.grids, before, after, hosts)
        if steps is None:
            permute = max(0.0, model.permute_at_least(space, path.grids) - path.reseat)  # one permute is enough
            if path.cost + permute >= min(best_key[0], search.below):
                continue
            steps = lower_with_permute(path.grids, before, after, hosts)
        cost, *rest = model.key(steps, itemsize)
        key = (cost, sum(step.kind == "allpermute" for step in steps), *rest)
        if key < best_key:
            best, best_key = steps, key
            limit.price = cost
    return best
