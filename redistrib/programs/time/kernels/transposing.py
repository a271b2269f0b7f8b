"""Transpositions where nothing is fused with products, as under XLA for CPUs: done by products, copies, or strided."""

from __future__ import annotations

from redistrib.programs.ir.graph import Graph
from redistrib.programs.ir.record import Fusion, WorkClass
from redistrib.programs.ir.work import is_by_vector, turns, work_of
from redistrib.programs.time.kernels.kinds import is_product


def strides(graph: Graph, number: int, inside: set[int]) -> bool:
    """Whether an operation transposes its first operand element by element, where nothing is fused with products.

    A transposition does if other operations are computed with it, or its elements are complex; else it is a copy, or
    belongs to a product that reads it. Such a product then transposes the operand that it would not, and the reverse.
    A product with a vector reads a matrix in its order.
    """
    operation = graph.operations[number]
    work = work_of(operation.record, operation.nest)
    maker = graph.makers.get(operation.ins[0], (-1,))[0] if operation.ins else -1
    if operation.record.fusion is Fusion.PRODUCT:
        if is_by_vector(operation.nest):
            return False
        before = graph.operations[maker] if maker in inside else None
        is_folded = before is not None and work_of(before.record, before.nest) is WorkClass.TRANSPOSE
        return is_folded != turns(operation.nest)
    if work is not WorkClass.TRANSPOSE or follows_product(graph, number):
        return False
    if number in inside:
        return not any(is_product(graph.operations[k]) for k, _ in graph.readers.get(operation.outs[0].name, ()))
    return maker in inside or operation.outs[0].dtype.startswith("complex")


def follows_product(graph: Graph, number: int) -> bool:
    """Whether an operation alone reads the result of a product beside it."""
    name = graph.operations[number].ins[0]
    maker = graph.makers.get(name, (-1,))[0]
    if maker < 0 or graph.scopes[maker] != graph.scopes[number] or name in graph.outputs:
        return False
    return is_product(graph.operations[maker]) and len(graph.readers[name]) == 1
