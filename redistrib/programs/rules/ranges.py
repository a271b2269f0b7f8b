"""Bounds of values during tracing: values that are certainly finite, and values that are never zero.

Bounds follow from constants and element types only; a float argument has no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from redistrib.programs.ir.record import Bounds
from redistrib.programs.rules.equation import Equation, ValueRange

_LARGEST = 2**24  # most elements of a constant that are examined


def is_finite(equation: Equation, operand: int) -> bool:
    """Whether no element of an operand is infinite or NaN."""
    return _of_operand(equation, operand) is not None


def is_nonzero(equation: Equation, operand: int) -> bool:
    """Whether every element of an operand is finite and not zero, even where small numbers are flushed to zero."""
    bounds = _of_operand(equation, operand)
    if bounds is None:
        return False
    tiny = _tiny(equation.ins[operand].dtype)
    return bounds.low >= tiny or bounds.high <= -tiny


def of_constant(value: Any) -> ValueRange | None:
    """The bounds of an array; None if an element is infinite or NaN, or the array is too large to examine.

    >>> of_constant(np.array([3.0, -1.0]))
    ValueRange(low=-1.0, high=3.0)
    >>> of_constant(np.array([3.0, np.inf])) is None
    True
    """
    if isinstance(value, jax.core.Tracer) or np.size(value) > _LARGEST or not hasattr(value, "dtype"):
        value = value if isinstance(value, bool | int | float | complex) else None
    if value is None or jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key):
        return None
    array = np.asarray(value)
    if not array.size:
        return ValueRange(0.0, 0.0)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        array = np.abs(np.stack([array.real, array.imag]))
        bounds = ValueRange(-float(array.max()), float(array.max()))
    else:
        numbers = array.astype(np.float64)
        bounds = ValueRange(float(numbers.min()), float(numbers.max()))
    return bounds if all(map(math.isfinite, bounds)) else None


def of_result(equation: Equation) -> ValueRange | None:
    """The bounds of the result of an operation, if they follow from the bounds of its operands."""
    if len(equation.outs) != 1:
        return None
    kind, dtype = equation.record.bounds, equation.outs[0].dtype
    if kind is Bounds.SAME and equation.ins[0].dtype == dtype:
        return _of_operand(equation, 0)
    if not _is_float(dtype):
        return _of_type(dtype)
    if kind is Bounds.COUNTED:
        return _within(ValueRange(0.0, float(max(0, max(equation.outs[0].shape) - 1))), dtype)
    operands = [_of_operand(equation, k) for k in range(len(equation.ins))]
    bounds = [bound for bound in operands if bound is not None]
    if kind is Bounds.CONVERTED and bounds:
        return _within(bounds[0], dtype)
    if kind in (Bounds.UNITED, Bounds.CHOSEN):
        united = operands[kind is Bounds.CHOSEN :]
        bounds = [bound for bound in united if bound is not None]
        if len(bounds) < len(united):
            return None
        return ValueRange(min(bound.low for bound in bounds), max(bound.high for bound in bounds))
    if not bounds or len(bounds) < len(operands) or any(form.dtype != dtype for form in equation.ins):
        return None
    return _computed(equation, bounds)


def _computed(equation: Equation, bounds: Sequence[ValueRange]) -> ValueRange | None:
    """The bounds of arithmetic, with room for its rounding."""
    kind, dtype = equation.record.bounds, equation.outs[0].dtype
    first, other = bounds[0], bounds[-1]
    match kind:
        case Bounds.NEGATED:
            return ValueRange(-first.high, -first.low)
        case Bounds.ABSOLUTE:
            return ValueRange(0.0 if first.low <= 0 <= first.high else min(abs(first.low), abs(first.high)), first.most)
        case Bounds.ADDED:
            exact = ValueRange(first.low + other.low, first.high + other.high)
        case Bounds.SUBTRACTED:
            exact = ValueRange(first.low - other.high, first.high - other.low)
        case Bounds.MULTIPLIED:
            corners = [a * b for a in first for b in other]
            exact = ValueRange(min(corners), max(corners))
        case Bounds.DIVIDED if is_nonzero(equation, 1):
            corners = [a / b for a in first for b in other]
            exact = ValueRange(min(corners), max(corners))
        case Bounds.ROOT if first.low >= 0:
            exact = ValueRange(math.sqrt(first.low), math.sqrt(first.high))
        case _:
            return None
    grown = max(exact.most, first.most, other.most) if kind in (Bounds.ADDED, Bounds.SUBTRACTED) else exact.most
    room = 8 * float(jnp.finfo(dtype).eps)
    low, high = exact
    if kind in (Bounds.ADDED, Bounds.SUBTRACTED):
        low, high = low - room * grown, high + room * grown
    else:  # of products, quotients and roots the rounding is a part of the result itself
        low, high = low - room * abs(low), high + room * abs(high)
    return _within(ValueRange(low, high), dtype)


def _of_operand(equation: Equation, operand: int) -> ValueRange | None:
    if operand in equation.literals:
        return of_constant(equation.literals[operand])
    return equation.ranges.get(operand) or _of_type(equation.ins[operand].dtype)


def _of_type(dtype: str) -> ValueRange | None:
    """The bounds of all numbers of a type of integers, or of booleans."""
    if dtype == "bool":
        return ValueRange(0.0, 1.0)
    if "key<" not in dtype and jnp.issubdtype(jnp.dtype(dtype), jnp.integer):
        limits = jnp.iinfo(dtype)
        return ValueRange(float(limits.min), float(limits.max))
    return None


def _within(bounds: ValueRange, dtype: str) -> ValueRange | None:
    """The bounds of a value rounded to a float type; None if it may overflow."""
    if not _is_float(dtype) or bounds.most > float(jnp.finfo(dtype).max) * (1 - float(jnp.finfo(dtype).eps)):
        return None
    room = float(jnp.finfo(dtype).eps)
    return ValueRange(bounds.low - room * abs(bounds.low), bounds.high + room * abs(bounds.high))


def _is_float(dtype: str) -> bool:
    """Whether a type is of floats of at least 16 bits; some smaller ones have no zero, others no infinity."""
    if "key<" in dtype or not jnp.issubdtype(jnp.dtype(dtype), jnp.floating):
        return False
    return bool(jnp.finfo(dtype).bits >= 16)


def _tiny(dtype: str) -> float:
    """The smallest normal number; of integers, one."""
    return float(jnp.finfo(dtype).tiny) if _is_float(dtype) else 1.0
