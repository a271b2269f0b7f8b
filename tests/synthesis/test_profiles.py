"""Figures under which plans cannot be compared are refused, and so are prices that are no numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest

import redistrib as rd
from redistrib.errors import MemoryLimitError, ProfileError
from redistrib.plans.steps import Step
from redistrib.synthesis.cost import ExactCost
from redistrib.synthesis.latency import Latency
from redistrib.synthesis.presets import PRESETS

GPU = PRESETS["gpu"]


@pytest.mark.parametrize("latency", [Latency(math.nan), Latency(math.inf), Latency(0.0, -1e-6)])
def test_latencies_are_finite_and_not_negative(latency: Latency) -> None:
    with pytest.raises(ProfileError) as caught:
        replace(GPU, latency={**GPU.latency, "alltoall": latency})
    assert str(caught.value) == "profile 'gpu' has a latency that is not a finite number of seconds from 0 up"


@pytest.mark.parametrize("devices", [0, -8])
def test_a_host_has_devices(devices: int) -> None:
    with pytest.raises(ProfileError) as caught:
        replace(GPU, devices_per_host=devices)
    assert str(caught.value) == (
        f"profile 'gpu' has {devices} devices per host; give at least 1, or None where all links are alike"
    )


@dataclass(frozen=True)
class Priceless(ExactCost):
    """A model of a user's own whose prices are `price`."""

    name: str = "mine"
    price: float = math.nan

    def step(self, step: Step, itemsize: int) -> float:
        return self.price


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
            cost_model=Priceless(price=price),
            memory_limit=limit,
        )
    assert str(caught.value) == "the cost model 'mine' gives no plan a finite price; every price must be a number"


def test_more_elements_than_a_float_counts() -> None:
    cut, whole = f"{2**59}{{x}}{2**60}", ", ".join([str(2**60)] * 20)
    with pytest.raises(ProfileError, match="the cost model 'tpu' gives no plan a finite price"):
        rd.synthesize(f"[{cut}, {whole}]", f"[{whole}, {cut}]", {"x": 2}, cost_model="tpu")


def test_a_limit_below_the_one_plan_there_is() -> None:
    """Shares too many and unequal to be arranged: only the paper's plan is left, and it tells the least limit."""
    problem = ("[40{x}1640, 41{y}1640]", "[41{y}1640, 40{x}1640]", {"x": 41, "y": 40})
    with pytest.raises(MemoryLimitError) as caught:
        rd.synthesize(*problem, cost_model="tpu", memory_limit=1)
    plan = rd.synthesize(*problem, cost_model="tpu", memory_limit=caught.value.least)
    assert plan.peak_bytes == caught.value.least
