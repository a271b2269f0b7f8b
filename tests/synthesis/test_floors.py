"""What lets the search stop early: prices that nothing goes below. A floor above a real price would lose plans."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redistrib.cost.exact import ExactCost
from redistrib.cost.latency import Latency
from redistrib.cost.model import CostModel, PhaseGrids
from redistrib.cost.paper import PaperCost
from redistrib.cost.presets import PRESETS
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.steps import AllPermute
from redistrib.synthesis.paper.lowering import lower_straight, lower_with_permute
from redistrib.synthesis.paper.search import shortest_paths
from redistrib.synthesis.phases import single, three_phases
from redistrib.synthesis.problem import Problem
from redistrib.testing import RedistributionCase, redistributions, tori
from redistrib.theory.placement import placement_of
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakSpace, edges

FREE = replace(PRESETS["tpu"], latency={kind: Latency(0.0, 0.0) for kind in PRESETS["tpu"].latency})
ONE_CALL = replace(PRESETS["cpu"], fused_exchange=True)
HOSTS = replace(PRESETS["gpu"], devices_per_host=3)
AXES = replace(PRESETS["tpu"], axis_bandwidth={"x": 2e12, "y": 2e10})  # one axis faster than all others, one slower
MODELS: dict[str, CostModel] = {
    **PRESETS,
    "no latency": FREE,
    "one call": ONE_CALL,
    "hosts": HOSTS,
    "axes": AXES,
    "exact": ExactCost(),
    "paper": PaperCost(),
}


def nodes(space: WeakSpace) -> list[Grid]:
    ways = [[c for c in range(1, size + 1) if size % c == 0] for size in space.shape]
    return [grid for grid in product(*ways) if space.is_node(grid)]


def test_collectives_of_an_exchange_at_least() -> None:
    """One all-to-all may do, a permute beside it makes two; there are as many rounds as tiles from other devices."""
    turned = PhaseGrids((4, 1), (4, 1), (1, 4), (1, 4))
    assert [each.collectives for each in (turned, turned.by("rounds"), turned.by("permute"))] == [1, 3, 2]
    still = PhaseGrids((4, 1), (4, 1), (4, 1), (1, 1))
    assert [each.collectives for each in (still, still.by("rounds"), still.by("permute"))] == [1, 2, 3]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("shape", "devices", "bound"), [((12, 12), 12, 144), ((8, 4, 4), 8, 128), ((8, 8, 2), 8, 32), ((4, 6, 6), 24, 24)]
)
def test_no_edge_lowers_the_rest_by_more_than_it_costs(
    name: str, shape: tuple[int, ...], devices: int, bound: int
) -> None:
    """Consistency, and so by induction along any path no path costs less than the rest says."""
    space, prices = WeakSpace(shape, devices, bound), MODELS[name].prices(4, Topology(devices))
    for target, grid in product(nodes(space), repeat=2):
        rest = prices.remaining_at_least(space, grid, target)
        assert rest >= 0.0
        assert grid != target or rest == 0.0
        for edge in edges(space, grid, ("dynslice", "alltoall", "allgather")):
            step = prices.edge(edge, space)
            assert rest <= (step + prices.remaining_at_least(space, edge.target, target)) * (1 + 1e-12)


@st.composite
def links(draw: st.DrawFn, model: CostModel, mesh: Mesh) -> Topology:
    """What a model tells apart of devices that may be known to be on a torus."""
    known = Topology(mesh.size, torus=draw(tori(mesh.size))) if draw(st.booleans()) else None
    return model.topology(mesh, known)


@settings(max_examples=200)
@given(problem=redistributions(max_devices=24), name=st.sampled_from(sorted(MODELS)), data=st.data())
def test_no_plan_is_below_its_phases(problem: RedistributionCase, name: str, data: st.DataObject) -> None:
    before, after = placement_of(problem.source, problem.mesh), placement_of(problem.target, problem.target_mesh)
    model = MODELS[name]
    asked_of = Problem(before, after, 4, data.draw(links(model, problem.mesh)))
    prices = model.prices(4, asked_of.topology)
    asked: list[PhaseGrids] = []

    def keep(phases: PhaseGrids) -> bool:
        asked.append(phases)
        return True

    for steps in three_phases(asked_of, single(asked_of), keep):
        price, collectives, *_ = prices.key(steps)
        assert prices.phases_at_least(asked_of.space, asked[-1]) <= price * (1 + 1e-12)
        assert asked[-1].collectives <= collectives


@settings(max_examples=200)
@given(problem=redistributions(max_devices=24), torus=st.data())
def test_no_step_along_a_path_is_below_its_edge(problem: RedistributionCase, torus: st.DataObject) -> None:
    """On a torus an edge is priced by what a device takes in over all its links, a step by the busiest link."""
    model = PRESETS["tpu"]
    known = Topology(problem.mesh.size, torus=torus.draw(tori(problem.mesh.size)))
    asked = Problem(problem.before, problem.after, 4, model.topology(problem.mesh, known))
    prices, space = model.prices(4, asked.topology), asked.space
    for path in itertools.islice(shortest_paths(space, asked.before.grid, asked.after.grid, prices), 4):
        steps = lower_straight(path.grids, asked)
        assert steps is None or path.cost <= prices.total(steps) * (1 + 1e-12)


@settings(max_examples=200)
@given(problem=redistributions(max_devices=24), name=st.sampled_from(sorted(MODELS)), data=st.data())
def test_no_permute_on_a_path_is_below_its_floor(problem: RedistributionCase, name: str, data: st.DataObject) -> None:
    model = MODELS[name]
    asked = Problem(problem.before, problem.after, 4, data.draw(links(model, problem.mesh)))
    prices, space = model.prices(4, asked.topology), asked.space
    for path in itertools.islice(shortest_paths(space, asked.before.grid, asked.after.grid, prices), 4):
        for step in lower_with_permute(path.grids, asked):
            if isinstance(step, AllPermute):
                assert prices.permute_at_least(space, path.grids) <= prices.step(step) * (1 + 1e-12)


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"hosts", "axes"}))
def test_two_devices_that_trade_tiles_meet_the_floor_of_a_permute(name: str) -> None:
    """So the floor may not be any higher."""
    mesh = Mesh.of("x=4")
    cut = DistType.parse("[2{x}8]")
    before, after = placement_of(cut, mesh), placement_of(cut, Mesh(mesh.axes, (1, 0, 2, 3)))
    prices = MODELS[name].prices(4, Topology(4))
    (step,) = lower_with_permute(((4,),), Problem.plain(before, after))
    assert prices.permute_at_least(WeakSpace((8,), 4, 2), ((4,),)) == pytest.approx(prices.step(step), rel=1e-12)


def test_what_is_not_worth_it_is_not_made() -> None:
    mesh = Mesh.of("x=2,y=2,z=2")
    before = placement_of(DistType.parse("[4{x}8, 4{y}8, 8]"), mesh)
    after = placement_of(DistType.parse("[8, 4{x}8, 4{z}8]"), mesh)
    problem = Problem.plain(before, after)
    everything = list(three_phases(problem, single(problem)))
    assert {step.kind for steps in everything for step in steps} == {
        "dynslice",
        "alltoall",
        "allpermute",
        "exchange",
        "allgather",
    }
    assert list(three_phases(problem, single(problem), keep=lambda phases: False)) == []
    others = list(three_phases(problem, single(problem), keep=lambda phases: phases.way != "permute"))
    assert others == [steps for steps in everything if not {"alltoall", "allpermute"} <= {step.kind for step in steps}]


def test_a_path_that_comes_back_to_its_grid_may_turn_tiles_round() -> None:
    """What stays on every grid of a path is what counts: here nothing, so two all-to-alls do without a permute."""
    mesh = Mesh.of("x=2,y=2")
    before, after = (placement_of(DistType.parse(text), mesh) for text in ("[1{x,y}4, 4]", "[1{y,x}4, 4]"))
    there = Problem.plain(before, after)
    assert [step.kind for step in lower_straight([(4, 1), (1, 4), (4, 1)], there) or []] == ["alltoall", "alltoall"]
    assert lower_straight([(4, 1), (4, 1)], there) is None
