"""Forms: how a box of a result is made of boxes of inputs, and its value once those have arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.theory.boxes import Box


@dataclass(frozen=True)
class Number:
    """A number or a constant array, as bytes."""

    data: bytes
    dtype: str
    shape: tuple[int, ...]

    @staticmethod
    def of(value: Any) -> Number:
        """The number of a value of JAX or NumPy."""
        host = np.asarray(value)
        return Number(host.tobytes(), str(host.dtype), host.shape)

    @property
    def array(self) -> jax.Array:
        """The value."""
        return jnp.asarray(np.frombuffer(self.data, jnp.dtype(self.dtype)).reshape(self.shape))


# A number; or the leaf, by its number, of a constant of one element, in whose value calls of one plan differ; or None
# where the array stands.
Operand: TypeAlias = Number | int | None
Scalars: TypeAlias = Mapping[int, jax.Array]  # by the numbers of their leaves


@dataclass(frozen=True)
class ElementwiseStep:
    """An element-wise primitive of one array, other operands being numbers.

    Attributes:
        primitive, params: of JAX.
        operands: the numbers, constants, and None where the array stands.
        dtype: of the result.
    """

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    operands: tuple[Operand, ...]
    dtype: str

    def __call__(self, array: jax.Array, scalars: Scalars) -> jax.Array:
        return _bound(self, [array], scalars)


@dataclass(frozen=True)
class Fetch:
    """A box of a leaf, of which some steps are taken.

    Leaves are the inputs and, with numbers above theirs, constants.
    """

    leaf: int
    box: Box
    steps: tuple[ElementwiseStep, ...]


@dataclass(frozen=True)
class View:
    """A transpose, reshape, reverse or broadcast of an array."""

    kind: str
    args: tuple[Any, ...]
    of: Form


@dataclass(frozen=True)
class Concatenation:
    """Arrays end to end along a dimension."""

    dim: int
    parts: tuple[Form, ...]


@dataclass(frozen=True)
class Combination:
    """A primitive of several arrays, or a sum, and steps after it; None stands for arrays among the operands."""

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    operands: tuple[Operand, ...]
    arrays: tuple[Form, ...]
    steps: tuple[ElementwiseStep, ...]


Form: TypeAlias = Fetch | Number | View | Concatenation | Combination


def fetches(form: Form) -> list[Fetch]:
    """All boxes of leaves in a form, in order."""
    match form:
        case Fetch():
            return [form]
        case View():
            return fetches(form.of)
        case Concatenation():
            return [fetch for part in form.parts for fetch in fetches(part)]
        case Combination():
            return [fetch for part in form.arrays for fetch in fetches(part)]
    return []


def with_fetches(form: Form, change: Callable[[Fetch], Fetch]) -> Form:
    """A form with other boxes of leaves."""
    match form:
        case Fetch():
            return change(form)
        case View():
            return replace(form, of=with_fetches(form.of, change))
        case Concatenation():
            return replace(form, parts=tuple(with_fetches(part, change) for part in form.parts))
        case Combination():
            return replace(form, arrays=tuple(with_fetches(part, change) for part in form.arrays))
    return form


def scalars_of(form: Form) -> list[int]:
    """The leaves of all scalars in a form, in order."""
    match form:
        case Fetch():
            return [leaf for step in form.steps for leaf in _scalars_among(step.operands)]
        case View():
            return scalars_of(form.of)
        case Concatenation():
            return [leaf for part in form.parts for leaf in scalars_of(part)]
        case Combination():
            inside = [leaf for part in form.arrays for leaf in scalars_of(part)]
            after = [leaf for step in form.steps for leaf in _scalars_among(step.operands)]
            return [*inside, *_scalars_among(form.operands), *after]
    return []


def renumbered(form: Form, number: Mapping[int, int]) -> Form:
    """A form with other numbers for its leaves."""

    def operands(several: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(number[each] if isinstance(each, int) else each for each in several)

    def steps(several: tuple[ElementwiseStep, ...]) -> tuple[ElementwiseStep, ...]:
        return tuple(replace(step, operands=operands(step.operands)) for step in several)

    match form:
        case Fetch():
            return replace(form, leaf=number[form.leaf], steps=steps(form.steps))
        case View():
            return replace(form, of=renumbered(form.of, number))
        case Concatenation():
            return replace(form, parts=tuple(renumbered(part, number) for part in form.parts))
        case Combination():
            arrays = tuple(renumbered(part, number) for part in form.arrays)
            return replace(form, operands=operands(form.operands), arrays=arrays, steps=steps(form.steps))
    return form


def _scalars_among(operands: Iterable[Operand]) -> list[int]:
    return [each for each in operands if isinstance(each, int)]


_VIEWS: dict[str, Any] = {
    "transpose": lax.transpose, "reshape": lax.reshape, "rev": lax.rev, "broadcast": lax.broadcast_in_dim,
}  # fmt: skip


def evaluated(form: Form, fetched: Callable[[Fetch], jax.Array], scalars: Scalars) -> jax.Array:
    """The array of a form, from boxes of leaves of which all steps are taken."""
    match form:
        case Fetch():
            return fetched(form)
        case Number():
            return form.array
        case View():
            inner = evaluated(form.of, fetched, scalars)
            view: jax.Array = _VIEWS[form.kind](inner, *form.args)
            return view
        case Concatenation():
            return lax.concatenate([evaluated(part, fetched, scalars) for part in form.parts], form.dim)
    result = _bound(form, [evaluated(part, fetched, scalars) for part in form.arrays], scalars)
    for step in form.steps:
        result = step(result, scalars)
    return result


def _bound(work: ElementwiseStep | Combination, arrays: Sequence[jax.Array], scalars: Scalars) -> jax.Array:
    """The result of a primitive of arrays, in order, and of numbers."""
    rest = iter(arrays)
    values = [
        next(rest) if value is None else scalars[value] if isinstance(value, int) else value.array
        for value in work.operands
    ]
    result: Any = work.primitive.bind(*values, **dict(work.params))
    array: jax.Array = result[0] if work.primitive.multiple_results else result
    return array
