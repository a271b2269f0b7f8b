"""Scans over weights stacked over layers as several scans, one after the other: each stage of a pipeline takes a run.

A run is a stretch of consecutive steps. It stays a loop, and it reads the entries of its steps alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex

from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.loops import LoopForm
from redistrib.programs.ir.primitives import record_of
from redistrib.programs.ir.record import Bounds
from redistrib.programs.ir.value import fresh
from redistrib.programs.rules.equation import RULES, ArrayForm, Equation, EquationBody, scan_form
from redistrib.programs.run import regions  # noqa: F401  # its rules are in the table
from redistrib.programs.run.region import REGIONS
from redistrib.programs.stages.loops import filled


def bounds_of(length: int, count: int) -> list[tuple[int, int]]:
    """First and last step, exclusive, of each of `count` runs as equal as can be.

    >>> bounds_of(10, 4)
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    return list(pairwise(k * length // count for k in range(count + 1)))


def resized(array: Array, name: str, dim: int, size: int) -> Array:
    """An array of another name and of another size along one dimension."""
    return Array(name, (*array.shape[:dim], size, *array.shape[dim + 1 :]), array.dtype)


def sliced(array: Array, name: str, dim: int, first: int, last: int) -> Operation:
    """The operation that takes a stretch of an array along one dimension."""
    starts, limits = [0] * len(array.shape), list(array.shape)
    starts[dim], limits[dim] = first, last
    params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None}
    return operation(jax.lax.slice_p, params, [array], resized(array, name, dim, last - first))


def operation(primitive: Any, params: Mapping[str, Any], ins: Sequence[Array], out: Array) -> Operation:
    """The operation of a primitive on arrays."""
    forms = [ArrayForm(array.shape, array.dtype) for array in (*ins, out)]
    nest = RULES[primitive.name](Equation(primitive, params, tuple(forms[:-1]), tuple(forms[-1:]), {}))
    assert nest is not None  # slices, joins and sums have one
    nest = replace(nest, name=out.name, linear=())
    return Operation(nest, primitive.name, tuple(array.name for array in ins), (out,))


def combined(primitive: Any, parts: Sequence[Array], total: Array, taken: set[str]) -> Iterator[Operation]:
    """The operations that combine the parts of an array one after the other, the last of them into the array."""
    so_far = parts[0]
    for k, part in enumerate(parts[1:], 2):
        out = total if k == len(parts) else total._replace(name=fresh(f"{total.name}.total", taken))
        yield operation(primitive, {}, [so_far, part], out)
        so_far = out


@dataclass
class GraphInRuns:
    """A graph whose scans over layers are runs.

    Attributes:
        graph: the operations.
        entries: for the entries that a run reads the stacked array and the number of the run.
        stacks: for a stacked result those of the runs, which it joins.
        unstacked: weights that unrolled layers read.
    """

    graph: Graph
    entries: dict[str, tuple[str, int]] = field(default_factory=dict)
    stacks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unstacked: set[str] = field(default_factory=set)


def in_runs(graph: Graph, count: int, examples: Collection[str], unstacked: Collection[str] = ()) -> GraphInRuns:
    """Cut the scans over layers of a graph into runs.

    A scan is over layers if it reads, step by step, floating-point numbers that depend on inputs and on no example, or
    the results of the steps of another one. Those of fewer steps than runs stay whole.

    Args:
        graph: the operations; loops are operations.
        count: runs of each scan.
        examples: names of the inputs with examples.
        unstacked: arrays that unrolled loops read step by step.
    """
    return _Cutting(graph, count, {*examples}, {*unstacked}).runs()


class _Cutting:
    def __init__(self, graph: Graph, count: int, examples: set[str], unstacked: set[str]) -> None:
        self.unstacked = unstacked
        self.graph, self.count, self.arrays = graph, count, graph.arrays
        self.weights = {array.name for array in graph.inputs if array.name not in examples}
        self.of_examples = examples
        self.result = GraphInRuns(graph)
        self.operations: list[Operation] = []
        self.taken = set(self.arrays)
        self.zeros = {op.outs[0].name for op in graph.operations if op.nest.fills == "sum"}

    def runs(self) -> GraphInRuns:
        for op in self.graph.operations:
            if self._is_over_layers(op):
                self._cut(op)
            else:
                self.operations.append(op)
            for names in (self.weights, self.of_examples):
                if names.intersection(op.ins):
                    names.update(array.name for array in op.outs)
        self.result.graph = replace(self.graph, operations=tuple(self.operations))
        self.result.unstacked = {name for name in self.unstacked & set(self.arrays) if self._is_weight(name)}
        return self.result

    def _is_over_layers(self, op: Operation) -> bool:
        body = op.nest.body
        if op.kind != "scan" or not isinstance(body, EquationBody) or op.nest.effectful:
            return False
        equation = body.equation
        names = dict(zip(equation.reads, op.ins, strict=True))
        form = scan_form(equation.params, equation.ins, equation.outs)
        stacked = [names[k] for k in range(form.held, len(equation.ins)) if k in names]
        is_long = form.steps >= self.count > 1
        return is_long and any(name in self.result.stacks or self._is_weight(name) for name in stacked)

    def _is_weight(self, name: str) -> bool:
        is_floating = jax.numpy.issubdtype(self.arrays[name].dtype, np.inexact)
        return is_floating and name in self.weights and name not in self.of_examples

    def _cut(self, op: Operation) -> None:
        """Add the runs of a scan, then what joins their results."""
        body = op.nest.body
        assert isinstance(body, EquationBody)
        equation, params = body.equation, body.equation.params
        form = scan_form(params, equation.ins, equation.outs)
        consts, carried, begin, bounds = form.constants, form.carried, form.held, bounds_of(form.steps, self.count)
        names = dict(zip(equation.reads, op.ins, strict=True))
        sums = accumulators(params["jaxpr"], form)
        carry = {k: names[k] for k in range(consts, begin) if k in names}
        for k in range(consts, begin):
            if k in equation.literals and np.ndim(equation.literals[k]) == 0 and equation.ins[k].key is None:
                carry[k] = self._filled(equation.ins[k], equation.literals[k])
        starts = dict(carry)
        results: dict[int, tuple[Array, ...]] = {}
        order = form._replace(steps=self.count).order
        for number in order:
            size = bounds[number][1] - bounds[number][0]
            reads = {k: name for k, name in names.items() if k < consts} | carry
            reads |= {k: self._entry(names[k], number, bounds) for k in range(begin, len(equation.ins)) if k in names}
            literals = {k: value for k, value in equation.literals.items() if k not in reads}
            literals |= {k: value[slice(*bounds[number])] for k, value in literals.items() if k >= begin}
            for k in sums:  # what they begin with is added once, after the last run
                reads[consts + k] = self._filled(equation.ins[consts + k], 0)
            run = replace(
                equation,
                params={**params, "length": size},
                ins=(*equation.ins[:begin], *_of_length(equation.ins[begin:], size)),
                outs=(*equation.outs[:carried], *_of_length(equation.outs[carried:], size)),
                literals={k: value for k, value in literals.items() if k not in reads},
                ranges={},
            )
            ends = {k for k in range(carried) if k not in sums and number == order[-1]}
            outs = tuple(
                Array(
                    array.name if k in ends else fresh(f"{array.name}.run{number}", self.taken), form.shape, form.dtype
                )
                for k, (array, form) in enumerate(zip(op.outs, run.outs, strict=True))
            )
            nest = REGIONS["scan"](run)
            assert nest is not None  # it has the factors of the whole scan
            nest = replace(nest, name=outs[0].name, linear=op.nest.linear)
            self.operations.append(replace(op, nest=nest, ins=tuple(reads[k] for k in sorted(reads)), outs=outs))
            carry = {consts + k: outs[k].name for k in range(carried)}
            results[number] = outs
        for k in sums:
            parts = [results[number][k] for number in order]
            if consts + k in starts and starts[consts + k] not in self.zeros:
                parts.insert(0, op.outs[k]._replace(name=starts[consts + k]))
            self.operations += combined(jax.lax.add_p, parts, op.outs[k], self.taken)
        for k in range(carried, len(op.outs)):
            parts = [results[number][k] for number in range(self.count)]
            self.operations.append(operation(jax.lax.concatenate_p, {"dimension": 0}, parts, op.outs[k]))
            self.result.stacks[op.outs[k].name] = tuple(array.name for array in parts)

    def _entry(self, name: str, number: int, bounds: Sequence[tuple[int, int]]) -> str:
        """The entries of the steps of a run."""
        if name in self.result.stacks:
            return self.result.stacks[name][number]
        entry = next((entry for entry, of in self.result.entries.items() if of == (name, number)), "")
        if not entry:
            entry = fresh(f"{name}.of_run{number}", self.taken)
            self.operations.append(sliced(self.arrays[name], entry, 0, *bounds[number]))
            self.result.entries[entry] = name, number
        return entry

    def _filled(self, form: ArrayForm, value: Any) -> str:
        """An array whose elements are all one number: it is an operand, so that it may be cut."""
        out = Array(fresh("constant", self.taken), form.shape, form.dtype)
        self.operations.append(Operation(filled(out, value), "broadcast_in_dim", (), (out,)))
        if not np.any(value):
            self.zeros.add(out.name)
        return out.name


def _of_length(forms: Sequence[ArrayForm], length: int) -> Iterator[ArrayForm]:
    return (form._replace(shape=(length, *form.shape[1:])) for form in forms)


def accumulators(closed: Any, form: LoopForm) -> list[int]:
    """The carried values, by number, to which every step adds and which it reads for nothing else.

    Args:
        closed: the jaxpr of a step.
        form: of the loop.
    """
    jaxpr, sums = closed.jaxpr, []
    _, carried, _ = form.operands(jaxpr.invars)
    reads: dict[int, list[Any]] = {}
    for eqn in jaxpr.eqns:
        for var in eqn.invars:
            reads.setdefault(id(var), []).append(eqn)
    ends = [id(var) for var in jaxpr.outvars]
    for k, var in enumerate(carried):
        while len(reads.get(id(var), ())) == 1 and id(var) not in ends:
            eqn = reads[id(var)][0]
            adds = record_of(eqn.primitive.name).bounds is Bounds.ADDED
            if not adds or eqn.outvars[0].aval.shape != var.aval.shape:
                break
            var = eqn.outvars[0]
        is_read = id(var) in reads or isinstance(var, jex.Literal)
        if not is_read and ends.count(id(var)) == 1 and ends[k] == id(var) and id(var) != id(carried[k]):
            sums.append(k)
    return sums
