"""The cheapest plan from or to partial sums: slice, reduce, gather, and a local step to a partial target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from redistrib.cost.model import CostModel
from redistrib.plans.data import Short
from redistrib.plans.slabs import tiles_of_slabs
from redistrib.plans.steps import Step
from redistrib.synthesis import exchange, limits
from redistrib.synthesis.best import best_steps
from redistrib.synthesis.partial.numbering import even_splits, matched
from redistrib.synthesis.partial.reductions import by_assignment, reductions
from redistrib.synthesis.partial.sources import PartialSource, is_uniform, partial_sources, pull_exchanges
from redistrib.synthesis.phases import single, three_phases
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.selection import Selection
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import Int64, Placement

_ROUNDING = 1e-9  # a share of a price, by which sums in another order may differ


def best_partial_steps(problem: Problem, model: CostModel, fixed: bool = False) -> list[Step] | Short:
    """The cheapest candidate that fits; ties go to fewer collectives.

    Args:
        problem: source and target, with partial sums of one reduction.
        model: the cost model to minimise.
        fixed: whether the library must add partial sums by itself, in their order and in one step.

    Returns:
        The steps, or the least memory limit if no candidate fits that of the problem.

    Raises:
        ProfileError: if the model gives no candidate a finite price.
    """
    return _Search(problem, model, fixed).run()


class _Search:
    """The candidates of one problem, and the cheapest of them so far."""

    def __init__(self, problem: Problem, model: CostModel, fixed: bool) -> None:
        self.problem, self.model, self.fixed = problem, model, fixed
        self.chosen = Selection(problem, model)
        self.prices = self.chosen.prices
        self.shares_pulled = 0
        exact = model.counts_received and problem.memory_limit is None
        self.enough = least_received(problem.before, problem.after) if exact else -1

    def run(self) -> list[Step] | Short:
        whole = PartialSource(self.problem.after, None)
        for source in partial_sources(self.problem) if self.problem.after.summands > 1 else [whole]:
            last: list[Step] = [] if source.step is None else [source.step]
            problem = self.problem.between(self.problem.before, source.placement)
            if self.prices.at_least(problem.before, problem.after) > self.chosen.key[0]:
                continue
            for steps in self._ways(problem):
                self.chosen.offer([*steps, *last])
                if self._is_over():
                    break
            if self._is_over():
                break
        return self.chosen.cheapest()

    def _is_over(self) -> bool:
        """Whether no plan is cheaper: no element travels, or one collective receives the lower bound."""
        price, collectives = self.chosen.key[:2]
        return collectives == 0 or (price == self.enough and collectives == 1)

    def _ways(self, problem: Problem) -> Iterator[list[Step]]:
        """Steps from the source to a placement with any number of partial sums."""
        before, after = problem.before, problem.after
        p, q = before.summands, after.summands
        regular = is_uniform(after)
        if p == q:
            if not self.fixed:
                before = matched(before, after, even_splits(before, after))[0]
            yield from self._moves(problem.between(before, after), regular)
        elif p % q == 0 and regular:
            yield from self._reduced(problem)
        if (p != q and (q > 1 or not regular)) or not regular:
            most = limits.PULLED_SHARES if self.chosen.steps is None else limits.PULLED_SHARES - self.shares_pulled
            for step, _ in pull_exchanges(problem, self.fixed, most, self._is_dear):
                self.shares_pulled += len(step.shares)
                yield [step]

    def _is_dear(self, receiver: Int64, volumes: Sequence[int]) -> bool:
        """Whether shares cost more than the cheapest steps so far, in however few rounds; colouring them takes long."""
        return self.prices.rounds_at_least(receiver, volumes) * (1 - _ROUNDING) > self.chosen.key[0]

    def _moves(self, problem: Problem, regular: bool) -> Iterator[list[Step]]:
        """Steps that keep the number of partial sums, and so add none."""
        before, after = problem.before, problem.after
        if before == after:
            yield []
            return
        if after.summands == 1 and regular:
            yield from self._rest(problem, [])
            return
        stacks = _stacked(problem)
        ways = [exchange.as_slice(stacks)] if not regular else three_phases(stacks, single(stacks))
        for steps in ways:
            slabs = None if steps is None else tiles_of_slabs(steps, after)
            if slabs is not None:
                yield slabs

    def _rest(self, problem: Problem, first: Sequence[Step]) -> Iterator[list[Step]]:
        """The cheapest steps between whole tiles, in the memory beside the source and target of the whole problem."""
        limit, ends = self.problem.memory_limit, self.problem
        taken = ends.before.tile_size if first else 0
        taken = (taken + (ends.after.tile_size if ends.after.summands > 1 else 0)) * ends.itemsize
        inner = problem if limit is None else replace(problem, memory_limit=max(1, limit - taken))
        steps = best_steps(inner, self.model)
        if isinstance(steps, Short):
            before = self.problem.peak(first) + problem.before.tile_size * self.problem.itemsize if first else 0
            self.chosen.least_peak = min(self.chosen.least_peak, max(before, steps.least + taken))
        else:
            yield steps

    def _reduced(self, problem: Problem) -> Iterator[list[Step]]:
        """Reductions to the number of partial sums of the target, each with the cheapest steps after it."""
        after = problem.after
        harder: list[tuple[float, int, int, tuple[Step, ...], Problem]] = []
        for number, reduction in enumerate(reductions(problem, self.fixed)):
            tail = problem.between(reduction.middle, after)
            if reduction.middle == after:
                yield list(reduction.steps)
                continue
            price = self.prices.total(reduction.steps)
            steps = single(_stacked(tail))
            slabs = None if steps is None else tiles_of_slabs(steps, after)
            if slabs is None:
                harder.append((price + self.prices.at_least(*_ends(tail)), 0, number, reduction.steps, tail))
                continue
            yield [*reduction.steps, *slabs]
            tail_price = self.prices.total(slabs)
            if tail_price * (1 - _ROUNDING) > self.prices.at_least(*_ends(tail)):  # several collectives may be faster
                cut = sum(n > 1 for n in tail.before.grid)  # of one dimension, a gather has more ways to go in turn
                harder.append((price + tail_price, cut, number, reduction.steps, tail))
        few = self.problem.after.summands > 1 or after.devices > limits.SUM_TAIL_DEVICES
        for _, _, _, first, tail in sorted(harder, key=lambda row: row[:3])[: 1 if few else limits.SUM_TAILS]:
            if self.prices.total(first) + self.prices.at_least(*_ends(tail)) < self.chosen.key[0]:
                for rest in self._tails(tail, first):
                    yield [*first, *rest]
        if after.summands == 1 and self.chosen.key[0] > self.enough >= 0:
            for reduction in by_assignment(problem):
                for rest in self._rest(problem.between(reduction.middle, after), reduction.steps):
                    yield [*reduction.steps, *rest]

    def _tails(self, tail: Problem, first: Sequence[Step]) -> Iterator[list[Step]]:
        if tail.after.summands == 1:
            yield from self._rest(tail, first)
        else:
            yield from self._moves(tail, True)


def _stacked(problem: Problem) -> Problem:
    if problem.after.summands == 1:
        return problem
    return problem.between(*_ends(problem))


def _ends(problem: Problem) -> tuple[Placement, Placement]:
    """Source and target as whole tiles, of the stack where they are partial sums."""
    before, after = problem.before, problem.after
    if after.summands == 1:
        return before, after
    return before.stacked(), after.stacked()
