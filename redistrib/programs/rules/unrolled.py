"""The steps of a scan one after the other, each as separate operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax

from redistrib.programs.rules.equation import ArrayForm, Atom, Equation, Lit, form_of, scan_form


class UnrollingTracer(Protocol):
    """The part of the tracer that unrolling needs."""

    stacks: dict[str, list[Atom]]
    unstacked: set[str]

    def add(self, equation: Equation, ins: Sequence[str], source: str) -> list[str]: ...

    def inlined(self, inner: Any, ins: Sequence[Atom], source: str) -> list[Atom]: ...

    def materialized(self, atom: Atom, form: ArrayForm) -> str: ...

    def unary(
        self, primitive: Any, params: Mapping[str, Any], before: ArrayForm, after: ArrayForm, name: str, source: str
    ) -> str: ...


def unrolled(tracer: UnrollingTracer, eqn: Any, ins: Sequence[Atom], source: str) -> list[Atom]:
    """Add the steps of a scan one after the other; returns its last carried values, then its stacked results."""
    before, after = ([form_of(var.aval) for var in side] for side in (eqn.invars, eqn.outvars))
    loop = scan_form(eqn.params, before, after)
    fixed, carry, arrays = loop.operands(ins)
    forms = loop.operands(before)[2]
    slices = [
        [_entry(tracer, atom, form, step, source) for atom, form in zip(arrays, forms, strict=True)]
        for step in range(loop.steps)
    ]
    made: dict[int, Sequence[Atom]] = {}
    for step in loop.order:
        carry, made[step] = loop.results(tracer.inlined(eqn.params["jaxpr"], [*fixed, *carry, *slices[step]], source))
    results = []
    for k, form in enumerate(loop.results(after)[1]):
        results.append(_stack(tracer, [made[step][k] for step in range(loop.steps)], form, source))
    return [*carry, *results]


def _entry(tracer: UnrollingTracer, atom: Atom, form: ArrayForm, step: int, source: str) -> Atom:
    """One element of a scan's input."""
    if isinstance(atom, Lit):
        return Lit(atom.value[step])
    if atom in tracer.stacks:
        return tracer.stacks[atom][step]
    tracer.unstacked.add(atom)
    tail = form.shape[1:]
    params = {"start_indices": (step, *[0] * len(tail)), "limit_indices": (step + 1, *tail), "strides": None}
    row = ArrayForm((1, *tail), form.dtype)
    atom = tracer.unary(jax.lax.slice_p, params, form, row, atom, source)
    return tracer.unary(jax.lax.squeeze_p, {"dimensions": (0,)}, row, ArrayForm(tail, form.dtype), atom, source)


def _stack(tracer: UnrollingTracer, atoms: Sequence[Atom], form: ArrayForm, source: str) -> Atom:
    """The outputs of a scan's steps, along a new first dimension."""
    tail = form.shape[1:]
    element, row = ArrayForm(tail, form.dtype), ArrayForm((1, *tail), form.dtype)
    params = {"shape": row.shape, "broadcast_dimensions": tuple(range(1, len(row.shape))), "sharding": None}
    values: list[str] = [tracer.materialized(atom, element) for atom in atoms]
    rows = [tracer.unary(jax.lax.broadcast_in_dim_p, params, element, row, value, source) for value in values]
    join = Equation(jax.lax.concatenate_p, {"dimension": 0}, (row,) * len(rows), (form._replace(key=None),), {})
    stacked = tracer.add(join, rows, source)[0]
    tracer.stacks[stacked] = list(values)
    return stacked
