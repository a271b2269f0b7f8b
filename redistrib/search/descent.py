"""Axis after axis, each exactly and given the others, in several orders, and again until nothing changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, permutations

from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.partition.build import build
from redistrib.partition.ends import recut
from redistrib.partition.versions import Versions
from redistrib.programs.program import Program
from redistrib.search.alike import Classes, alike
from redistrib.search.axes import AxesProblem, Decisions, Task, dim_of
from redistrib.search.candidates import summed
from redistrib.search.exact import solved
from redistrib.search.integer import relaxed

ORDERS = 3  # of the axes, that are tried, beside what propagation makes of the pins
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


def searched(task: Task, limit: float | None = None, told: Callable[[str], None] = lambda said: None) -> Found:
    """The best decisions that are found.

    Args:
        task: what is searched.
        limit: seconds after which the best so far is taken.
        told: is told what goes on.
    """
    end = math.inf if limit is None else time.monotonic() + limit
    classes = classes_of(task)
    axes = [axis.name for axis in task.moves.mesh.axes if axis.size > 1]
    best: Found | None = None
    starts: list[Decisions | None] = [None] * ORDERS
    orders = list(islice(permutations(axes), ORDERS))
    if axes and (task.starts or task.ends or task.pins or task.work):
        ways = list(dict.fromkeys((tuple(axes), tuple(reversed(axes)))))
        starts, orders = [*(propagated(task, way) for way in ways), *starts], [*ways, *orders]
    for start, order in zip(starts, orders, strict=False):
        if best is not None and time.monotonic() > end:
            break
        found = _in_order(task, order, classes, end, told, start)
        if best is None or found.price < best.price * (1 - 1e-9):
            best = found
    assert best is not None
    if math.isinf(best.bound):
        told("bound")
        problem = AxesProblem(task, best.decided, axes[-1:], classes)
        best = replace(best, bound=relaxed(problem.problem)[0])
    return best


def classes_of(task: Task) -> Classes:
    """What is alike in a task, pins told apart."""
    sums = summed(Decisions.none(task).found)
    marks: dict[object, object] = {}
    for number, operation in enumerate(task.graph.operations):
        own = tuple(name in sums for name in operation.ins)
        marks[number] = (own, tuple(sorted(task.work.get(number, {}).items())))
    for array in task.graph.inputs:
        marks[array.name] = _mark(task.pins.get(array.name), task.starts.get(array.name))
    for number, _ in enumerate(task.graph.outputs):
        marks["out", number] = _mark(task.pins.get(number), task.ends.get(number))
    return alike(task.graph, task.tied, marks)


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
    end: float,
    told: Callable[[str], None],
    start: Decisions | None = None,
) -> Found:
    """Decide axis after axis, from nothing or from decisions that are there, until nothing gets better."""
    decided, sources = start or Decisions.none(task), dict[tuple[str, DistType], DistType]()
    price, bound, complete = math.inf, 0.0, True
    unchanged = 0
    for count in range(max(1, len(order) * ROUNDS)):
        axis = order[count % len(order)] if order else ""
        told(f"axis {axis}, round {count // max(1, len(order)) + 1}")
        problem = AxesProblem(task, decided, [axis] if axis else [], classes)
        if count == 0 and start is not None:
            known = problem.choice_of(start)
            decided, price, sources = problem.chosen(known), problem.problem.price(known), problem.sources(known)
        is_known = start is not None or count >= len(order)
        solution = solved(problem.problem, end, problem.choice_of(decided) if is_known else None)
        if solution.choice is None:
            raise ProgramError("", "", "Schedule", f"nothing was found along axis {axis!r}; loosen the pins")
        own = problem.problem.price(solution.choice)
        complete, bound = complete and solution.optimal, solution.bound
        if not is_known or own < price * (1 - 1e-9):
            decided, price = problem.chosen(solution.choice), own
            sources, unchanged = problem.sources(solution.choice), 0
        unchanged += 1
        if count >= len(order) - 1 and (unchanged >= len(order) or time.monotonic() > end):
            break
    return Found(decided, sources, price, bound, complete)


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
