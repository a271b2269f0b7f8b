"""The selection of the cheapest candidate plan that fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from redistrib.cost.model import CostModel, no_price
from redistrib.plans.data import Short
from redistrib.plans.steps import Exchange, ReduceExchange, Step
from redistrib.synthesis.problem import Problem

Key: TypeAlias = tuple[float, ...]
Priced: TypeAlias = tuple[Key, list[Step]]  # the steps as they run


class Selection:
    """The cheapest of the candidates offered so far that fit.

    Attributes:
        problem: source and target.
        model: the cost model.
        prices: of the model.
        key: the key of the cheapest candidate, its price first; infinite before there is a candidate.
        steps: of the cheapest candidate; None before there is one.
        least_peak: least bytes per device of the candidates that did not fit; infinite where all fitted.
    """

    def __init__(self, problem: Problem, model: CostModel, key: Callable[[list[Step]], Key] | None = None) -> None:
        """`key` computes the key of a candidate; by default that of the prices."""
        self.problem, self.model = problem, model
        self.prices = model.prices(problem.itemsize, problem.topology)
        self._key_of = key or self.prices.key
        self.key: Key = (math.inf, math.inf)
        self.steps: list[Step] | None = None
        self.least_peak = math.inf

    def offer(self, steps: list[Step]) -> Priced | None:
        """The candidate with its key, selected if it is the cheapest so far; None where it does not fit."""
        if self.model.fused_exchange:
            steps = [_ragged(step) for step in steps]
        if not self.problem.fits(steps):
            self.least_peak = min(self.least_peak, self.problem.peak(steps))
            return None
        key = self._key_of(steps)
        if key[0] < math.inf and key < self.key:
            self.steps, self.key = steps, key
        return key, steps

    def cheapest(self) -> list[Step] | Short:
        """The cheapest candidate, or the least limit if candidates were offered and none fits the memory limit.

        Raises:
            ProfileError: if the model gives no candidate a finite price.
        """
        if self.steps is not None:
            return self.steps
        if self.problem.memory_limit is None or self.least_peak == math.inf:  # a normal form always fits (Theorem 4.8)
            raise no_price(self.model)
        return Short(int(self.least_peak))


def _ragged(step: Step) -> Step:
    """An exchange as one ragged call; any other step as it is."""
    return replace(step, implementation="ragged") if isinstance(step, Exchange | ReduceExchange) else step
