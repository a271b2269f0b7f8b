"""The paper's algorithm alone: shortest path over weak types, then lowering (Sections 6 and 7)."""

from __future__ import annotations

import math
from dataclasses import replace

from redistrib.cost.model import CostModel
from redistrib.plans.steps import Step
from redistrib.synthesis import limits
from redistrib.synthesis.paper.lowering import lower_straight, lower_with_permute
from redistrib.synthesis.paper.search import Crossing, Search, SearchState, shortest_paths
from redistrib.synthesis.problem import Problem


def paper_steps(
    problem: Problem, model: CostModel, search: Search, state: SearchState | None = None
) -> list[Step] | None:
    """The paper's plan: the cheapest weak path, lowered, a permute priced in (Sections 6 and 7).

    Among plans of one price, one without a permute is taken. None if no path is below `search.below`; if then
    `state.skipped` is still false, no sequence of the paper's collectives is.
    """
    before, after, space = problem.before, problem.after, problem.space
    prices = model.prices(problem.itemsize, problem.topology)
    best: list[Step] | None = None
    best_key: tuple[float, ...] = (math.inf, 0)
    state = state or SearchState()
    search = replace(
        search, expansions=min(search.expansions, max(limits.LEAST_VISITED, limits.VISITED_NODES // before.devices))
    )
    left = limits.PLACED_TILES
    crossing = Crossing.of(problem)
    for count, path in enumerate(shortest_paths(space, before.grid, after.grid, prices, search, state, crossing)):
        if (path.cost, 0) >= best_key[:2]:
            break
        left -= len(path.grids) * before.devices
        if best is not None and (count >= search.paths or left < 0):
            state.skipped = True
            break
        steps = lower_straight(path.grids, problem)
        if steps is None:
            # Where the path ends on the wrong hosts, its price has a permute in it, and one is enough.
            permute = max(0.0, prices.permute_at_least(space, path.grids) - path.cross_host_permute)
            if path.cost + permute >= min(best_key[0], search.below):
                continue
            steps = lower_with_permute(path.grids, problem)
        cost, *rest = prices.key(steps)
        key = (cost, sum(step.kind == "allpermute" for step in steps), *rest)
        if key < best_key:
            best, best_key = steps, key
            state.price = cost
    return best
