"""Axis after axis, each exactly and given the others, in several orders, and again until nothing changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

from redistrib.lang.types import DistType
from redistrib.partition.build import build
from redistrib.partition.versions import Versions
from redistrib.programs.program import Program
from redistrib.search.alike import Classes, alike
from redistrib.search.axes import AxesProblem, Decisions, Task
from redistrib.search.candidates import summed
from redistrib.search.exact import solved

ORDERS = 4  # of the axes, that are tried
ROUNDS = 6  # in which axes are decided again, at most


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
        decided: how everything is cut.
        sources: for values as they are needed the type to move them from, where that is not the one they were made in.
        price: of the program: seconds, or bytes, and what idle devices count.
        bound: of the last axis decided, a price that no cut along it goes below, the others being what they are.
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
    for order in islice(permutations(axes), ORDERS):
        if best is not None and time.monotonic() > end:
            break
        found = _in_order(task, order, classes, end, told)
        if best is None or found.price < best.price * (1 - 1e-9):
            best = found
    assert best is not None
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


def _in_order(task: Task, order: Sequence[str], classes: Classes, end: float, told: Callable[[str], None]) -> Found:
    decided, sources = Decisions.none(task), dict[tuple[str, DistType], DistType]()
    price, bound, complete = math.inf, 0.0, True
    unchanged = 0
    for count in range(max(1, len(order) * ROUNDS)):
        axis = order[count % len(order)] if order else ""
        told(f"axis {axis}, round {count // max(1, len(order)) + 1}")
        problem = AxesProblem(task, decided, [axis] if axis else [], classes)
        solution = solved(problem.problem, end, problem.choice_of(decided) if count >= len(order) else None)
        assert solution.choice is not None
        own = problem.problem.price(solution.choice)
        complete = complete and solution.optimal
        first = count < len(order)
        if first or own < price * (1 - 1e-9):
            decided, price, bound = problem.chosen(solution.choice), own, solution.bound
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
