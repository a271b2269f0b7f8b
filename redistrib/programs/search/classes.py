"""Isomorphism classes of a search: operations and inputs that share a decision; pins separate them."""

from __future__ import annotations

from redistrib.programs.ir.graph import Graph
from redistrib.programs.schedule.graph_cuts import End
from redistrib.programs.search.constants import NEAR
from redistrib.programs.search.folding import Folded
from redistrib.programs.search.isomorphism import IsomorphismClasses, isomorphism_classes
from redistrib.programs.search.problem import SearchProblem


def marks_of(problem: SearchProblem) -> dict[object, object]:
    """Labels of operations, inputs and outputs: pins, partial sums, overridden rates."""
    given = problem.given

    def mark(end: End) -> object:
        return (tuple(sorted(given.pins.get(end, {}).items())), given.types.get(end))

    marks: dict[object, object] = dict(enumerate(problem.facts.marks))
    for number, work in given.work.items():
        marks[number] = (marks[number], tuple(sorted(work.items())))
    for array in problem.graph.inputs:
        marks[array.name] = mark(array.name)
    for number, _ in enumerate(problem.graph.outputs):
        marks["out", number] = mark(number)
    return marks


def classes_of(problem: SearchProblem, near: int = NEAR) -> IsomorphismClasses:
    """The isomorphism classes of a search problem, by neighbours so many steps far and by pins."""
    marks = marks_of(problem)
    classes = isomorphism_classes(problem.graph, problem.given.tied, marks, near)
    return classes if problem.folded is None else _by_cell(problem.graph, problem.folded, classes)


def _by_cell(graph: Graph, folded: Folded, classes: IsomorphismClasses) -> IsomorphismClasses:
    """Classes that join operations of repeated layers, at any layer, and the values that they read."""
    number: dict[object, int] = {}
    first: dict[str, object] = {}
    operations = []
    for k, (operation, cell) in enumerate(zip(graph.operations, folded.cells, strict=True)):
        operations.append(number.setdefault(cell or ("class", classes.operations[k]), len(number)))
        for read, name in enumerate(operation.ins):
            if cell is not None:
                first.setdefault(name, (cell, read))
    keys = (first.get(array.name, input_class) for array, input_class in zip(graph.inputs, classes.inputs, strict=True))
    inputs = [number.setdefault(("input", key), len(number)) for key in keys]
    return IsomorphismClasses(tuple(operations), tuple(inputs))


def one_by_one(problem: SearchProblem) -> IsomorphismClasses:
    """The classes of a search problem in which every operation and input has a class to itself."""
    return IsomorphismClasses(tuple(range(len(problem.graph.operations))), tuple(range(len(problem.graph.inputs))))
