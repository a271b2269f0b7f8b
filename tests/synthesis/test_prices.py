"""Prices under which plans cannot be compared are refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

import redistrib as rd
from redistrib.cost.exact import ExactCost
from redistrib.cost.model import Prices
from redistrib.errors import MemoryLimitError, ProfileError
from redistrib.plans.steps import Step
from redistrib.synthesis.synthesize import least_limit
from redistrib.theory.topology import Topology
from redistrib.theory.weak import WeakEdge, WeakSpace


@dataclass(frozen=True)
class Priceless(ExactCost):
    """A model of a user's own whose prices are `price`."""

    name: str = "mine"
    price: float = math.nan

    def prices(self, itemsize: int, topology: Topology) -> Prices:
        return PricelessSteps(self, itemsize, topology)


class PricelessSteps(Prices):
    """Every step and every edge has the model's `price`."""

    model: Priceless

    def step(self, step: Step) -> float:
        return self.model.price

    def edge(self, edge: WeakEdge, space: WeakSpace) -> float:
        return self.model.price


@pytest.mark.parametrize("price", [math.nan, math.inf])
@pytest.mark.parametrize("algorithm", ["best", "paper"])
@pytest.mark.parametrize("limit", [None, 1 << 20])
def test_prices_are_finite_numbers(price: float, algorithm: str, limit: int | None) -> None:
    with pytest.raises(ProfileError) as caught:
        rd.synthesize(
            "[3{x}12, 2{y}12]",
            "[2{y}12, 3{x}12]",
            {"x": 4, "y": 6},
            algorithm=algorithm,
            machine=Priceless(price=price),
            memory_limit=limit,
        )
    assert str(caught.value) == "machine='mine' gives no plan a finite cost; every price must be a number"


def test_a_limit_below_the_one_plan_there_is() -> None:
    """Shares too many and unequal to be arranged: only the paper's plan is left, and it tells the least limit."""
    problem = ("[40{x}1640, 41{y}1640]", "[41{y}1640, 40{x}1640]", {"x": 41, "y": 40})
    with pytest.raises(MemoryLimitError) as caught:
        rd.synthesize(*problem, machine="tpu", memory_limit=1)
    plan = rd.synthesize(*problem, machine="tpu", memory_limit=caught.value.least)
    assert plan.peak_bytes == caught.value.least


@pytest.mark.parametrize(
    ("source", "target", "mesh"),
    [
        ("[8{x}16, 16]", "[16, 4{y}16]", "x=2,y=4"),
        ("[4~{x}10, 8]", "[10, 4{y}8]", "x=3,y=2"),
        ("[16] sum{x}", "[4{y}16]", "x=2,y=4"),
        ("[8{x}16]", "[8{x}16]", "x=2"),
    ],
)
def test_the_least_limit_of_a_plan_is_that_of_the_refusal(source: str, target: str, mesh: str) -> None:
    plan = rd.synthesize(source, target, mesh, machine="tpu")
    least = least_limit(plan, "tpu", None)
    with pytest.raises(MemoryLimitError) as caught:
        rd.synthesize(source, target, mesh, machine="tpu", memory_limit=least - 1)
    assert caught.value.least == least
    assert rd.synthesize(source, target, mesh, machine="tpu", memory_limit=least).peak_bytes <= least
