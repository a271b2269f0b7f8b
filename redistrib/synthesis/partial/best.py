"""The cheapest plan where tiles are summands, at either end: slice, reduce, gather, and summands made last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from redistrib.cost.model import CostModel, Prices, no_price, prices_of
from redistrib.errors import MemoryLimitError
from redistrib.plans.steps import Exchange, ReduceExchange, Step
from redistrib.synthesis import exchange
from redistrib.synthesis.best import best_steps
from redistrib.synthesis.partial.numbering import even, matched
from redistrib.synthesis.partial.reductions import by_assignment, reductions
from redistrib.synthesis.partial.stacks import moved, stack_of
from redistrib.synthesis.partial.summands import Made, is_even, made_of, pulled
from redistrib.synthesis.phases import single, three_phases
from redistrib.synthesis.problem import Problem
from redistrib.theory.bounds import least_received
from redistrib.theory.placement import Placement

MOST_TAILS = 4  # middles whose way to the target takes more than one collective, and is searched for
MOST_PULLED = 1 << 16  # shares of all candidates that pull, once there is another: their rounds take long to find
MANY_DEVICES = 256  # then one, as for each of the placements that a partial target may be made of


def best_partial_steps(problem: Problem, model: CostModel, fixed: bool = False) -> list[Step]:
    """The cheapest candidate that fits; ties go to fewer collectives.

    Args:
        problem: source and target, whose summands are of one kind.
        model: what to minimise.
        fixed: whether summands are to be added in their order, by the library itself, in one step.

    Raises:
        MemoryLimitError: if no candidate fits the memory limit.
        ProfileError: if the model gives no candidate a finite price.
    """
    return _Search(problem, model, fixed).run()


class _Search:
    """The best candidate so far, and what it is compared by."""

    def __init__(self, problem: Problem, model: CostModel, fixed: bool) -> None:
        self.problem, self.model, self.fixed = problem, model, fixed
        self.prices: Prices = prices_of(model, problem.itemsize, problem.topology)
        self.best: list[Step] | None = None
        self.key: tuple[float, ...] = (math.inf, math.inf)
        self.least = math.inf
        self.shares_pulled = 0
        exact = model.counts_received and problem.memory_limit is None
        self.enough = least_received(problem.before, problem.after) if exact else -1

    def run(self) -> list[Step]:
        for made in made_of(self.problem) if self.problem.after.summands > 1 else [Made(self.problem.after, None)]:
            last: list[Step] = [] if made.step is None else [made.step]
            problem = self.problem.between(self.problem.before, made.of)
            if self.prices.at_least(problem.before, problem.after) > self.key[0]:
                continue
            for steps in self._ways(problem):
                self._offer([*steps, *last])
                if self._done():
                    break
            if self._done():
                break
        if self.best is not None:
            return self.best
        if self.problem.memory_limit is None or self.least == math.inf:
            raise no_price(self.model)
        raise MemoryLimitError(self.problem.memory_limit, int(self.least))

    def _done(self) -> bool:
        """Whether nothing better can come: nothing travels, or all that must in one collective."""
        return self.key[1] == 0 or (self.key[0] == self.enough and self.key[1] == 1)

    def _offer(self, steps: list[Step]) -> None:
        if self.model.fused_exchange:
            steps = [
                replace(step, implementation="ragged") if isinstance(step, Exchange | ReduceExchange) else step
                for step in steps
            ]
        if not self.problem.fits(steps):
            self.least = min(self.least, self.problem.peak(steps))
            return
        key = self.prices.key(steps)
        if key < self.key:
            self.best, self.key = steps, key

    def _ways(self, problem: Problem) -> Iterator[list[Step]]:
        """From the source to a placement of any number of summands."""
        before, after = problem.before, problem.after
        p, q = before.summands, after.summands
        regular = is_even(after)
        if p == q:
            if not self.fixed:
                before = matched(before, after, even(before, after))[0]
            yield from self._moves(problem.between(before, after), regular)
        elif p % q == 0 and regular:
            yield from self._reduced(problem)
        if (p != q and (q > 1 or not regular)) or not regular:
            most = MOST_PULLED if self.best is None else MOST_PULLED - self.shares_pulled
            for step, _ in pulled(problem, self.fixed, most):
                self.shares_pulled += len(step.shares.src)
                yield [step]

    def _moves(self, problem: Problem, regular: bool) -> Iterator[list[Step]]:
        """As many summands as before, perhaps none: nothing is added."""
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
            slabs = None if steps is None else moved(steps, after)
            if slabs is not None:
                yield slabs

    def _rest(self, problem: Problem, first: Sequence[Step]) -> Iterator[list[Step]]:
        """The cheapest way between whole tiles, in the memory that is left beside the source and target of all."""
        limit, ends = self.problem.memory_limit, self.problem
        taken = ends.before.tile_size if first else 0
        taken = (taken + (ends.after.tile_size if ends.after.summands > 1 else 0)) * ends.itemsize
        inner = problem if limit is None else replace(problem, memory_limit=max(1, limit - taken))
        try:
            yield best_steps(inner, self.model)
        except MemoryLimitError as error:
            before = self.problem.peak(first) + problem.before.tile_size * self.problem.itemsize if first else 0
            self.least = min(self.least, max(before, error.least + taken))

    def _reduced(self, problem: Problem) -> Iterator[list[Step]]:
        """Reductions to the number of summands wanted, each with the cheapest way from there on."""
        after = problem.after
        harder: list[tuple[float, int, tuple[Step, ...], Problem]] = []
        for number, reduction in enumerate(reductions(problem, self.fixed)):
            tail = problem.between(reduction.middle, after)
            if reduction.middle == after:
                yield list(reduction.steps)
                continue
            price = self.prices.total(reduction.steps)
            steps = single(_stacked(tail))
            slabs = None if steps is None else moved(steps, after)
            if slabs is None:
                harder.append((price + self.prices.at_least(*_ends(tail)), number, reduction.steps, tail))
                continue
            yield [*reduction.steps, *slabs]
            if problem.topology.hosts is not None:  # several collectives may take less over slow links
                harder.append((price + self.prices.total(slabs), number, reduction.steps, tail))
        few = self.problem.after.summands > 1 or after.devices > MANY_DEVICES
        for _, _, first, tail in sorted(harder, key=lambda row: row[:2])[: 1 if few else MOST_TAILS]:
            if self.prices.total(first) + self.prices.at_least(*_ends(tail)) < self.key[0]:
                for rest in self._tails(tail, first):
                    yield [*first, *rest]
        if after.summands == 1 and self.key[0] > self.enough >= 0:
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
    """Source and target as whole tiles, of the stack where they are summands."""
    before, after = problem.before, problem.after
    if after.summands == 1:
        return before, after
    return stack_of(before, before.summands), stack_of(after, after.summands)
