"""Isomorphism classes of a search: which operations and inputs are decided as one, pins told apart."""

from __future__ import annotations

from redistrib.autoshard.alike import NEAR, Classes, alike
from redistrib.autoshard.axes import Task
from redistrib.autoshard.folding import Folded
from redistrib.programs.graph import Graph


def marks_of(task: Task) -> dict[object, object]:
    """What tells operations, inputs and outputs from others that do the same: pins, summands, rates of their own."""
    marks: dict[object, object] = {}
    for number, own in enumerate(task.marks):
        marks[number] = (own, tuple(sorted(task.work.get(number, {}).items())))
    for array in task.graph.inputs:
        marks[array.name] = _mark(task.pins.get(array.name), task.starts.get(array.name))
    for number, _ in enumerate(task.graph.outputs):
        marks["out", number] = _mark(task.pins.get(number), task.ends.get(number))
    return marks


def classes_of(task: Task, near: int = NEAR) -> Classes:
    """What is alike in a task, so many steps far, pins told apart."""
    marks = marks_of(task)
    classes = alike(task.graph, task.tied, marks, near)
    return classes if task.folded is None else _by_cell(task.graph, task.folded, classes)


def _by_cell(graph: Graph, folded: Folded, classes: Classes) -> Classes:
    """Classes in which operations of repeated layers are one wherever the layer stands, and so is what they read."""
    number: dict[object, int] = {}
    first: dict[str, object] = {}
    operations = []
    for k, (operation, cell) in enumerate(zip(graph.operations, folded.cells, strict=True)):
        operations.append(number.setdefault(cell or ("class", classes.operations[k]), len(number)))
        for read, name in enumerate(operation.ins):
            if cell is not None:
                first.setdefault(name, (cell, read))
    keys = (first.get(array.name, own) for array, own in zip(graph.inputs, classes.inputs, strict=True))
    inputs = [number.setdefault(("input", key), len(number)) for key in keys]
    return Classes(tuple(operations), tuple(inputs))


def _mark(pins: object, form: object) -> tuple[str, str]:
    return (repr(pins), str(form))


def one_by_one(task: Task) -> Classes:
    """The classes of a task in which every operation and input is one of its own."""
    return Classes(tuple(range(len(task.graph.operations))), tuple(range(len(task.graph.inputs))))
