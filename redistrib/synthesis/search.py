"""Shortest paths over the weak graph (Section 7.2).

Nodes are weak types within the memory bound, edges multi-axis weak collectives, weights a cost model's. Paths come out
cheapest first, so that the lowering can pass over one whose devices would need a permute.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from redistrib.arith import prime_factors
from redistrib.synthesis.cost import CostModel
from redistrib.theory.weak import EdgeKind, Grid, WeakEdge, WeakSpace, edges, multiples, refined

PHASES: tuple[tuple[EdgeKind, ...], ...] = (("alltoall", "allgather"), ("allgather",))
ANY: tuple[EdgeKind, ...] = ("dynslice", "alltoall", "allgather")


@dataclass(frozen=True)
class WeakPath:
    """A sequence of weak collectives and its price.

    Attributes:
        grids: the weak types visited, source first. The first step may slice several dimensions at once.
        cost: the sum of the edge prices.
    """

    grids: tuple[Grid, ...]
    cost: float


@dataclass(frozen=True)
class Search:
    """How hard to look.

    Attributes:
        over_partition: whether to slice along replicated axes further than source and target ask (Figure 12).
        expansions: nodes expanded before the search stops with what it has found.
        revisits: how many paths through one node are followed.
        paths: how many paths the caller looks at before it takes the best.
        below: paths that cost this much or more are of no interest.
    """

    over_partition: bool = True
    expansions: int = 20_000
    revisits: int = 6
    paths: int = 4_096
    below: float = math.inf


def shortest_paths(
    space: WeakSpace, source: Grid, target: Grid, model: CostModel, search: Search | None = None
) -> Iterator[WeakPath]:
    """Paths from source to target, cheapest first.

    In a model where normal forms suffice (Lemma 6.5) only those are searched: one slice, all-to-alls, gathers.
    """
    search = search or Search()
    if model.normal_forms_suffice:
        yield from _normal_forms(space, source, target, model, search)
    else:
        yield from _any_order(space, source, target, model, search)


def _normal_forms(space: WeakSpace, source: Grid, target: Grid, model: CostModel, search: Search) -> Iterator[WeakPath]:
    tick = count()
    queue: list[tuple[float, int, int, float, Grid, int, tuple[Grid, ...]]] = []
    at_target = math.prod(target)

    def at_least(grid: Grid, phase: int) -> float:
        growing = [i for i, (c, t) in enumerate(zip(grid, target, strict=True)) if c % t]
        if phase and growing:
            return math.inf
        # Every dimension still to grow costs an all-to-all by a prime or more; being too fine costs one last gather.
        estimate = 0.0
        for i in growing:
            p = prime_factors(target[i] // math.gcd(grid[i], target[i]))[0]
            estimate += model.edge(WeakEdge("alltoall", grid, grid, i, i, p), space)
        surplus = math.prod(grid) // at_target
        if surplus > 1:
            estimate += min(
                model.edge(WeakEdge("allgather", target, target, 0, 0, p), space) for p in set(prime_factors(surplus))
            )
        return estimate

    def push(cost: float, grid: Grid, phase: int, path: tuple[Grid, ...]) -> None:
        estimate = cost + at_least(grid, phase)
        if estimate < search.below:
            heapq.heappush(queue, (estimate, len(path), next(tick), cost, grid, phase, path))

    plain = math.lcm(math.prod(source), at_target)
    for grid in multiples(source, space):
        if math.prod(grid) % at_target:
            continue
        if not search.over_partition and math.prod(grid) > plain:
            continue
        if space.is_node(grid):
            push(0.0, grid, 0, (source,) if grid == source else (source, grid))

    visits: dict[tuple[Grid, int], int] = {}
    expanded = 0
    while queue and expanded < search.expansions:
        _, _, _, cost, grid, phase, path = heapq.heappop(queue)
        if grid == target:
            yield WeakPath(path, cost)
            continue
        seen = visits.get((grid, phase), 0)
        if seen >= search.revisits:
            continue
        visits[(grid, phase)] = seen + 1
        expanded += 1
        for edge in edges(space, grid, PHASES[phase]):
            if edge.target not in path:
                gathers = edge.kind == "allgather"
                if gathers and edge.target[edge.dim] % target[edge.dim]:
                    continue
                push(cost + model.edge(edge, space), edge.target, int(gathers), (*path, edge.target))


def _any_order(space: WeakSpace, source: Grid, target: Grid, model: CostModel, search: Search) -> Iterator[WeakPath]:
    tick = count()
    queue: list[tuple[float, int, int, Grid, tuple[Grid, ...]]] = [(0.0, 0, next(tick), source, (source,))]
    most = math.prod(refined(source, target))
    visits: dict[Grid, int] = {}
    expanded = 0
    while queue and expanded < search.expansions:
        cost, _, _, grid, path = heapq.heappop(queue)
        if grid == target:
            yield WeakPath(path, cost)
            continue
        seen = visits.get(grid, 0)
        if seen >= search.revisits:
            continue
        visits[grid] = seen + 1
        expanded += 1
        for edge in edges(space, grid, ANY):
            if edge.target in path or (not search.over_partition and math.prod(edge.target) > most):
                continue
            onward = cost + model.edge(edge, space)
            if onward < search.below:
                heapq.heappush(queue, (onward, len(path), next(tick), edge.target, (*path, edge.target)))
