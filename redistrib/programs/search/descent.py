"""Axis after axis, each exactly and given the others, in several orders, and again until nothing changes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.program import Program
from redistrib.programs.lower.build import build
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.classes import classes_of, one_by_one
from redistrib.programs.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.programs.search.exact import MANY, lower_bound, solved
from redistrib.programs.search.isomorphism import IsomorphismClasses
from redistrib.programs.search.problem import Decisions, SearchProblem
from redistrib.programs.search.starting import propagated
from redistrib.programs.time.entry import simulate

ORDERS = 3  # of the axes, tried besides the propagation of the pins
COARSE = 2  # steps to neighbours that classes compare at first, in a large program
ALONE = 400  # operations of a program, up to which each is decided by itself in the end
DECIDING = 0.8  # of the time that there is; the rest is for the bound
WEIGHTS = (0.0, 0.25, 1.0, 4.0)  # of seconds of moves beside those of operations, of which bounds are found
ROUNDS = 6  # in which axes are decided again, at most


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        decisions: the cuts of everything.
        sources: for a value and a needed type, the type to convert from, where that is not the maker's.
        price: the objective: seconds, or bytes, and the prices of idle devices and of held bytes.
        complete: whether nothing was cut short.
        bound: lower bound on the seconds, or bytes, of every schedule with these cuts along every axis but `axis`.
        axis: whose cuts the bound ranges over; empty where the bound ranges over all axes.
        by_class: whether the bound ranges only over schedules with one cut for each isomorphism class.
        stopped: whether the time was up before the search was over.
    """

    decisions: Decisions
    sources: dict[tuple[str, DistType], DistType]
    price: float
    complete: bool
    bound: float = 0.0
    axis: str = ""
    by_class: bool = False
    stopped: bool = False


def searched(
    problem: SearchProblem,
    deadline: Deadline = NEVER,
    report_progress: Callable[[str], None] = lambda line: None,
    starts: Sequence[SearchResult] = (),
) -> SearchResult:
    """The best decisions found in time; at the least the propagation of the pins by `distribute`, or the first start.

    Args:
        problem: the search problem.
        deadline: after which the best so far is taken.
        report_progress: called with a line about each phase.
        starts: schedules to improve on, the best first.
    """
    deciding = deadline.part(DECIDING)
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    best = None if deciding.passed else _Descent(problem, deciding, report_progress).best(axes, starts)
    if best is None:
        best = starts[0] if starts else _unsearched(problem, propagated(problem, axes))
    elif starts and not problem.memory_multipliers and starts[0].price < best.price * (1 - problem.ties):
        best = starts[0]
    best = replace(best, stopped=deciding.passed)
    if problem.memory_multipliers:  # `fitting` checks its bytes, and searches again
        return best
    report_progress("bound")
    return bounded(problem, best, deadline)


@dataclass(frozen=True)
class _Descent:
    """Descents in one search: axis after axis is decided, until the price falls no more or the time is up."""

    problem: SearchProblem
    deadline: Deadline
    report_progress: Callable[[str], None]

    def best(self, axes: Sequence[str], starts: Sequence[SearchResult]) -> SearchResult | None:
        """The best of descents from a start, from the propagation of the pins, and from no cuts; None if late.

        The start comes first, since it is soon as good as it gets. At the same price one of the others is taken, which
        come to the same however much time there is.
        """
        problem, classes = self.problem, classes_of(self.problem)
        is_large = len({*classes.operations}) > MANY
        coarse = classes_of(problem, COARSE) if is_large else classes
        seeded = self.in_order(axes, classes, starts[0].decisions) if starts and axes else None
        best: SearchResult | None = None
        best_order: Sequence[str] = axes
        orders = [(order, False) for order in islice(permutations(axes), ORDERS)]
        if axes and (problem.starts or problem.ends or problem.pins or problem.work):
            orders = [(order, True) for order in dict.fromkeys((tuple(axes), tuple(reversed(axes))))] + orders
        for order, is_spread in orders:
            if self.deadline.passed:
                break
            start = propagated(problem, order) if is_spread else None
            result = self.in_order(order, coarse if start is None else classes, start)
            if result is not None and (best is None or result.price < best.price * (1 - 1e-9)):
                best, best_order = result, order
        if best is not None and is_large:
            best = self.refined(best, best_order, classes)
        if seeded is not None and (best is None or seeded.price < best.price * (1 - 1e-9)):
            best = seeded
        is_grouped = len({*classes.operations}) < len(problem.graph.operations) <= ALONE
        if best is not None and not is_large and is_grouped and problem.keep is None:
            best = self.refined(best, axes, one_by_one(problem))
        return best

    def refined(self, best: SearchResult, order: Sequence[str], classes: IsomorphismClasses) -> SearchResult:
        """A descent from a result with finer classes, if its price is lower; else the result."""
        finer = None if self.deadline.passed else self.in_order(order, classes, best.decisions)
        return finer if finer is not None and finer.price < best.price else best

    def in_order(
        self, order: Sequence[str], classes: IsomorphismClasses, start: Decisions | None
    ) -> SearchResult | None:
        """Decide axis after axis, from nothing or from decisions that are there, until nothing gets better.

        None where the time is up before every axis was decided.

        Raises:
            ProgramError: if pins leave no choice.
        """
        problem, deadline = self.problem, self.deadline
        decisions, sources = start or Decisions.none(problem), dict[tuple[str, DistType], DistType]()
        price, complete = math.inf, True
        unchanged, left = 0, max(1, len(order))
        for count in range(max(1, len(order) * ROUNDS)):
            axis = order[count % len(order)] if order else ""
            self.report_progress(f"axis {axis}, round {count // max(1, len(order)) + 1}")
            has_price = start is not None or count >= len(order)
            try:
                axes_problem = AxesProblem(problem, decisions, [axis] if axis else [], classes, deadline)
            except OutOfTime:
                complete = False
                break
            if count == 0 and start is not None:
                start_choice = axes_problem.choice_of(start)
                decisions, price, sources = (
                    axes_problem.chosen(start_choice),
                    axes_problem.choices.price(start_choice),
                    axes_problem.sources(start_choice),
                )
            solution = solved(axes_problem.choices, deadline, axes_problem.choice_of(decisions) if has_price else None)
            if solution.choice is None and not solution.feasible:
                raise ProgramError("", "", "Schedule", f"nothing was found along axis {axis!r}; loosen the pins")
            complete = complete and solution.optimal
            if solution.choice is None:
                break
            new_price = axes_problem.choices.price(solution.choice)
            if not has_price or new_price < price * (1 - 1e-9):
                decisions, price = axes_problem.chosen(solution.choice), new_price
                sources, unchanged = axes_problem.sources(solution.choice), 0
            left -= 1
            unchanged += 1
            if left <= 0 and (unchanged >= len(order) or deadline.passed):
                break
        is_whole = left <= 0 or (start is not None and math.isfinite(price))
        return SearchResult(decisions, sources, price, complete) if is_whole else None


