"""Attention as flash kernels (Dao et al., 2022): the scores between two products stay inside one kernel.

An attention is a product of queries and keys, element-wise operations and a softmax on its result, the scores, and a
product that contracts them with values. Its backward pass has products that make or contract arrays of the same points.
Each pass is one kernel: it reads what comes from outside, writes the results of the last products, and stores no array
of scores. A later pass that reads scores of an earlier one computes them again, from the operands that it reads anyway
and one number for each row, the logarithm of the sum of exponentials.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from redistrib.programs.ir.graph import Graph, Operation
from redistrib.programs.ir.record import Fusion
from redistrib.programs.time.kernels.kinds import is_loop, is_product, is_reduction

_BETWEEN = (Fusion.CONVERT, Fusion.SELECT)  # between the exponential of a softmax and its sum
ROW = 4  # bytes of the number that a forward pass leaves for each row


class Attention(NamedTuple):
    """An attention of a graph.

    Attributes:
        scores: arrays of scores, and those stacked over the steps of a loop.
        rows: arrays with a number for each row of scores, such as the maximum and the sum.
        passes: for each pass the numbers of its operations; the forward pass comes first.
        row_bytes: bytes of `ROW` for all rows.
        flops: of the product that makes the scores.
    """

    scores: frozenset[str]
    rows: frozenset[str]
    passes: tuple[frozenset[int], ...]
    row_bytes: int
    flops: int


def attentions(graph: Graph) -> list[Attention]:
    """The attentions of a graph, in order: those with a softmax.

    Either every product of scores has a batch dimension, or none has, as for a single head, and the softmax is
    multiplied by values that are no operand of the scores. The gradient of a classifier multiplies it by both operands.
    """
    result: list[Attention] = []
    seen: set[str] = set()
    for operation in graph.operations:
        name = operation.outs[0].name if operation.outs else ""
        if operation.record.fusion is Fusion.EXPONENTIAL and name not in seen and _is_summed(graph, name):
            attention = _Search(graph, name).attention()
            if attention is not None:
                seen |= attention.scores
                result.append(attention)
    return result


def _is_summed(graph: Graph, name: str) -> bool:
    """Whether an array, or its conversion, is summed along a dimension."""
    for k, _ in graph.readers.get(name, ()):
        operation = graph.operations[k]
        if is_reduction(operation) and {*operation.nest.combiner.values()} == {"sum"}:
            return True
        if operation.record.fusion in _BETWEEN and is_loop(operation) and _is_summed(graph, operation.outs[0].name):
            return True
    return False


def _has_batch(operation: Operation) -> bool:
    """Whether a product has a dimension in both operands and in its result."""
    nest = operation.nest
    one, other = ({*access.names} for access in nest.reads)
    return any(nest.size(name) > 1 for name in one & other & {*nest.writes[0].names})


class _Search:
    """The arrays around an exponential that have its points, and the operations on them."""

    def __init__(self, graph: Graph, start: str) -> None:
        self.graph, self.start, self.arrays = graph, start, graph.arrays
        self.points = math.prod(self.arrays[start].shape)
        self.scores: set[str] = set()
        self.rows: set[str] = set()
        self.numbers: set[int] = set()
        self.makers: set[int] = set()
        self.consumers: set[int] = set()

    def attention(self) -> Attention | None:
        """The attention; None where the arrays are stored for another reason, or are no scores."""
        waiting = [self.start]
        while waiting:
            name = waiting.pop()
            if name in self.scores or name not in self.graph.makers:
                continue
            if name in self.graph.outputs or not self._made(name, waiting) or not self._read(name, waiting):
                return None
        operations = self.graph.operations
        with_batch = {_has_batch(operations[k]) for k in self.makers | self.consumers}
        if with_batch != {True} and with_batch != {False}:
            return None
        passes = self._passes()
        if not passes or not passes[0] & self.makers or not passes[0] & self.consumers:
            return None
        if with_batch == {False} and not self._weighs_values(passes[0]):
            return None
        first = operations[min(passes[0] & self.makers)]
        row = self._contracted(min(passes[0] & self.consumers))
        return Attention(
            frozenset(self.scores),
            frozenset(self.rows),
            passes,
            ROW * (self.points // max(1, row)),
            first.nest.work,
        )

    def _weighs_values(self, numbers: frozenset[int]) -> bool:
        """Whether a product of a pass sums rows of scores, each with values that are no operand of the scores."""
        operations = self.graph.operations
        operands = {self._origin(name) for k in numbers & self.makers for name in operations[k].ins}
        rows = {
            math.prod(self.arrays[name].shape) for k in numbers if is_reduction(operations[k]) for name in self._outs(k)
        }
        return any(
            self.points == row * self._contracted(k)
            and any(name not in self.scores and self._origin(name) not in operands for name in operations[k].ins)
            for k in numbers & self.consumers
            for row in rows
        )

    def _outs(self, number: int) -> list[str]:
        return [array.name for array in self.graph.operations[number].outs]

    def _origin(self, name: str) -> str:
        """The array that another is a layout, a conversion, an entry or a stack of."""
        while name in self.graph.makers:
            operation = self.graph.operations[self.graph.makers[name][0]]
            edge = operation.edge
            if not (operation.record.fusion.moves or edge.slices or edge.stacks) or not operation.ins:
                break
            name = operation.ins[0]
        return name

    def _has_points(self, name: str) -> bool:
        return math.prod(self.arrays[name].shape) == self.points

    def _made(self, name: str, waiting: list[str]) -> bool:
        """Add the maker of an array of scores; arrays that random numbers or lookups make are read from outside."""
        number, _ = self.graph.makers[name]
        operation = self.graph.operations[number]
        if operation.edge.slices:
            waiting.append(operation.ins[0])
        elif is_loop(operation):
            self.numbers.add(number)
            waiting += filter(self._has_points, operation.ins)
        elif is_product(operation):
            self.numbers.add(number)
            self.makers.add(number)
        elif not operation.edge.stacks:
            return name != self.start
        self.scores.add(name)
        return True

    def _read(self, name: str, waiting: list[str]) -> bool:
        """Add the readers of an array of scores; whether all of them can be in a kernel."""
        if name not in self.scores:
            return True
        for number, _ in self.graph.readers.get(name, ()):
            operation = self.graph.operations[number]
            edge = operation.edge
            outs = [array.name for array in operation.outs]
            if edge.stacks or edge.slices or (is_loop(operation) and all(map(self._has_points, outs))):
                waiting += outs
            elif is_product(operation):
                self.numbers.add(number)
                self.consumers.add(number)
            elif is_reduction(operation):
                self.numbers.add(number)
                self.rows.update(outs)
            else:
                return False
        return True

    def _contracted(self, number: int) -> int:
        """Elements of a row of scores: those that a product sums over."""
        nest = self.graph.operations[number].nest
        return math.prod(nest.size(name) for name, _ in nest.combine)

    def _passes(self) -> tuple[frozenset[int], ...]:
        """The operations, by how many products of scores with others they follow, and by loop."""
        graph, operations, after = self.graph, self.graph.operations, dict[str, int]()
        by_pass: dict[tuple[int, int], set[int]] = {}
        for k in range(min(self.numbers), max(self.numbers) + 1):
            operation = operations[k]
            if operation.ins and {*operation.ins} <= self.rows and (is_loop(operation) or is_reduction(operation)):
                self.numbers.add(k)
                self.rows.update(array.name for array in operation.outs if array.name not in self.scores)
            count = max((after.get(name, 0) for name in operation.ins), default=0)
            if k in self.numbers and operation.edge.computes:
                scope = graph.scopes[k]
                by_pass.setdefault((count, -1 if scope is None else scope), set()).add(k)
            count += k in self.consumers
            after |= {array.name: count for array in operation.outs if count}
            for one in (one for loop in graph.ending.get(k, ()) for one in graph.loops[loop].carried):
                if one.result is not None:
                    after[one.result] = max(after.get(one.start, 0), after.get(one.end, 0))
        for numbers in by_pass.values():
            for k in [*(numbers & self.consumers)]:
                numbers.update(self._layouts_after(k))
        return tuple(frozenset(numbers) for _, numbers in sorted(by_pass.items()))

    def _layouts_after(self, number: int) -> list[int]:
        """The operations that only lay out the result of a product, one after the other."""
        after: list[int] = []
        while True:
            name = self.graph.operations[number].outs[0].name
            reading = self.graph.readers.get(name, [])
            if len(reading) != 1 or name in self.graph.outputs:
                return after
            number = reading[0][0]
            operation = self.graph.operations[number]
            if not operation.record.fusion.moves or not is_loop(operation) or len(operation.outs) != 1:
                return after
            after.append(number)


def computes_again(attention: Attention, number: int, graph: Graph) -> bool:
    """Whether a pass reads scores of an earlier one, and so computes them again."""
    inside = attention.passes[number]
    return any(
        name in attention.scores and graph.makers[name][0] not in inside
        for k in inside
        for name in graph.operations[k].ins
    )
