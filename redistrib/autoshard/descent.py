"""Axis after axis, each exactly and given the others, in several orders, and again until nothing changes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

from redistrib.autoshard.alike import Classes
from redistrib.autoshard.axes import AxesProblem, Decisions, Task
from redistrib.autoshard.deadline import NEVER, Deadline, OutOfTime
from redistrib.autoshard.exact import MANY, lower_bound, solved
from redistrib.autoshard.isomorphism import classes_of, one_by_one
from redistrib.autoshard.starting import propagated
from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.partitioning.build import build
from redistrib.partitioning.versions import LayoutBuilder
from redistrib.programs.program import Program
from redistrib.simulator.entry import simulate

ORDERS = 3  # of the axes, that are tried, beside what propagation makes of the pins
COARSE = 2  # steps from operation to operation that must be alike for one decision at first, in a large program
ALONE = 400  # operations of a program of which those that are alike are decided one by one in the end
DECIDING = 0.8  # of the time that there is; the rest is for the bound
ROUNDS = 6  # in which axes are decided again, at most


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        decided: how everything is cut.
        sources: for values as they are needed the type to move them from, where that is not the one they were made in.
        price: what the search minimises: seconds, or bytes, and what idle devices and held bytes count.
        complete: whether nothing was cut short.
        bound: lower bound on the seconds, or bytes, of every schedule with these cuts along every axis but `axis`.
        axis: whose cuts the bound ranges over; empty where the bound ranges over all axes.
        alike: whether the bound ranges only over schedules that cut operations that are alike in the same way.
        stopped: whether the time was up before the search was over.
    """

    decided: Decisions
    sources: dict[tuple[str, DistType], DistType]
    price: float
    complete: bool
    bound: float = 0.0
    axis: str = ""
    alike: bool = False
    stopped: bool = False


def searched(
    task: Task,
    deadline: Deadline = NEVER,
    told: Callable[[str], None] = lambda said: None,
    starts: Sequence[Found] = (),
) -> Found:
    """The best decisions that are found in time; at the least what `distribute` makes of the pins, or the first start.

    Args:
        task: what is searched.
        deadline: after which the best so far is taken.
        told: is told what goes on.
        starts: schedules to improve on, the best first.
    """
    deciding = deadline.part(DECIDING)
    axes = [axis.name for axis in task.moves.mesh.axes if axis.size > 1]
    best = None if deciding.passed else _descents(task, axes, deciding, told, starts)
    if best is None:
        best = starts[0] if starts else _unsearched(task, propagated(task, axes))
    elif starts and not task.held and starts[0].price < best.price * (1 - task.ties):
        best = starts[0]
    best = replace(best, stopped=deciding.passed)
    if task.held:  # what is found is judged by its bytes, and searched again
        return best
    told("bound")
    return bounded(task, best, deadline)


def _descents(
    task: Task, axes: Sequence[str], deciding: Deadline, told: Callable[[str], None], starts: Sequence[Found]
) -> Found | None:
    """The best of descents from a start, from what propagation makes of the pins, and from nothing; None without time.

    The start comes first, since it is soon as good as it gets. At the same price one of the others is taken, which
    come to the same however much time there is.
    """
    classes = classes_of(task)
    is_large = len({*classes.operations}) > MANY
    coarse = classes_of(task, COARSE) if is_large else classes
    seeded = _in_order(task, axes, classes, deciding, told, starts[0].decided) if starts and axes else None
    best: Found | None = None
    best_order: Sequence[str] = axes
    orders = [(order, False) for order in islice(permutations(axes), ORDERS)]
    if axes and (task.starts or task.ends or task.pins or task.work):
        orders = [(order, True) for order in dict.fromkeys((tuple(axes), tuple(reversed(axes))))] + orders
    for order, is_spread in orders:
        if deciding.passed:
            break
        start = propagated(task, order) if is_spread else None
        found = _in_order(task, order, coarse if start is None else classes, deciding, told, start)
        if found is not None and (best is None or found.price < best.price * (1 - 1e-9)):
            best, best_order = found, order
    if best is not None and is_large:
        best = _finer(task, best, best_order, classes, deciding, told)
    if seeded is not None and (best is None or seeded.price < best.price * (1 - 1e-9)):
        best = seeded
    is_grouped = len({*classes.operations}) < len(task.graph.operations) <= ALONE
    if best is not None and not is_large and is_grouped and task.keep is None:
        best = _apart(task, best, axes, deciding)
    return best


