"""The prologue: what is computed from the whole batch once for each call, before the stages run.

A loss over a mask divides by `sum(mask)`. The stages cannot: each microbatch would wait for all others. But the number
depends on arguments with examples and on constants alone, on no parameter, so that it needs none of the stages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.graph import Graph, Operation
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.value import fresh
from redistrib.programs.lower.emit import emit
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.stages.examples import sums_of


class Prologue(NamedTuple):
    """A graph in two parts.

    Attributes:
        program: of the prologue, on one device; its inputs have the names of the graph's.
        graph: the rest. The results of the prologue are its last inputs.
    """

    program: Program
    graph: Graph


def on_one_device(graph: Graph, name: str) -> Program:
    """A graph as a program on one device."""
    return emit(Propagation(graph.unpinned(), Mesh(())), MovePlanner("exact"), name)


def prologue_of(graph: Graph, examples: Mapping[str, int], constants: Collection[str]) -> Prologue | None:
    """Split off what mixes examples and depends on no parameter; None if there is no such thing.

    Args:
        graph: of the function.
        examples: the inputs with examples, each with the dimension that runs over them.
        constants: inputs that are no arguments.
    """
    known = {*examples, *constants}
    pure: list[Operation] = []
    for op in graph.operations:
        if known.issuperset(op.ins) and not (op.nest.effectful or op.pinned or op.opaque):
            pure.append(op)
            known.update(array.name for array in op.outs)
    inputs = tuple(array for array in graph.inputs if array.name in known)
    ends = tuple(array.name for op in pure for array in op.outs)
    sums = sums_of(on_one_device(Graph(inputs, tuple(pure), ends), "prologue"), examples)
    early = {array.name for op in pure if sums.issuperset(array.name for array in op.outs) for array in op.outs}
    late = [op for op in graph.operations if not early.issuperset(array.name for array in op.outs) or not op.outs]
    read = [*graph.outputs, *(name for op in late for name in op.ins)]
    results = tuple(dict.fromkeys(name for name in read if name in sums))
    if not results:
        return None
    taken = set(graph.arrays)
    given = {name: fresh(f"{name}.before", taken) for name in results}

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(given.get(name, name) for name in names)

    rest = Graph(
        (*graph.inputs, *(graph.arrays[name]._replace(name=given[name]) for name in results)),
        tuple(replace(op, ins=renamed(op.ins)) for op in late),
        renamed(graph.outputs),
    )
    return Prologue(on_one_device(Graph(inputs, tuple(pure), results).used(), "prologue"), rest.used())
