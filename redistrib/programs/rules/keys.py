"""Operations on keys of random numbers, which are arrays with one more dimension: the integers of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.record import Keys
from redistrib.programs.rules.equation import ArrayForm, At, Equation, Rule, results


def nest_of_keys(equation: Equation, rule: Rule) -> Nest | None:
    """The nest of an equation with keys among its operands or results; None if its rule does not handle keys."""
    if equation.record.keys is Keys.INTEGERS or equation.effectful:
        return rule(equation)
    if equation.record.keys is not Keys.SHAPE:
        return None
    as_integers = replace(equation, ins=_of_keys(equation.ins), outs=_of_keys(equation.outs))
    nest = rule(as_integers)
    if nest is None or nest.body is None:
        return None
    body = nest.body

    def run(at: At, *tiles: Any) -> Any:
        result = body(at, *tiles)
        return results(result if isinstance(result, tuple) else (result,))

    read = [equation.ins[k] for k in equation.reads]
    reads, writes = _with_integers(nest.reads, read), _with_integers(nest.writes, equation.outs)
    return replace(nest, reads=reads, writes=writes, linear=(), body=run)


def _of_keys(forms: Sequence[ArrayForm]) -> tuple[ArrayForm, ...]:
    return tuple(form if form.key is None else form._replace(shape=form.shape[:-1]) for form in forms)


def _with_integers(accesses: Sequence[Access], forms: Sequence[ArrayForm]) -> tuple[Access, ...]:
    return tuple(
        access if form.key is None else Access(access.array, (*access.dims, ()), (*access.extents, form.shape[-1]))
        for access, form in zip(accesses, forms, strict=True)
    )
