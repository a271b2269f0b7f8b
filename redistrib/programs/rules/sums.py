"""Which operations a partial sum may pass, and in which element types.

An array may stay partial: each device holds a partial sum, and the array is the sum of these. Partial sums pass an
operation `f` where `f(a + b) = f(a) + f(b)`; they are then added after the operation. Over the real numbers that holds
for every linear operation. In a computer it holds for fewer:

- Integers of 8 bits or more, all of one type, pass additions, products and rearrangements: sums and products are those
  modulo 2^n. An integer passes its conversion to one of no more bits, which drops the high bits.
- Floats of 16 bits or more, and complex numbers, all of one type, pass additions and rearrangements: the same terms are
  added, in another order.
- They pass products with, and divisions by, values that `ranges` proves finite and not zero. An infinity would make a
  NaN of a partial sum of zero, and infinities of partial sums that cancel.
- They pass no other operation: divisions of integers and all other conversions round, wrap or saturate each partial
  sum. Arrays of `bool`, integers below 8 bits and floats below 16 bits are never partial sums.

Where floats pass, the result may differ from that of the whole sum by rounding, by the sign of a zero, and where a
partial sum overflows and the sum does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.programs.ir.record import Sums
from redistrib.programs.rules.equation import Equation
from redistrib.programs.rules.ranges import is_finite, is_nonzero

Groups: TypeAlias = tuple[tuple[int, ...], ...]  # operands, by position, in which an operation is linear together


def passing(equation: Equation) -> Groups:
    """The groups of operands of which partial sums pass an operation, see above.

    A group that contains a literal is left out: a constant is no partial sum.
    """
    groups = [group for group in _linear(equation) if not any(k in equation.literals for k in group)]
    return tuple(group for group in groups if _keeps_types(equation, group))


def can_be_summed(dtype: str) -> bool:
    """Whether partial sums of an element type may be computed on several devices and added afterwards.

    Booleans have no sums. Floats below 16 bits overflow, or saturate, at different points in another order.
    """
    return _kind(dtype) != ""


def added_along(names: Sequence[str], dtype: str) -> tuple[dict[str, str], Sequence[str]]:
    """What a nest combines along dimensions over which it adds, and those that stay whole: all, if no parts add up."""
    return (dict.fromkeys(names, "sum"), ()) if can_be_summed(dtype) else ({}, names)


def sum_identity(dtype: Any) -> Any:
    """The identity of a sum: zero; for floats -0.0, because adding 0.0 turns -0.0 into 0.0."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.asarray(complex(-0.0, -0.0), dtype)
    return jnp.asarray(-0.0 if jnp.issubdtype(dtype, jnp.floating) else 0, dtype)


def _linear(equation: Equation) -> Groups:
    """The groups of operands in which an operation is linear, if the arithmetic of its types allows."""
    match equation.record.sums:
        case Sums.FIRST | Sums.COMPONENTS | Sums.CONVERTED:
            return ((0,),)
        case Sums.BOTH:
            return ((0, 1),)
        case Sums.UPDATES:
            return ((0, 2),)
        case Sums.FACTORS:
            return tuple((k,) for k in (0, 1) if is_finite(equation, 1 - k))
        case Sums.DIVIDED if _kind(equation.outs[0].dtype) == "float" and is_nonzero(equation, 1):
            return ((0,),)
        case Sums.CHOSEN:
            return (tuple(range(1, len(equation.ins))),)
        case Sums.ALL:
            return (tuple(range(len(equation.ins))),)
        case Sums.PADDED if 1 in equation.literals and not np.any(equation.literals[1]):
            return ((0,),)
        case Sums.LOOKED_UP if _adds_what_it_fills(equation):
            return ((0,),)
    return ()


def outside_of(equation: Equation) -> lax.GatherScatterMode:
    """What a gather or scatter does where an index lies outside of the array."""
    return lax.GatherScatterMode.from_any(equation.params["mode"])


def _adds_what_it_fills(equation: Equation) -> bool:
    """Whether a gather of a sum is the sum of gathers: a sum of fill values must be the fill value."""
    if outside_of(equation) is not lax.GatherScatterMode.FILL_OR_DROP:
        return True
    value = equation.params.get("fill_value")
    if value is None:  # not a number, or an extreme integer
        return _kind(equation.outs[0].dtype) == "float"
    return not np.any(value)


def _keeps_types(equation: Equation, group: tuple[int, ...]) -> bool:
    """Whether sums of the operands and sums of the results use one arithmetic."""
    ins = {equation.ins[k].dtype for k in group}
    outs = {form.dtype for form in equation.outs}
    if len(ins) != 1 or len(outs) != 1:
        return False
    (before,), (after,) = ins, outs
    kinds = _kind(before), _kind(after)
    if "" in kinds:
        return False
    if equation.record.sums is Sums.CONVERTED:
        if kinds == ("integer", "integer"):
            return bool(jnp.iinfo(after).bits <= jnp.iinfo(before).bits)
        return before == after or (kinds == ("float", "complex") and _precision(before) == _precision(after))
    if equation.record.sums is Sums.COMPONENTS:
        return "integer" not in kinds and _precision(before) == _precision(after)
    return before == after


def _kind(dtype: str) -> str:
    """Integer, float or complex; empty for types without a rule for sums."""
    if "key<" in dtype:
        return ""
    parsed = jnp.dtype(dtype)
    if jnp.issubdtype(parsed, jnp.integer):
        return "integer" if jnp.iinfo(parsed).bits >= 8 else ""
    if jnp.issubdtype(parsed, jnp.complexfloating):
        return "complex"
    if jnp.issubdtype(parsed, jnp.floating):
        return "float" if jnp.finfo(parsed).bits >= 16 else ""
    return ""


def _precision(dtype: str) -> int:
    """Bits of a float, or of a component of a complex number."""
    return int(jnp.finfo(dtype).bits)
