"""The lower bound: no plan receives less; the direct exchange, and best plans under exact costs, receive just that."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from redistrib.plans.plan import Plan
from redistrib.plans.reference import scatter
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.testing import RedistributionCase, numbered, plans, redistributions
from redistrib.theory.placement import lower_bound


@given(redistributions())
def test_it_counts_the_elements_of_the_target_tile_that_a_device_lacks(pair: RedistributionCase) -> None:
    whole = numbered(pair.source.global_shape)
    held, wanted = scatter(whole, pair.before), scatter(whole, pair.after)
    lacking = [int(np.setdiff1d(w, h).size) for h, w in zip(held, wanted, strict=True)]
    assert lower_bound(pair.before, pair.after) == lacking


@given(plans((("paper", "paper"), ("paper", "exact"), ("best", "tpu"), ("best", "cpu"))))
def test_no_plan_receives_less_on_any_device(plan: Plan) -> None:
    assert all(got >= least for got, least in zip(plan.received, plan.lower_bound, strict=True))


@given(redistributions())
def test_the_direct_exchange_receives_just_that_on_every_device(pair: RedistributionCase) -> None:
    steps = in_rounds(Problem.plain(pair.before, pair.after))[0]
    received = np.sum([step.received() for step in steps], axis=0, dtype=object)
    assert received.tolist() == lower_bound(pair.before, pair.after)


@given(plans((("best", "exact"),)))
def test_best_plans_under_exact_costs_receive_just_that_on_every_device(plan: Plan) -> None:
    assert plan.received == plan.lower_bound
    assert plan.cost == sum(plan.lower_bound)
