"""Forms: how a box of a result is made of boxes of inputs, and its value once those have arrived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Box: TypeAlias = tuple[tuple[int, int], ...]


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


@dataclass(frozen=True)
class ElementwiseStep:
    """An element-wise primitive of one array, other operands being numbers.

    Attributes:
        primitive, params: of JAX.
        operands: the numbers, and None where the array stands.
        dtype: of the result.
    """

    primitive: Any
    params: tuple[tuple[str, Any], ...]
    operands: tuple[Any, ...]
    dtype: str

    def __call__(self, array: jax.Array) -> jax.Array:
        values = [array if value is None else value.array for value in self.operands]
        result: jax.Array = self.primitive.bind(*values, **dict(self.params))
        return result


@dataclass(frozen=True)
class Fetch:
    """A box of an input, of which some steps are taken."""

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
    operands: tuple[Any, ...]
    arrays: tuple[Form, ...]
    steps: tuple[ElementwiseStep, ...]


Form: TypeAlias = Fetch | Number | View | Concatenation | Combination


def fetches(form: Form) -> list[Fetch]:
    """All boxes of inputs in a form, in order."""
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
    """A form with other boxes of inputs."""
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


_VIEWS: dict[str, Any] = {
    "transpose": lax.transpose, "reshape": lax.reshape, "rev": lax.rev, "broadcast": lax.broadcast_in_dim,
}  # fmt: skip


def evaluated(form: Form, fetched: Callable[[Fetch], jax.Array]) -> jax.Array:
    """The array of a form, from boxes of inputs of which all steps are taken."""
    match form:
        case Fetch():
            return fetched(form)
        case Number():
            return form.array
        case View():
            inner = evaluated(form.of, fetched)
            view: jax.Array = _VIEWS[form.kind](inner, *form.args)
            return view
        case Concatenation():
            return lax.concatenate([evaluated(part, fetched) for part in form.parts], form.dim)
    arrays = iter([evaluated(part, fetched) for part in form.arrays])
    values = [next(arrays) if value is None else value.array for value in form.operands]
    result: jax.Array = form.primitive.bind(*values, **dict(form.params))
    if form.primitive.multiple_results:
        (result,) = result
    for step in form.steps:
        result = step(result)
    return result