def bounded(problem: SearchProblem, result: SearchResult, deadline: Deadline = NEVER) -> SearchResult:
    """The same with a lower bound, the highest that there is time for.

    The bound is in the seconds, or bytes, of the simulated program: neither idle devices nor held bytes count, and
    values that were moved are kept for all readers, so that it holds with a memory limit and without. Where only bytes
    count, it is of schedules that cut work along the axis where this one does. Where moves run beside operations, a
    schedule takes no less than the longer of the two, and so no less than any weighted mean of them, whose least is
    found exactly for several weights.
    """
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    floor = replace(result, bound=problem.floor, axis="", by_class=False)
    if deadline.passed:
        return floor
    operations, inputs = len(problem.graph.operations), len(problem.graph.inputs)
    is_grouped = operations > ALONE or problem.folded is not None
    classes = classes_of(problem) if is_grouped else one_by_one(problem)
    by_class = len({*classes.operations}) < operations or len({*classes.inputs}) < inputs
    priced = replace(problem, ties=0.0, memory_multipliers={}, keep=None)
    cuts = result.decisions.propagation.cuts
    idle = [number for number in range(operations) if any(axis not in cuts[number] for axis in axes[-1:])]
    best = -math.inf
    for weight in WEIGHTS if problem.overlap else (1.0,):
        with contextlib.suppress(OutOfTime):
            weighted = replace(priced, weights=(weight, weight))
            axes_problem = AxesProblem(weighted, result.decisions, axes[-1:], classes, deadline, idle)
            price = axes_problem.choices.price(axes_problem.choice_of(result.decisions))
            bound = lower_bound(axes_problem.choices, price, deadline)
            best = max(best, bound / (1.0 + weight) if problem.overlap else bound)
    if problem.moves.objective == "bytes" and math.isfinite(best):
        best = float(math.ceil(best))
    if math.isfinite(best) and (best > problem.floor or len(axes) <= 1):
        return replace(result, bound=best, axis=axes[-1] if len(axes) > 1 else "", by_class=by_class)
    return floor


def _unsearched(problem: SearchProblem, decisions: Decisions) -> SearchResult:
    """The propagation of the pins by `distribute`, or everything replicated, and its cost."""
    result = SearchResult(decisions, {}, math.inf, False)
    program = program_of(problem, result, "")
    if problem.moves.objective == "bytes":
        return replace(result, price=float(program.received_bytes))
    return replace(result, price=simulate(program, problem.machine, record=False).seconds)


def ends_of(problem: SearchProblem, result: SearchResult) -> tuple[dict[str, DistType], dict[int, DistType]]:
    """The types of arguments, by name, and of results, by number."""
    decisions = result.decisions
    starts = {
        name: decisions.propagation.type_of(decisions.propagation.arrays[name].shape, at)
        for name, at in decisions.ins.items()
    }
    ends = {
        number: decisions.propagation.type_of(decisions.propagation.arrays[name].shape, at)
        for number, (name, at) in enumerate(zip(problem.graph.outputs, decisions.outs, strict=True))
    }
    return {**starts, **problem.starts}, {**ends, **problem.ends}


def program_of(problem: SearchProblem, result: SearchResult, name: str) -> Program:
    """The checked program of the schedule."""
    links = problem.machine.links
    inputs, outputs = ends_of(problem, result)
    return build(
        result.decisions.propagation,
        MovePlanner(links, problem.plans),
        name,
        inputs=inputs,
        outputs=outputs,
        donated=problem.donated,
        sources=result.sources,
        keep=problem.keep,
    )
