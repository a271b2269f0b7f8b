"""Axis after axis, each exactly and given the others, in several orders, and again until nothing changes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.partition.build import build
from redistrib.partition.ends import recut
from redistrib.partition.versions import Versions
from redistrib.programs.program import Program
from redistrib.search.alike import NEAR, Classes, alike
from redistrib.search.axes import AxesProblem, Decisions, Task, dim_of
from redistrib.search.deadline import NEVER, Deadline, OutOfTime
from redistrib.search.exact import MANY, solved
from redistrib.search.integer import relaxed
from redistrib.simulate import simulate

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
        price: of the program: seconds, or bytes, and what idle devices count.
        bound: a price that no cuts along some axis go below, the others being what they are.
        complete: whether nothing was cut short.
    """

    decided: Decisions
    sources: dict[tuple[str, DistType], DistType]
    price: float
    bound: float
    complete: bool


def searched(task: Task, deadline: Deadline = NEVER, told: Callable[[str], None] = lambda said: None) -> Found:
    """The best decisions that are found in time; at the least what `distribute` makes of the pins.

    Args:
        task: what is searched.
        deadline: after which the best so far is taken.
        told: is told what goes on.
    """
    deciding = deadline.part(DECIDING)
    classes = classes_of(task)
    is_large = len({*classes.operations}) > MANY
    coarse = classes_of(task, COARSE) if is_large else classes
    axes = [axis.name for axis in task.moves.mesh.axes if axis.size > 1]
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
    if best is None:
        best = _unsearched(task, propagated(task, axes))
    elif is_large:
        best = _finer(task, best, best_order, classes, deciding, told)
    elif len({*classes.operations}) < len(task.graph.operations) <= ALONE and task.keep is None:
        best = _apart(task, best, axes, deciding)
    if math.isinf(best.bound):
        told("bound")
        best = replace(best, bound=_bound(task, best, axes[-1:], classes, deadline))
    return best


def _finer(
    task: Task,
    best: Found,
    order: Sequence[str],
    classes: Classes,
    deadline: Deadline,
    told: Callable[[str], None],
) -> Found:
    """The decisions made better where what was decided as one is only nearly alike; the bound is of this problem."""
    finer = None if deadline.passed else _in_order(task, order, classes, deadline, told, best.decided)
    if finer is not None and finer.price < best.price:
        return finer
    return replace(best, bound=-math.inf if finer is None else finer.bound)


def _apart(task: Task, best: Found, axes: Sequence[str], deadline: Deadline) -> Found:
    """The decisions, and those about operations that are alike made one by one, until nothing gets better."""
    alone = Classes(tuple(range(len(task.graph.operations))), tuple(range(len(task.graph.inputs))))
    unchanged, rounds = 0, 0
    with contextlib.suppress(OutOfTime):
        while unchanged < len(axes) and rounds < len(axes) * ROUNDS:
            problem = AxesProblem(task, best.decided, [axes[rounds % len(axes)]], alone, deadline)
            solution = solved(problem.problem, deadline, problem.choice_of(best.decided))
            unchanged, rounds = unchanged + 1, rounds + 1
            if math.isfinite(solution.bound):
                best = replace(best, bound=solution.bound)
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
    found = Found(decided, {}, math.inf, -math.inf, False)
    program = program_of(task, found, "")
    if task.moves.objective == "bytes":
        return replace(found, price=float(program.received_bytes))
    return replace(found, price=simulate(program, task.machine, record=False).seconds)


def _bound(task: Task, found: Found, axes: Sequence[str], classes: Classes, deadline: Deadline) -> float:
    """A price that no cuts along some axes go below, the others being what they are; the best one there is time for."""
    bound = task.floor
    with contextlib.suppress(OutOfTime):
        problem = AxesProblem(task, found.decided, axes, classes, deadline).problem
        bound = max(bound, problem.least)
        bound = max(bound, relaxed(problem, deadline)[0])
    return bound


def classes_of(task: Task, near: int = NEAR) -> Classes:
    """What is alike in a task, so many steps far, pins told apart."""
    marks: dict[object, object] = {}
    for number, own in enumerate(task.marks):
        marks[number] = (own, tuple(sorted(task.work.get(number, {}).items())))
    for array in task.graph.inputs:
        marks[array.name] = _mark(task.pins.get(array.name), task.starts.get(array.name))
    for number, _ in enumerate(task.graph.outputs):
        marks["out", number] = _mark(task.pins.get(number), task.ends.get(number))
    return alike(task.graph, task.tied, marks, near)


def _mark(pins: object, form: object) -> tuple[str, str]:
    return (repr(pins), str(form))


def propagated(task: Task, order: Sequence[str]) -> Decisions:
    """What is pinned, spread axis after axis as `distribute` spreads it."""
    decided = Decisions.none(task)
    found, graph = decided.found, task.graph
    pins: dict[str | int, Mapping[str, int | None]] = {**task.pins}
    for number, form in task.ends.items():
        pins[number] = {axis: dim_of(form, axis) for axis in found.mesh.names}
    for name, form in task.starts.items():
        pins[name] = {axis: dim_of(form, axis) for axis in found.mesh.names}
    for axis in order:
        for end, dims in pins.items():
            if axis in dims:
                found.cut_array(end if isinstance(end, str) else graph.outputs[end], axis, dims[axis])
        for number, cuts in task.work.items():
            if axis in cuts and axis not in found.cuts[number]:
                found.cut_operation(number, axis, cuts[axis])
        recut(found, axis)
    for array in graph.inputs:
        decided.ins[array.name] = _at(found.input_type(array.name))
    for number, name in enumerate(graph.outputs):
        if number in task.tied:
            decided.outs[number] = dict(decided.ins[task.tied[number]])
        elif name in found.maker:
            k, write = found.maker[name]
            made = found.part(k).signature(found.mesh).outs[write]
            decided.outs[number] = _at(found.output_type(name, made))
        else:
            decided.outs[number] = dict(decided.ins[name])
    return decided


def _at(form: DistType) -> dict[str, int]:
    return {axis: number for number, dim in enumerate(form.dims) for axis in dim.axes}


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
    price, bound, complete = math.inf, -math.inf, True
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
        complete, bound = complete and solution.optimal, solution.bound
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
    return None if left > 0 and start is None else Found(decided, sources, price, bound, complete)


def program_of(task: Task, found: Found, name: str) -> Program:
    """The program of what was found, checked."""
    decided = found.decided
    starts = {name: decided.found.type_of(decided.found.arrays[name].shape, at) for name, at in decided.ins.items()}
    ends = {
        number: decided.found.type_of(decided.found.arrays[name].shape, at)
        for number, (name, at) in enumerate(zip(task.graph.outputs, decided.outs, strict=True))
    }
    links = task.machine.links
    versions = Versions(links, task.keep, sources=found.sources)
    return build(decided.found, links, {**starts, **task.starts}, {**ends, **task.ends}, name, versions)
