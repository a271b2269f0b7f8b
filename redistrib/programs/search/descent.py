"""The search: a valid schedule at once, better ones while there is time, and an end where none is better.

It begins with the schedules that people write. Then it decides one axis after another anew, given the others, each
exactly as far as it can, and keeps what makes the whole schedule better. It ends where no axis, and no two axes that
can be decided together, make it better. Where the fastest schedule holds too much, bytes get a price, which rises until
a schedule fits; then decisions are turned back one by one, as many as fit. Operations that are alike are decided as
one: of a large program its repeated layers, once; of others each by itself in the end.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations

from redistrib.collection import uncollected
from redistrib.errors import ProgramError
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.schedule import KEEP
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.bounds import bounded
from redistrib.programs.search.choices import ChoiceGraph
from redistrib.programs.search.classes import classes_of, one_by_one
from redistrib.programs.search.constants import (
    ALONE,
    ANEW,
    BETTER,
    CHEAPEST,
    CONVERSIONS,
    DECIDING,
    DERIVING,
    HALVINGS,
    HIDDEN,
    STEEP,
    STEPS,
    TOGETHER,
    TURNED,
)
from redistrib.programs.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.programs.search.elimination import Elimination
from redistrib.programs.search.evaluation import Walk, walked
from redistrib.programs.search.exact import runner_up, solved
from redistrib.programs.search.found import FeasibleResult, Improvement, SearchResult
from redistrib.programs.search.integer import Solution
from redistrib.programs.search.isomorphism import IsomorphismClasses
from redistrib.programs.search.layers import fold, harmonized, unfold
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.refusals import held_at_least, refused
from redistrib.programs.search.starting import is_spread, starting
from redistrib.report import seconds_text


def searched(
    problem: SearchProblem,
    name: str,
    most: int | None = None,
    deadline: Deadline = NEVER,
    report_progress: Callable[[str], None] = lambda line: None,
    start: FeasibleResult | None = None,
) -> FeasibleResult:
    """The best schedule found within the time limit.

    Args:
        problem: the whole search problem.
        name: of the program.
        most: bytes that a device may hold; None for no limit.
        deadline: after which the best so far is taken; at least one schedule is looked at.
        report_progress: called with a line about every improvement.
        start: a schedule to begin with, found for the same problem.

    Raises:
        MemoryLimitError: if nothing that was found fits, with the least bytes of a schedule that was found.
    """
    deciding = deadline.part(DECIDING)
    with uncollected():
        is_large = len(problem.graph.operations) > ALONE
        folded = fold(problem) if is_large else problem
        descent = _Descent(folded, classes_of(folded), name, most, report_progress)
        descent.begin(deciding.part(DERIVING), start)
        if descent.best is None and most is not None and held_at_least(problem)[0] > most:  # no search will find one
            with contextlib.suppress(OutOfTime):
                descent.shrink(deciding)
            raise refused(problem, name, most, descent.smallest)
    coarse: FeasibleResult | None = None
    with contextlib.suppress(OutOfTime):
        descent.run(deciding)
        is_coarse = len({*descent.classes.operations}) < len(problem.graph.operations)
        if is_coarse and not is_large and not descent.is_proved:
            coarse = descent.best
            descent.refine()
            descent.consider(start)
            descent.run(deciding)
    stopped, found = deciding.passed, descent.best or coarse
    if found is None:
        raise refused(problem, name, most, descent.smallest, stopped=stopped)
    report_progress("bound")
    result = replace(bounded(found.problem, found.result, deadline), stopped=stopped)
    result = replace(result, complete=descent.complete and not stopped)
    return replace(found, result=result, improvements=tuple(descent.improvements))


@dataclass
class _Descent:
    """The search on the way.

    Attributes:
        problem: repeated layers are decided once, or every operation by itself in the end.
        classes: operations and inputs that share a decision.
        best: the best schedule that fits.
        fastest: the price and the schedule of the best, whether it fits or not.
        smallest: the bytes of the schedule that holds least.
        priced: the fastest schedule for which bytes had a price last.
        bracket: the highest price of a byte that was too low, and the lowest at which a schedule fitted.
        moments: operations, by number, at which bytes have a price: a schedule had its peak there.
        complete: whether every axis was decided exactly.
        is_anew: whether axes were decided from nothing.
        is_fine: whether every operation is decided by itself.
        spread: whether these cut all that has much work, see `is_spread`; any that does is better than all that do not.
    """

    problem: SearchProblem
    classes: IsomorphismClasses
    name: str
    most: int | None
    report_progress: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    best: FeasibleResult | None = None
    improvements: list[Improvement] = field(default_factory=list)
    fastest: tuple[float, Propagation] | None = None
    smallest: int | None = None
    priced: Propagation | None = None
    bracket: tuple[float, float] | None = None
    moments: dict[int, None] = field(default_factory=dict)
    complete: bool = True
    spread: bool = False
    is_anew: bool = False
    is_fine: bool = False

    def refine(self) -> None:
        """Decide every operation by itself from now on."""
        self.classes, self.is_fine, self.priced = one_by_one(self.problem), True, None

    # ------------------------------------------------------------------------------------------ candidates

    def _consider(self, decisions: Propagation, walk: Walk | None = None) -> bool:
        """Take a schedule where it is better than all before; whether it was. `walk` is over it, if there is one."""
        if self.best is not None and decisions.agrees_with(self.best.result.decisions):
            return False
        problem, walk = self.problem, self._promising(self.problem, decisions, walk)
        if walk is None:
            return False
        if is_spread(problem, decisions) > self.spread:
            self.best, self.fastest, self.spread = None, None, True
        evaluation = walk.evaluation(self.most)
        price = evaluation.price(problem.moves.objective)
        if not math.isfinite(evaluation.seconds):
            return False
        self.smallest = min(evaluation.memory, self.smallest or evaluation.memory)
        if self.fastest is None or price < self.fastest[0] * (1 - BETTER):
            self.fastest = (price, decisions)
        if self.most is not None and evaluation.memory > self.most:
            return False
        if not self._is_better(price):
            return False
        self.best = FeasibleResult(problem, SearchResult(decisions, price, False), self.name, evaluation)
        self.improvements.append(Improvement(time.monotonic() - self.began, price, evaluation.memory))
        unit = seconds_text(price) if problem.moves.objective == "seconds" else f"{price:,.0f} bytes received"
        self.report_progress(f"{unit}, {evaluation.memory:,} bytes on a device")
        return True

    def _promising(self, problem: SearchProblem, decisions: Propagation, walk: Walk | None = None) -> Walk | None:
        """The walk over a schedule that may be better than all before; None where none is."""
        spread, walk = is_spread(problem, decisions), walked(problem, decisions) if walk is None else walk
        is_better = spread > self.spread or (spread == self.spread and self._is_better(walk.least_price))
        return walk if is_better else None

    @property
    def is_proved(self) -> bool:
        """Whether no schedule can be better than the best: it takes what its work takes, shared out evenly."""
        return self.best is not None and self.spread and self.best.price <= self.problem.facts.floor * (1 + BETTER)

    def consider(self, found: FeasibleResult | None) -> None:
        """Take a schedule that another search found, where its layers are decided as they are here."""
        if found is not None and (found.problem.folded is None) == (self.problem.folded is None):
            self._consider(found.result.decisions)

    def _is_better(self, price: float) -> bool:
        return self.best is None or price < self.best.price * (1 - BETTER)

    def begin(self, deadline: Deadline, start: FeasibleResult | None) -> None:
        """The schedules that people write: all that there is time for, and further ones until one fits.

        They cut all layers alike, and are derived and priced with repeated layers once.
        """
        self.consider(start)
        folded = self.problem if self.problem.folded is not None else fold(self.problem)
        classes = self.classes if folded is self.problem else classes_of(folded)
        listed = starting(folded)
        first, given = [next(listed)], self.problem.given  # the pins, spread; where there are none all is replicated
        is_pinned = given.types or given.pins or given.work
        for decisions in chain(first, listed) if is_pinned else chain(listed, first):
            harmonised = harmonized(folded, decisions, classes)
            for keep in (None,) if self.most is None else (None, KEEP):
                kept = harmonised.kept(keep)
                if folded is self.problem:
                    self._consider(kept)
                elif self._promising(folded, kept) is not None:
                    self._consider(unfold(folded, kept)[1])
                if self.is_proved or (self.best is not None and deadline.passed):
                    return

    # ------------------------------------------------------------------------------------------ better ones

    def run(self, deadline: Deadline) -> None:
        """Decide axes anew until no way of doing so is better.

        Raises:
            OutOfTime: if the time is up before.
        """
        unchanged, ways = 0, list(self._ways())
        while unchanged < len(ways) and not self.is_proved:
            for way in ways:
                deadline.check()
                unchanged = 1 if self._decide(*way, deadline) else unchanged + 1  # again, it comes to the same
                if unchanged >= len(ways):
                    break
            others = (self._from_nothing, self._price_bytes, self._turn)
            if unchanged >= len(ways) and any(other(deadline) for other in others):
                unchanged = 0

    def _ways(self) -> Iterator[tuple[tuple[str, ...], int | None, tuple[float, float]]]:
        """Axes decided together, lifetimes of values, and the prices of moves.

        Two axes are decided together where conversions need no plan: between all types of two axes there are many. Of
        operations each by itself, axes are decided one by one, as the best schedule has them.
        """
        turns: list[tuple[str, ...]] = [(axis,) for axis in self.problem.axes]
        if self.is_fine:
            keep = None if self.best is None else self.best.result.decisions.keep
            yield from ((turn, keep, HIDDEN[0]) for turn in turns)
            return
        if self.problem.moves.by_axes is not None:
            turns += [turn for turn in combinations(self.problem.axes, 2) if self._is_small(turn)]
        for keep in (None, KEEP) if self.most is not None else (None,):
            for weights in HIDDEN if self.problem.overlap else HIDDEN[:1]:
                for turn in turns:
                    yield turn, keep, weights

    def _is_small(self, turn: Sequence[str]) -> bool:
        """Whether two axes have few enough options in all to be decided together."""
        sizes = (1 + len(operation.nest.ranges) for operation in self.problem.graph.operations)
        return sum(math.prod([size] * len(turn)) for size in sizes) <= TOGETHER

    def _decide(
        self, turn: tuple[str, ...], keep: int | None, weights: tuple[float, float], deadline: Deadline
    ) -> bool:
        """Decide axes anew, all others as in the best schedule; whether that was better."""
        decisions = self.best.result.decisions if self.best is not None else self.fastest and self.fastest[1]
        if decisions is None:
            return False
        self.report_progress(f"axis {' and '.join(turn)}")
        problem = replace(self.problem, weights=replace(self.problem.weights, moves=weights))
        axes_problem, solution = self._solved(problem, decisions.kept(keep), turn, deadline)
        return solution.choice is not None and self._consider(axes_problem.chosen(solution.choice))

    def _solved(
        self, problem: SearchProblem, decisions: Propagation, turn: tuple[str, ...], deadline: Deadline
    ) -> tuple[AxesProblem, Solution]:
        axes_problem = AxesProblem(problem, decisions, turn, self.classes, deadline)
        most = CONVERSIONS if len(turn) > 1 else math.inf
        solution = solved(axes_problem.choices, deadline, axes_problem.choice_of(decisions), most)
        if solution.choice is None and not solution.feasible:
            raise ProgramError("", "", "Schedule", f"nothing was found along axis {turn[0]!r}; loosen the pins")
        self.complete = self.complete and solution.optimal
        return axes_problem, solution

    def _from_nothing(self, deadline: Deadline) -> bool:
        """Where operations are few, and two axes are not decided together, decide one after the other from nothing,
        once in each order; whether that was better."""
        axes, is_tried = self.problem.axes, self.problem.moves.by_axes is None and not self.is_fine and not self.is_anew
        better, self.is_anew = False, True
        if is_tried and len(axes) > 1 and len(self.problem.graph.operations) <= ANEW:
            for order in (axes, axes[::-1]):
                self.report_progress(f"axes anew, {' and '.join(order)}")
                decisions = self._settled(self.problem, self.problem.undecided(), order, deadline)
                better = self._consider(decisions) or better
        return better

    def _price_bytes(self, deadline: Deadline) -> bool:
        """Where the fastest schedule does not fit, bytes get a price, which rises until one fits, and falls again until
        one hardly fits; whether a better one was found."""
        if self.most is None or self.fastest is None or self.priced is self.fastest[1]:
            return False
        price, decisions = self.fastest
        if self.best is not None and self.best.price <= price * (1 + BETTER):
            return False
        self.priced, before, decisions = decisions, self.best, decisions.kept(KEEP)
        _, memory = self._weighed(decisions)
        cheap, multiplier = self.bracket or (0.0, CHEAPEST * price / max(1, memory))
        dear, steps, halvings = 0.0, STEPS, HALVINGS
        while steps and halvings:
            decisions, memory = self._priced(decisions, multiplier, deadline)
            dear, cheap = (multiplier, cheap) if memory <= self.most else (dear, multiplier)
            steps, halvings = (steps, halvings - 1) if dear else (steps - 1, halvings)
            multiplier = multiplier * STEEP if not dear else math.sqrt(cheap * dear) if cheap else dear / STEEP
        self.bracket = (cheap, dear) if dear else None
        return self.best is not before

    def _priced(self, decisions: Propagation, multiplier: float, deadline: Deadline) -> tuple[Propagation, int]:
        """The decisions where bytes have a price, which are taken where they are better, and the bytes they hold."""
        self.report_progress(f"memory, {multiplier:.3g} a byte")
        weights = replace(self.problem.weights, memory=dict.fromkeys(self.moments, multiplier / len(self.moments)))
        decisions = self._settled(replace(self.problem, weights=weights), decisions, self.problem.axes, deadline)
        walk, memory = self._weighed(decisions)
        self._consider(decisions, walk)
        self._consider(decisions.kept(None))
        return decisions, memory

    def _weighed(self, decisions: Propagation) -> tuple[Walk, int]:
        """The walk over a schedule, and the bytes that it holds; from now on those at its peak have a price."""
        walk = walked(self.problem, decisions)
        evaluation = walk.evaluation()
        self.moments[evaluation.moment] = None
        return walk, evaluation.memory

    def shrink(self, deadline: Deadline) -> None:
        """Look for a schedule that holds least, whatever it takes."""
        if self.fastest is None:
            return
        price, decisions = self.fastest[0], self.fastest[1].kept(KEEP)
        _, least = self._weighed(decisions)
        dearest = CHEAPEST * STEEP ** (STEPS - 1) * price / max(1, least)
        while True:
            decisions, memory = self._priced(decisions, dearest, deadline)
            if memory >= least:
                return
            least = memory

    def _settled(
        self, problem: SearchProblem, decisions: Propagation, axes: Sequence[str], deadline: Deadline
    ) -> Propagation:
        """Decide axes anew until no price falls, whether the whole schedule is better or not."""
        unchanged = 0
        while unchanged < len(axes):
            for axis in axes:
                deadline.check()
                axes_problem, solution = self._solved(problem, decisions, (axis,), deadline)
                price, before = axes_problem.choices.price, axes_problem.choice_of(decisions)
                unchanged += 1
                if solution.choice is not None and price(solution.choice) <= price(before):
                    unchanged = 1 if price(solution.choice) < price(before) * (1 - BETTER) else unchanged
                    decisions = axes_problem.chosen(solution.choice)
                if unchanged >= len(axes):
                    break
        return decisions

    def _turn(self, deadline: Deadline) -> bool:
        """Turn one decision after another to another option, those around it decided anew; whether that was better.

        Where moves run beside operations, sums of prices do not say which are hidden, so that the best by them may be
        another than the best. Where bytes are short, a price of bytes turns all layers at once, and here as many are
        turned back, each by itself, as fit.
        """
        tried, better = 0, False
        fastest = self.fastest[0] if self.fastest is not None else math.inf
        is_short = self.best is not None and self.best.price > fastest * (1 + BETTER)
        for axis in self.problem.axes if (is_short if self.is_fine else self.problem.overlap) else ():
            if self.best is None:
                break
            decisions = self.best.result.decisions
            axes_problem = AxesProblem(self.problem, decisions, (axis,), self.classes, deadline)
            tables, choice = Elimination(axes_problem.choices, deadline), axes_problem.choice_of(decisions)

            def moved(node: int, tables: Elimination = tables, choice: Sequence[int] = choice) -> float:
                return -sum(tables.edge(k, choice) for k in tables.touching[node])

            for node in sorted(range(len(choice)), key=moved):
                for option in range(tables.sizes[node]):
                    deadline.check()
                    if option == choice[node]:
                        continue
                    alone = (*choice[:node], option, *choice[node + 1 :]) if self.is_fine else None
                    for other in filter(None, (alone, runner_up(tables, choice, node, [option]))):
                        tried += 1
                        is_hopeless = self._is_hopeless(axes_problem.choices, other)
                        if not is_hopeless and self._consider(axes_problem.chosen(other)):
                            choice, better, tried = other, True, 0
                if tried >= TURNED:
                    return better
        return better

    def _is_hopeless(self, choices: ChoiceGraph, choice: Sequence[int]) -> bool:
        """Whether operations and moves take as long as the best schedule; with overlap, whether either alone does."""
        price, ties = choices.price(choice), self.problem.weights.ties * (self.problem.facts.floor or 1.0)
        computing = sum(node.prices[taken] for node, taken in zip(choices.nodes, choice, strict=True))
        longer = max(computing - ties, price - computing) if self.problem.overlap else price - ties
        return self.best is not None and longer * (1 - BETTER) >= self.best.price
