"""The weak search: cheapest first, estimates that never exceed, and an effort that is counted, not timed."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from redistrib.cost.exact import ExactCost
from redistrib.cost.model import CostModel, Prices
from redistrib.cost.paper import PaperCost
from redistrib.cost.presets import PRESETS
from redistrib.lang.mesh import Mesh
from redistrib.synthesis.paper.algorithm import paper_steps
from redistrib.synthesis.paper.search import Search, SearchState, fewest_transfers, shortest_paths, used_dimensions
from redistrib.synthesis.problem import Problem
from redistrib.testing import all_cuts, cut_type
from redistrib.theory.placement import placement_of
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakSpace, edges
from tests.synthesis import brute_force

SPACES = [
    WeakSpace((8, 8, 8), 8, 512),
    WeakSpace((12, 12), 12, 144),
    WeakSpace((4, 6, 2), 12, 48),
    WeakSpace((12, 12), 24, 144),
    WeakSpace((2, 2, 2, 2), 8, 16),
]


def nodes(space: WeakSpace) -> list[Grid]:
    return [g for g in brute_force.grids(space.devices, len(space.shape)) if space.is_node(g)]


def cheapest(space: WeakSpace, source: Grid, prices: Prices) -> dict[Grid, float]:
    """Bellman-Ford over every weak collective in any order: no normal forms, no estimates, no dimension left out."""
    dist = dict.fromkeys(nodes(space), math.inf)
    dist[source] = 0.0
    changed = True
    while changed:
        changed = False
        for grid in dist:
            for edge in edges(space, grid, ("dynslice", "alltoall", "allgather")):
                onward = dist[grid] + prices.edge(edge, space)
                if onward < dist[edge.target] - 1e-15:
                    dist[edge.target], changed = onward, True
    return dist


@pytest.mark.parametrize("model", [PaperCost(), ExactCost(), PRESETS["tpu"]], ids=lambda model: model.name)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_first_path_is_the_cheapest_there_is_and_they_come_in_order(space: WeakSpace, model: CostModel) -> None:
    rng = random.Random(3)
    found, prices = nodes(space), model.prices(1, Topology(space.devices))
    for source in rng.sample(found, min(8, len(found))):
        least = cheapest(space, source, prices)
        for target in rng.sample(found, min(10, len(found))):
            # Where the memory bound is that of source and target, the optimum is the same (Lemma 6.5).
            bound = max(space.local_size(source), space.local_size(target))
            near = WeakSpace(space.shape, space.devices, bound if model.normal_forms_suffice else space.bound)
            paths = list(itertools.islice(shortest_paths(near, source, target, prices), 5))
            assert paths[0].cost == pytest.approx(least[target], rel=1e-12, abs=1e-18)
            costs = [path.cost for path in paths]
            assert costs == sorted(costs)
            for path in paths:
                assert path.grids[0] == source
                assert path.grids[-1] == target


@pytest.mark.parametrize("devices", [8, 12])
def test_fewest_transfers_never_exceeds_the_true_number(devices: int) -> None:
    rank = 3
    moves = [(a, b) for a, b, free in brute_force.moves(devices, rank) if not free and math.prod(a) == math.prod(b)]
    for source in brute_force.grids(devices, rank):
        steps, reached = 0, {source}
        while True:
            for grid in reached:
                assert fewest_transfers(source, grid) <= steps
            wider = reached | {b for a, b in moves if a in reached}
            if wider == reached:
                break
            steps, reached = steps + 1, wider


def test_one_idle_dimension_stands_for_all_where_it_has_room() -> None:
    space = WeakSpace((8, 8, 8, 4, 8), 8, 8**4 * 4)
    assert used_dimensions(space, (2, 1, 1, 1, 1), (1, 2, 1, 1, 1)) == (0, 1, 4)
    cramped = WeakSpace((8, 2, 4, 2), 8, 128)
    assert used_dimensions(cramped, (2, 1, 1, 1), (4, 1, 1, 1)) == (0, 1, 2, 3)


# ------------------------------------------------------------------------------------------- planning never explodes

HARD = [
    ("x=16,y=16,z=16", 6),
    ("x=8,y=8,z=8,u=8", 6),
    ("x=2,y=3,z=5,u=7,v=11", 5),
    ("a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2,i=2,j=2,k=2,l=2", 6),
    ("x=256,y=256", 6),
    ("x=6,y=10,z=12", 6),
]


@pytest.mark.parametrize(("text", "rank"), HARD)
def test_the_search_stays_within_its_budget_and_mostly_far_below(text: str, rank: int) -> None:
    """Nodes expanded are counted, so a slow machine fails nothing: at most 3,000, half of the time at most 700."""
    mesh, rng, spent = Mesh.of(text), random.Random(text), []
    for _ in range(6):
        source, target = (random_type(mesh, rank, rng) for _ in range(2))
        before, after = placement_of(source, mesh), placement_of(target, mesh)
        state = SearchState()
        steps = paper_steps(Problem.plain(before, after), PaperCost(), Search(), state)
        assert steps is not None
        spent.append(state.expanded)
    assert max(spent) <= 3_000
    assert sorted(spent)[len(spent) // 2] <= 700


def random_type(mesh: Mesh, rank: int, rng: random.Random):  # type: ignore[no-untyped-def]
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.sample(mesh.names, len(mesh.names)):
        where = rng.randrange(rank + 1)
        if where < rank:
            dims[where].append(name)
    return cut_type(mesh, (mesh.size,) * rank, dims)


def test_a_search_stops_at_its_budget_and_says_so() -> None:
    space = WeakSpace((64, 64, 64), 64, 64**3)
    prices = PaperCost().prices(4, Topology(64))
    state = SearchState()
    brief = Search(expansions=1, needed=False)
    assert list(shortest_paths(space, (64, 1, 1), (1, 8, 8), prices, brief, state)) == []
    assert state.expanded == 1
    assert state.skipped
    # Where a plan is needed the budget counts only once there is one.
    state = SearchState()
    paths = shortest_paths(space, (64, 1, 1), (1, 8, 8), prices, Search(expansions=1), state)
    state.price = next(paths).cost
    assert list(paths) == []
    state = SearchState()
    assert next(shortest_paths(space, (64, 1, 1), (1, 8, 8), prices, Search(), state)).cost == 2 * 64**2
    assert not state.skipped


def test_cuts_are_enumerated_once_each() -> None:
    found = list(all_cuts("xy", 2))
    assert len(found) == len(set(found)) == 1 + 2 * 2 + 2 * 3
