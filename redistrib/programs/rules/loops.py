"""Loops of a jaxpr as scopes of a graph: the body once, between operations that lead into the loop and out of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import jax

from redistrib.programs.ir.graph import Array, Operation
from redistrib.programs.ir.loops import CARRY, ENTRY, STACK, TEST, Edge, LoopScope
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.record import WorkClass
from redistrib.programs.rules.equation import (
    ArrayForm,
    Atom,
    Equation,
    form_of,
    scan_form,
    while_form,
    with_scalar_condition,
)
from redistrib.programs.rules.sums import passing
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.rules.unrolled import UnrollingTracer, unrolled


class Tracer(UnrollingTracer, Protocol):
    """The parts of the tracer that loops use."""

    operations: list[Operation]
    loops: list[LoopScope]
    scope: int | None
    options: TraceOptions

    def named(self, kind: str) -> str: ...


LoopRule: TypeAlias = Callable[[Tracer, Any, Sequence[Atom], str], list[Atom]]
LOOPS: dict[str, LoopRule] = {}  # by the name of the primitive


def kind_of_loop(kind: str) -> Callable[[LoopRule], LoopRule]:
    """Register how a loop of a jaxpr becomes one of the graph, by the name of its primitive.

    The rule takes the tracer, the equation, its operands and where it stands, and returns its results. It adds what
    the loop carries, enters, tests and stacks to an `OpenLoop`, and the body between; no other room needs to be told of
    the kind. Pipelines open no loops: there it is one operation, which a rule of its own must cut, and the only loop
    that they unroll or take run by run is `jax.lax.scan`.
    """

    def add(rule: LoopRule) -> LoopRule:
        LOOPS[kind] = rule
        return rule

    return add


def is_unrolled(params: Mapping[str, Any]) -> bool:
    """Whether the user has asked to unroll a scan, or it has a single step."""
    return bool(params["length"] == 1 or params["unroll"] >= params["length"] > 0)


@kind_of_loop("scan")
def _scan(tracer: Tracer, eqn: Any, ins: Sequence[Atom], source: str) -> list[Atom]:
    """Add a scan; returns the carried values at the end, then the stacked arrays."""
    if is_unrolled(eqn.params):
        return unrolled(tracer, eqn, ins, source)
    sides = [[form_of(var.aval) for var in side] for side in (eqn.invars, eqn.outvars)]
    form = scan_form(eqn.params, *sides)
    fixed, starts, arrays = form.operands(ins)
    _, carried, stacks = form.operands(sides[0])
    _, left_stacks = form.results(sides[1])
    starts, arrays = _materialized(tracer, starts, carried), _materialized(tracer, arrays, stacks)
    loop = OpenLoop(tracer, "scan", form.steps, source, reverse=form.reverse)
    carries = [loop.carry(*pair) for pair in zip(starts, carried, strict=True)]
    entries = [loop.entry(*pair) for pair in zip(arrays, stacks, strict=True)]
    results = tracer.inlined(eqn.params["jaxpr"], [*fixed, *carries, *entries], source)
    ends, made = form.results(_materialized(tracer, results, [*carried, *_entries_of(left_stacks)]))
    left = loop.close_carries(ends)
    stacked = [loop.stack(*pair) for pair in zip(made, left_stacks, strict=True)]
    loop.end()
    return [*left, *stacked]


@kind_of_loop("while")
def _while(tracer: Tracer, eqn: Any, ins: Sequence[Atom], source: str) -> list[Atom]:
    """Add a `while`; returns the carried values at the end."""
    params, is_other = with_scalar_condition(eqn.params)
    form = while_form(params)
    if is_other:  # its step reads the constants of the condition too
        ins = [*ins[: form.tested], *ins]
    tested, fixed, starts = form.operands(ins)
    forms = [form_of(var.aval) for var in eqn.outvars]
    starts = _materialized(tracer, starts, forms)
    loop = OpenLoop(tracer, "while", tracer.options.trip_count, source)
    carries = [loop.carry(name, form) for name, form in zip(starts, forms, strict=True)]
    (goes_on,) = tracer.inlined(params["cond_jaxpr"], [*tested, *carries], source)
    loop.test(tracer.materialized(goes_on, form_of(params["cond_jaxpr"].out_avals[0])))
    results = tracer.inlined(params["body_jaxpr"], [*fixed, *carries], source)
    left = loop.close_carries(_materialized(tracer, results, forms))
    loop.end()
    return [*left]


def _entries_of(forms: Sequence[ArrayForm]) -> list[ArrayForm]:
    """The forms of the entries of a step, for arrays with an entry for each step."""
    return [form._replace(shape=form.shape[1:]) for form in forms]


def _materialized(tracer: Tracer, atoms: Sequence[Atom], forms: Sequence[ArrayForm]) -> list[str]:
    return [tracer.materialized(atom, form) for atom, form in zip(atoms, forms, strict=True)]


class OpenLoop:
    """A loop in the making: its operations are those that the tracer adds until `end`."""

    def __init__(self, tracer: Tracer, kind: str, steps: int, source: str, *, reverse: bool = False) -> None:
        self.tracer, self.kind, self.source, self.outer = tracer, kind, source, tracer.scope
        self.number, first = len(tracer.loops), len(tracer.operations)
        scope = LoopScope(tracer.named(kind), self.outer, first, first, steps, reverse, source)
        tracer.loops.append(scope)
        tracer.scope = self.number
        self.carries: list[int] = []

    def end(self) -> None:
        """End the loop: later operations do not belong to it."""
        operations, loops = self.tracer.operations, self.tracer.loops
        first, stop = loops[self.number].first, len(operations)
        invariant = self._invariant(first)
        order = [*sorted(invariant), *(k for k in range(first, stop) if k not in invariant)]
        place = {k: first + number for number, k in enumerate(order)}
        operations[first:] = [operations[k] for k in order]
        for number, inner in enumerate(loops[self.number + 1 :], self.number + 1):
            if inner.first < inner.stop:
                loops[number] = replace(inner, first=place[inner.first], stop=place[inner.stop - 1] + 1)
        loops[self.number] = replace(loops[self.number], first=first + len(invariant), stop=stop)
        self.tracer.scope = self.outer

    def _invariant(self, first: int) -> set[int]:
        """Operations with the same results at every step, which are done once, before the loop.

        Those that combine are among them, with all operands. Of the others, an operation that enlarges arrays stays
        inside, with its readers: it is cheap, and its result would take memory throughout the loop. So does a
        transposition, which compilers put into the product that reads it.
        """
        operations = self.tracer.operations
        inside = {k for inner in self.tracer.loops[self.number + 1 :] for k in range(inner.first, inner.stop)}
        maker = {array.name: k for k in range(first, len(operations)) for array in operations[k].outs}
        steady, chosen = set[int](), set[int]()
        for k in range(first, len(operations)):
            operation, nest = operations[k], operations[k].nest
            read_of = {maker[name] for name in operation.ins if name in maker}
            if not operation.edge.computes or nest.effectful or k in inside or not read_of <= steady:
                continue
            steady.add(k)
            read, written = (sum(map(math.prod, map(nest.shape, side))) for side in (nest.reads, nest.writes))
            if nest.combine:
                chosen |= {k, *self._all_read(read_of - chosen, maker)}
            elif (
                operation.ins
                and operation.record.work is not WorkClass.TRANSPOSE
                and written <= read
                and read_of <= chosen
            ):
                chosen.add(k)
        return chosen

    def _all_read(self, numbers: set[int], maker: Mapping[str, int]) -> set[int]:
        """These operations of the loop, and all operations of it that they read, directly or not."""
        reached, left = set(numbers), list(numbers)
        while left:
            read_of = {maker[name] for name in self.tracer.operations[left.pop()].ins if name in maker}
            left += read_of - reached
            reached |= read_of
        return reached

    def carry(self, name: str, form: ArrayForm) -> str:
        """Add a carried value with its initial value; `close_carries` adds its end and its result."""
        self.carries.append(len(self.tracer.operations))
        return self._add(CARRY, (name, name), form.shape, form.shape, form.dtype)

    def close_carries(self, ends: Sequence[str]) -> list[str]:
        """Set what each carried value is at the end of a step; returns those after the last step."""
        names = []
        for number, end in zip(self.carries, ends, strict=True):
            operation = self.tracer.operations[number]
            (start,), (written,) = operation.outs, operation.nest.writes
            result = start._replace(name=self.tracer.named("leave"))
            nest = replace(operation.nest, writes=(written, replace(written, array="result")))
            ins, outs = (operation.ins[0], end), (start, result)
            self.tracer.operations[number] = replace(operation, nest=nest, ins=ins, outs=outs)
            names.append(result.name)
        return names

    def entry(self, name: str, form: ArrayForm) -> str:
        """The entry of a step in an array with an entry for each step."""
        return self._add(ENTRY, (name,), form.shape, form.shape[1:], form.dtype)

    def stack(self, name: str, form: ArrayForm) -> str:
        """The array of the results of all steps."""
        return self._add(STACK, (name,), form.shape[1:], form.shape, form.dtype)

    def test(self, name: str) -> None:
        """Add the condition under which another step follows."""
        nest = Nest("test", (), (Access("a0", ()),), (), flops=0)
        self._append(nest, TEST, (name,), ())

    def _add(self, edge: Edge, ins: tuple[str, ...], read: Sequence[int], written: Sequence[int], dtype: str) -> str:
        """Add an operation that is the identity, of entries or between arrays of which one has another dimension."""
        shape = min(read, written, key=len)
        dims = tuple((f"d{k}",) for k in range(len(shape)))
        form = ArrayForm(tuple(shape), dtype)
        sums = () if self.tracer.options.exact else passing(Equation(jax.lax.copy_p, {}, (form,), (form,), {}))

        def access(name: str, side: Sequence[int]) -> Access:
            return Access(name, ((), *dims), (side[0],)) if len(side) > len(shape) else Access(name, dims)

        nest = Nest(
            self.kind,
            tuple((f"d{k}", range(size)) for k, size in enumerate(shape)),
            tuple(access(f"a{k}", read) for k in range(len(ins))),
            (access("out", written),),
            linear=(tuple(range(len(ins))),) if sums else (),
            flops=0,
        )
        name = self.tracer.named(edge.kind)
        self._append(nest, edge, ins, (Array(name, tuple(written), dtype),))
        return name

    def _append(self, nest: Nest, edge: Edge, ins: tuple[str, ...], outs: tuple[Array, ...]) -> None:
        name = outs[0].name if outs else self.tracer.named(edge.kind)
        operation = Operation(replace(nest, name=name), edge.kind, ins, outs, self.source, edge=edge)
        self.tracer.operations.append(operation)
