"""Shortest paths over the weak graph (Section 7.2).

Nodes are weak types within the memory bound, edges multi-axis weak collectives, weights a cost model's. Paths come out
cheapest first, so that the lowering can pass over one whose devices would need a permute.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from redistrib.arith import prime_factors
from redistrib.cache import cached
from redistrib.cost.model import Prices
from redistrib.synthesis.problem import Problem
from redistrib.theory.classes import LinkClasses, Node, node_of, split_edges
from redistrib.theory.weak import EdgeKind, Grid, WeakEdge, WeakSpace, edges, multiples, refined

SHRINKING: tuple[EdgeKind, ...] = ("allgather",)
SHUFFLING: tuple[EdgeKind, ...] = ("alltoall", "allgather")
ANY: tuple[EdgeKind, ...] = ("dynslice", "alltoall", "allgather")

_Hop: TypeAlias = tuple[Grid, float, bool]  # where to, at what price, whether by a gather


@dataclass(frozen=True)
class WeakPath:
    """A sequence of weak collectives and its price.

    Attributes:
        grids: the weak types visited, source first. Two neighbours may differ by a slice over several dimensions.
        cost: the sum of the edge prices, and of `cross_host_permute`.
        cross_host_permute: the price of a permute to the right hosts, where the path ends on the wrong ones.
    """

    grids: tuple[Grid, ...]
    cost: float
    cross_host_permute: float = 0.0


@dataclass(frozen=True)
class Crossing:
    """The factors of source and target tiles that cross hosts, whose links are slower.

    Attributes:
        classes: the hosts.
        source, target: per dimension, the factor of its tiles that lies on different hosts.
    """

    classes: LinkClasses
    source: Grid
    target: Grid

    @classmethod
    def of(cls, problem: Problem) -> Crossing | None:
        """The factors of a problem; None where there is one host, or hosts hold different numbers of tiles."""
        topology = problem.topology
        classes = LinkClasses.of(topology)
        nodes = node_of(problem.before, topology), node_of(problem.after, topology)
        if classes.hosts == 1 or nodes[0] is None or nodes[1] is None:
            return None
        return cls(classes, nodes[0][1], nodes[1][1])


@dataclass(frozen=True)
class Search:
    """The effort of a search.

    Attributes:
        over_partition: whether to slice along replicated axes further than source and target ask (Figure 12).
        expansions: nodes expanded before the search stops.
        needed: whether the search goes on beyond that until the first plan.
        revisits: number of paths followed through one node, for each slice that they begin with.
        ties: nodes expanded on paths of exactly the price of the best plan so far.
        paths: number of paths that the caller lowers before it takes the best.
        below: the search drops paths that cost this much or more.
    """

    over_partition: bool = True
    expansions: int = 5_000
    needed: bool = True
    revisits: int = 6
    ties: int = 600
    paths: int = 1_024
    below: float = math.inf


@dataclass
class SearchState:
    """The state of a running search.

    Attributes:
        price: price of the best plan so far, written by the caller; the search drops dearer paths.
        expanded: nodes expanded so far, written by the search.
        skipped: whether the search left out a path that is not too dear, written by the search.
    """

    price: float = math.inf
    expanded: int = 0
    skipped: bool = False

    def goes_on(self, search: Search) -> bool:
        """Whether effort is left, or a first plan is still needed."""
        return self.expanded < search.expansions or (search.needed and self.price == math.inf)


def shortest_paths(
    space: WeakSpace,
    source: Grid,
    target: Grid,
    prices: Prices,
    search: Search | None = None,
    state: SearchState | None = None,
    crossing: Crossing | None = None,
) -> Iterator[WeakPath]:
    """Paths from source to target, cheapest first.

    In a model where normal forms suffice (Lemma 6.5) only those are searched: one slice, all-to-alls, gathers.
    Otherwise, where links between hosts are slower, edges are priced by the factors that cross hosts, which start and
    end at those of `crossing`.
    """
    graph = _Graph(space, source, target, prices)
    search, state = search or Search(), state or SearchState()
    if prices.model.normal_forms_suffice:
        yield from _normal_forms(graph, search, state)
    else:
        plain = (1,) * len(source)
        yield from _any_order(graph, search, state, crossing or Crossing(LinkClasses(1, space.devices), plain, plain))


def used_dimensions(space: WeakSpace, source: Grid, target: Grid) -> tuple[int, ...]:
    """The dimensions worth cutting: those cut in source or target, and one more to over-partition.

    Dimensions cut in neither are alike. One that takes as many tiles as there are devices can stand in for all others:
    tile numbers along two of them make one tile number along it, and a path is never dearer for that.
    """
    idle = [i for i, (s, t) in enumerate(zip(source, target, strict=True)) if s == t == 1]
    roomy = [i for i in idle if space.shape[i] % space.devices == 0]
    spare = roomy[-1:] or idle
    return tuple(i for i in range(len(source)) if i not in idle or i in spare)


class _Graph:
    """The weak graph of one problem, each node's edges and estimate computed once."""

    def __init__(self, space: WeakSpace, source: Grid, target: Grid, prices: Prices) -> None:
        self.space, self.source, self.target, self.prices = space, source, target, prices
        self.dims = used_dimensions(space, source, target)
        self.at_target = math.prod(target)
        self._edges: dict[tuple[Grid, tuple[EdgeKind, ...]], list[_Hop]] = {}
        self._split_edges: dict[Node, list[tuple[Node, float]]] = {}
        self._estimates: dict[tuple[Grid, int], float] = {}

    def edges(self, grid: Grid, kinds: tuple[EdgeKind, ...]) -> list[_Hop]:
        """The targets and prices of the weak collectives of these kinds."""
        hops = self._edges.get((grid, kinds))
        if hops is None:
            price, space = self.prices.edge, self.space
            hops = [
                (edge.target, price(edge, space), edge.kind == "allgather")
                for edge in edges(space, grid, kinds, self.dims)
            ]
            self._edges[grid, kinds] = hops
        return hops

    def split_edges(self, node: Node, classes: LinkClasses) -> list[tuple[Node, float]]:
        """The targets and prices of all weak collectives, split between the classes of links."""
        hops = self._split_edges.get(node)
        if hops is None:
            price, space = self.prices.edge, self.space
            if classes.hosts == 1:
                hops = [((onto, node[1]), cost) for onto, cost, _ in self.edges(node[0], ANY)]
            else:
                hops = [(onto, price(edge, space)) for edge, onto in split_edges(space, classes, node, ANY, self.dims)]
            self._split_edges[node] = hops
        return hops

    def cross_host_permute(self, path: Sequence[Node]) -> float:
        """Price of a permute to the right hosts, at the smallest tile of a path."""
        return self.prices.cross_host_permute(self.space, max((grid for grid, _ in path), key=math.prod))

    def normal_form_remaining(self, grid: Grid, phase: int) -> float:
        """A lower bound on the price of normal forms from here to the target; in phase 1 only gathers remain."""
        estimate = self._estimates.get((grid, phase))
        if estimate is None:
            estimate = self._estimates[grid, phase] = self._normal_form_remaining(grid, phase)
        return estimate

    def _normal_form_remaining(self, grid: Grid, phase: int) -> float:
        space, target, price = self.space, self.target, self.prices.edge
        growing = [t // math.gcd(c, t) for c, t in zip(grid, target, strict=True) if c % t]
        surplus = math.prod(grid) // self.at_target
        if phase and growing:
            return math.inf
        # Factors m1, m2, ... that a dimension takes up cost at least as much as their product, and so do gathers.
        estimate = sum(price(WeakEdge("alltoall", grid, grid, 0, 0, need), space) for need in growing)
        if surplus > 1:
            return estimate + price(WeakEdge("allgather", target, target, 0, 0, surplus), space)
        fewest = fewest_transfers(grid, target)
        if fewest > len(growing):
            p = min(prime_factors(space.devices))
            estimate = max(estimate, fewest * price(WeakEdge("alltoall", grid, grid, 0, 0, p), space))
        return estimate

    def remaining(self, grid: Grid) -> float:
        """A lower bound on the price of sequences in any order from here to the target."""
        estimate = self._estimates.get((grid, 2))
        if estimate is None:
            estimate = self._estimates[grid, 2] = self.prices.remaining_at_least(self.space, grid, self.target)
        return estimate


@cached(1 << 16)
def fewest_transfers(grid: Grid, target: Grid) -> int:
    """All-to-alls that any path between grids of equally many tiles needs at least.

    An all-to-all links two dimensions and leaves the product of their counts. So linked dimensions together have the
    right product, and c linked dimensions have c - 1 links.

    >>> fewest_transfers((4, 4, 1, 1), (1, 1, 4, 4)), fewest_transfers((4, 9, 1), (1, 1, 36))
    (2, 2)
    """
    ratios = [(a, b) for a, b in zip(grid, target, strict=True) if a != b]
    if len(ratios) > 8:
        return -(-len(ratios) // 2)
    products = [(1, 1)]
    for a, b in ratios:
        products += [(x * a, y * b) for x, y in products]
    parts = [0] * len(products)
    for subset in range(1, len(products)):
        x, y = products[subset]
        inner = max(parts[subset & ~(1 << i)] for i in range(len(ratios)) if subset >> i & 1)
        parts[subset] = inner + (x == y)
    return len(ratios) - parts[-1]


def _normal_forms(graph: _Graph, search: Search, state: SearchState) -> Iterator[WeakPath]:
    target = graph.target
    tick = count()
    queue: list[tuple[float, int, int, float, Grid, int, Grid, tuple[Grid, ...]]] = []
    for grid in _starts(graph, search):
        estimate = graph.normal_form_remaining(grid, 0)
        if estimate < search.below:
            path: tuple[Grid, ...] = (grid,) if grid == graph.source else (graph.source, grid)
            heapq.heappush(queue, (estimate, len(path), next(tick), 0.0, grid, 0, grid, path))
    visits: dict[tuple[Grid, int, Grid], int] = {}
    ties = 0
    while queue and state.goes_on(search):
        estimate, _, _, cost, grid, phase, start, path = heapq.heappop(queue)
        if estimate > state.price:
            return
        if grid == target:
            yield WeakPath(path, cost)
            continue
        if estimate == state.price:
            ties += 1
            if ties > search.ties:
                break
        seen = visits.get((grid, phase, start), 0)
        if seen >= search.revisits:
            state.skipped = True
            continue
        visits[grid, phase, start] = seen + 1
        state.expanded += 1
        for onto, price, gathers in graph.edges(grid, SHRINKING if phase else SHUFFLING):
            if onto in path:
                continue
            onward = cost + price
            estimate = onward + graph.normal_form_remaining(onto, int(gathers))
            if estimate < search.below and estimate <= state.price:
                if visits.get((onto, int(gathers), start), 0) >= search.revisits:
                    state.skipped = True
                    continue
                ahead = (estimate, len(path), next(tick), onward, onto, int(gathers), start, (*path, onto))
                heapq.heappush(queue, ahead)
    state.skipped |= bool(queue)


def _starts(graph: _Graph, search: Search) -> Iterator[Grid]:
    """The source and the grids of a first slice from which the target can be reached."""
    plain = math.lcm(math.prod(graph.source), graph.at_target)
    for grid in multiples(graph.source, graph.space, graph.dims):
        tiles = math.prod(grid)
        if tiles % graph.at_target == 0 and (search.over_partition or tiles <= plain) and graph.space.is_node(grid):
            yield grid


def _any_order(graph: _Graph, search: Search, state: SearchState, crossing: Crossing) -> Iterator[WeakPath]:
    tick = count()
    source, target = (graph.source, crossing.source), (graph.target, crossing.target)
    queue: list[tuple[float, int, int, float, Node, tuple[Node, ...]]] = []
    if graph.remaining(graph.source) < search.below:
        queue.append((graph.remaining(graph.source), 0, next(tick), 0.0, source, (source,)))
    most = math.prod(refined(graph.source, graph.target))
    visits: dict[Node, int] = {}
    while queue and state.goes_on(search):
        estimate, _, _, cost, node, path = heapq.heappop(queue)
        if estimate > state.price:
            return
        if node[0] == graph.target:
            permute = 0.0 if node in (source, target) else graph.cross_host_permute(path)
            yield WeakPath(tuple(grid for grid, _ in path), cost, permute)
            continue
        seen = visits.get(node, 0)
        if seen >= search.revisits:
            state.skipped = True
            continue
        visits[node] = seen + 1
        state.expanded += 1
        for onto, price in graph.split_edges(node, crossing.classes):
            if onto in path or (not search.over_partition and math.prod(onto[0]) > most):
                continue
            onward = cost + price
            if onto[0] == graph.target and onto != target:  # the right tiles on the wrong hosts
                onward += graph.cross_host_permute((*path, onto))
            if onward >= search.below or onward > state.price:
                continue
            if visits.get(onto, 0) >= search.revisits:
                state.skipped = True
                continue
            estimate = onward + graph.remaining(onto[0])
            if estimate < search.below and estimate <= state.price:
                heapq.heappush(queue, (estimate, len(path), next(tick), onward, onto, (*path, onto)))
    state.skipped |= bool(queue)
