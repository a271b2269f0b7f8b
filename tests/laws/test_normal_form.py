"""Normal form: plans are slices, exchanges, gathers; and any weak sequence becomes one, no higher and no dearer."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from redistrib.cost.exact import ExactCost
from redistrib.cost.paper import PaperCost
from redistrib.plans.plan import Plan
from redistrib.testing import plans
from redistrib.theory.topology import Topology
from redistrib.theory.weak import Grid, WeakEdge, WeakSpace, edges
from tests.specification.normal import is_normal_form, normalised, rewritten

SHAPES = [(8, 8), (12, 12, 12), (30, 10), (4, 6, 9), (60, 60), (16, 2, 4)]
DEVICES = [4, 8, 12, 24, 36, 60]


@st.composite
def weak_sequences(draw: st.DrawFn) -> tuple[WeakSpace, list[WeakEdge]]:
    """Any walk over the weak graph, without a memory bound."""
    shape, devices = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DEVICES))
    space = WeakSpace(shape, devices, math.prod(shape))
    here: Grid = (1,) * len(shape)
    walk = []
    for _ in range(draw(st.integers(0, 9))):
        onward = list(edges(space, here, ("dynslice", "alltoall", "allgather")))
        if not onward:
            break
        walk.append(draw(st.sampled_from(onward)))
        here = walk[-1].target
    # A walk need not begin with everything replicated.
    return space, walk[draw(st.integers(0, len(walk))) :]


def price(model: PaperCost | ExactCost, space: WeakSpace, sequence: list[WeakEdge]) -> float:
    return sum(model.prices(1, Topology(space.devices)).edge(edge, space) for edge in sequence)


def height(space: WeakSpace, start: Grid, sequence: list[WeakEdge]) -> int:
    return max(space.local_size(grid) for grid in (start, *(edge.target for edge in sequence)))


@given(plans((("paper", "paper"), ("paper", "exact"))))
def test_plans_of_the_paper_are_in_normal_form_with_one_permute_before_the_gathers(plan: Plan) -> None:
    kinds = [step.kind for step in plan.steps]
    assert is_normal_form(kinds)
    assert kinds.count("allpermute") <= 1


@given(plans((("best", "exact"),)))
def test_best_plans_are_in_normal_form(plan: Plan) -> None:
    assert is_normal_form([step.kind for step in plan.steps])


@given(weak_sequences())
def test_any_weak_sequence_has_a_normal_form_between_the_same_types(case: tuple[WeakSpace, list[WeakEdge]]) -> None:
    """Theorem 4.8 for weak collectives; every edge of the result is one of the graph."""
    space, walk = case
    found = normalised(walk)
    assert is_normal_form([edge.kind for edge in found])
    if walk:
        here = walk[0].source
        for edge in found:
            assert edge.source == here
            assert edge in set(edges(space, here, (edge.kind,)))
            here = edge.target
        assert here == walk[-1].target


@given(weak_sequences())
def test_a_normal_form_is_no_higher_than_its_ends_and_no_dearer(case: tuple[WeakSpace, list[WeakEdge]]) -> None:
    """Theorem 4.8 and Lemma 6.5, in the paper's model and with what stays at home taken off."""
    space, walk = case
    found = normalised(walk)
    if walk:
        ends = max(space.local_size(walk[0].source), space.local_size(walk[-1].target))
        assert height(space, walk[0].source, found) == ends
    for model in (PaperCost(), ExactCost()):
        assert price(model, space, found) <= price(model, space, walk)


@given(weak_sequences())
def test_each_rewrite_is_no_higher_and_no_dearer(case: tuple[WeakSpace, list[WeakEdge]]) -> None:
    """Lemmas 4.6 and 4.7, one pair of neighbours at a time."""
    space, walk = case
    for first, second in itertools.pairwise(walk):
        found = rewritten(first, second)
        ordered = is_normal_form([first.kind, second.kind])
        assert (found is None) == ordered
        if found is not None:
            assert is_normal_form([edge.kind for edge in found])
            assert len(found) <= 3
            assert height(space, first.source, found) <= height(space, first.source, [first, second])
            for model in (PaperCost(), ExactCost()):
                assert price(model, space, found) <= price(model, space, [first, second])


def test_a_rising_edge_can_need_one_collective_more() -> None:
    """Why Lemma 6.5 fails for models with a latency: 2 collectives, 3 in normal form, though for 45 and not 60."""
    space = WeakSpace((30, 10), 60, 300)
    walk = [
        WeakEdge("allgather", (6, 10), (1, 10), 0, 0, 6),
        WeakEdge("alltoall", (1, 10), (10, 1), 1, 0, 10),
    ]
    found = normalised(walk)
    assert [(edge.kind, edge.factor) for edge in found] == [("alltoall", 5), ("allgather", 2), ("allgather", 3)]
    assert price(PaperCost(), space, walk) == 60
    assert price(PaperCost(), space, found) == 45
