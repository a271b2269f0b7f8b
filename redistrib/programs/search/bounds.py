"""Lower bounds on the seconds, or bytes, of every schedule."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.classes import classes_of, one_by_one
from redistrib.programs.search.constants import ALONE, WEIGHTS
from redistrib.programs.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.programs.search.exact import lower_bound
from redistrib.programs.search.found import SearchResult
from redistrib.programs.search.problem import SearchProblem, Weights


def bounded(problem: SearchProblem, result: SearchResult, deadline: Deadline = NEVER) -> SearchResult:
    """The same with a lower bound, the highest that there is time for.

    The bound is in the seconds, or bytes, of the simulated program: neither idle devices nor held bytes count, and
    values that were moved are kept for all readers, so that it holds with a memory limit and without. Where only bytes
    count, it is of schedules that cut work along the axis where this one does. Where moves run beside operations, a
    schedule takes no less than the longer of the two, and so no less than any weighted mean of them, whose least is
    found exactly for several weights.
    """
    axes = [axis.name for axis in problem.moves.mesh.axes if axis.size > 1]
    floor = replace(result, bound=problem.facts.floor, axis="", by_class=False)
    if deadline.passed or result.price <= problem.facts.floor:
        return floor
    operations, inputs = len(problem.graph.operations), len(problem.graph.inputs)
    is_grouped = operations > ALONE or problem.folded is not None
    classes = classes_of(problem) if is_grouped else one_by_one(problem)
    by_class = len({*classes.operations}) < operations or len({*classes.inputs}) < inputs
    decisions = result.decisions.kept(None)
    cuts = decisions.cuts
    idle = [number for number in range(operations) if any(axis not in cuts[number] for axis in axes[-1:])]
    best = -math.inf
    for weight in WEIGHTS if problem.overlap else (1.0,):
        with contextlib.suppress(OutOfTime):
            weighted = replace(problem, weights=Weights(ties=0.0, moves=(weight, weight)))
            axes_problem = AxesProblem(weighted, decisions, axes[-1:], classes, deadline, idle)
            price = axes_problem.choices.price(axes_problem.choice_of(decisions))
            bound = lower_bound(axes_problem.choices, price, deadline)
            best = max(best, bound / (1.0 + weight) if problem.overlap else bound)
    if problem.moves.objective == "bytes" and math.isfinite(best):
        best = float(math.ceil(best))
    if math.isfinite(best) and (best > problem.facts.floor or len(axes) <= 1):
        return replace(result, bound=best, axis=axes[-1] if len(axes) > 1 else "", by_class=by_class)
    return floor