def bounded(task: Task, found: Found, deadline: Deadline = NEVER) -> Found:
    """The same with a lower bound, the highest that there is time for.

    The bound is in the seconds, or bytes, of the simulated program: neither idle devices nor held bytes count, and
    values that were moved are kept for all readers, so that it holds with a memory limit and without. Where only bytes
    count, it is of schedules that cut work along the axis where this one does.
    """
    axes = [axis.name for axis in task.moves.mesh.axes if axis.size > 1]
    floor = replace(found, bound=task.floor, axis="", alike=False)
    if deadline.passed:
        return floor
    operations, inputs = len(task.graph.operations), len(task.graph.inputs)
    is_grouped = operations > ALONE or task.folded is not None
    classes = classes_of(task) if is_grouped else one_by_one(task)
    alike = len({*classes.operations}) < operations or len({*classes.inputs}) < inputs
    with contextlib.suppress(OutOfTime):
        priced = replace(task, ties=0.0, held={}, keep=None)
        cuts = found.decided.found.cuts
        idle = [number for number in range(operations) if any(axis not in cuts[number] for axis in axes[-1:])]
        problem = AxesProblem(priced, found.decided, axes[-1:], classes, deadline, idle)
        price = problem.problem.price(problem.choice_of(found.decided))
        bound = lower_bound(problem.problem, price, deadline)
        if task.moves.objective == "bytes":
            bound = float(math.ceil(bound))
        if bound > task.floor or len(axes) <= 1:
            return replace(found, bound=bound, axis=axes[-1] if len(axes) > 1 else "", alike=alike)
    return floor


def _finer(
    task: Task,
    best: Found,
    order: Sequence[str],
    classes: Classes,
    deadline: Deadline,
    told: Callable[[str], None],
) -> Found:
    """The decisions made better where what was decided as one is only nearly alike."""
    finer = None if deadline.passed else _in_order(task, order, classes, deadline, told, best.decided)
    return finer if finer is not None and finer.price < best.price else best


def _apart(task: Task, best: Found, axes: Sequence[str], deadline: Deadline) -> Found:
    """The decisions, and those about operations that are alike made one by one, until nothing gets better."""
    alone = one_by_one(task)
    unchanged, rounds = 0, 0
    with contextlib.suppress(OutOfTime):
        while unchanged < len(axes) and rounds < len(axes) * ROUNDS:
            problem = AxesProblem(task, best.decided, [axes[rounds % len(axes)]], alone, deadline)
            solution = solved(problem.problem, deadline, problem.choice_of(best.decided))
            unchanged, rounds = unchanged + 1, rounds + 1
            if solution.choice is None:
                continue
            price = problem.problem.price(solution.choice)
            if price < best.price * (1 - 1e-9):
                sources = problem.sources(solution.choice)
                best = replace(best, decided=problem.chosen(solution.choice), sources=sources, price=price)
                unchanged = 0
    return best


def _unsearched(task: Task, decided: Decisions) -> Found:
    """What `distribute` makes of the pins, or everything whole, and what that takes."""
    found = Found(decided, {}, math.inf, False)
    program = program_of(task, found, "")
    if task.moves.objective == "bytes":
        return replace(found, price=float(program.received_bytes))
    return replace(found, price=simulate(program, task.machine, record=False).seconds)


def _in_order(
    task: Task,
    order: Sequence[str],
    classes: Classes,
    deadline: Deadline,
    told: Callable[[str], None],
    start: Decisions | None = None,
) -> Found | None:
    """Decide axis after axis, from nothing or from decisions that are there, until nothing gets better.

    None where the time is up before every axis was decided.

    Raises:
        ProgramError: if pins leave no choice.
    """
    decided, sources = start or Decisions.none(task), dict[tuple[str, DistType], DistType]()
    price, complete = math.inf, True
    unchanged, left = 0, max(1, len(order))
    for count in range(max(1, len(order) * ROUNDS)):
        axis = order[count % len(order)] if order else ""
        told(f"axis {axis}, round {count // max(1, len(order)) + 1}")
        is_known = start is not None or count >= len(order)
        try:
            problem = AxesProblem(task, decided, [axis] if axis else [], classes, deadline)
        except OutOfTime:
            complete = False
            break
        if count == 0 and start is not None:
            known = problem.choice_of(start)
            decided, price, sources = problem.chosen(known), problem.problem.price(known), problem.sources(known)
        solution = solved(problem.problem, deadline, problem.choice_of(decided) if is_known else None)
        if solution.choice is None and not solution.feasible:
            raise ProgramError("", "", "Schedule", f"nothing was found along axis {axis!r}; loosen the pins")
        complete = complete and solution.optimal
        if solution.choice is None:
            break
        own = problem.problem.price(solution.choice)
        if not is_known or own < price * (1 - 1e-9):
            decided, price = problem.chosen(solution.choice), own
            sources, unchanged = problem.sources(solution.choice), 0
        left -= 1
        unchanged += 1
        if left <= 0 and (unchanged >= len(order) or deadline.passed):
            break
    is_whole = left <= 0 or (start is not None and math.isfinite(price))
    return Found(decided, sources, price, complete) if is_whole else None


def ends_of(task: Task, found: Found) -> tuple[dict[str, DistType], dict[int, DistType]]:
    """The types of arguments, by name, and of results, by number."""
    decided = found.decided
    starts = {name: decided.found.type_of(decided.found.arrays[name].shape, at) for name, at in decided.ins.items()}
    ends = {
        number: decided.found.type_of(decided.found.arrays[name].shape, at)
        for number, (name, at) in enumerate(zip(task.graph.outputs, decided.outs, strict=True))
    }
    return {**starts, **task.starts}, {**ends, **task.ends}


def program_of(task: Task, found: Found, name: str) -> Program:
    """The program of what was found, checked."""
    links = task.machine.links
    builder = LayoutBuilder(links, task.keep, name=name, sources=found.sources, plans=task.plans)
    return build(found.decided.found, builder, *ends_of(task, found), task.donated)
