"""Look-ups at `x[arange(n), i]`: the first index counts along the batch, so its dimension is a batching dimension.

JAX normalizes indices before it looks up: it adds the size to those below zero. Indices are followed from `iota`
through this, and through operations that only move elements. XLA's partitioner does the same for its own cuts
("parallel dimensions" of gathers and scatters).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import lax

from redistrib.programs.ir.record import Fusion, Positions
from redistrib.programs.rules.equation import Equation


class Lookup(NamedTuple):
    """A gather or scatter with more batching dimensions.

    Attributes:
        equation: the new one, whose indices have fewer columns.
        columns: numbers of the columns that are left.
    """

    equation: Equation
    columns: tuple[int, ...]


@dataclass
class Counting:
    """Values whose elements are known to be their own positions along a dimension.

    Attributes:
        along: by the name of a value, that dimension.
        columns: by the name of an array of indices, the dimensions along which its columns count.
        parts: by the name of an array of indices, the names of its columns, where they were joined.
        never: names of booleans that are all false.
    """

    along: dict[str, int] = field(default_factory=dict)
    columns: dict[str, Mapping[int, int]] = field(default_factory=dict)
    parts: dict[str, Mapping[int, str]] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)

    def note(self, equation: Equation, ins: Sequence[str], out: str) -> None:
        """Note the known form of the first result of an operation; `ins` names the operands that are no literals."""
        followed = equation.record.positions
        if not followed.go_on:
            return
        names = dict(zip(equation.reads, ins, strict=True))
        if followed is Positions.COMPARED and self._of(equation, names, 0) is not None and _at_most_zero(equation, 1):
            self.never.add(out)
        elif followed is Positions.JOINED:
            self._join(equation, names, out)
        else:
            dim = self._moved(equation, names)
            if dim is not None and _holds(equation.outs[0].dtype, equation.outs[0].shape[dim]):
                self.along[out] = dim
                if dim == len(equation.outs[0].shape) - 2 and equation.outs[0].shape[-1] == 1:
                    self.columns[out] = {0: dim}

    def note_constant(self, name: str, value: Any) -> None:
        """Note the known form of an array that the function closes over."""
        if (dim := of_constant(value)) is not None:
            self.along[name] = dim
        elif np.shape(value) and jnp.issubdtype(jnp.result_type(value), jnp.bool_) and not np.any(value):
            self.never.add(name)

    def batched(self, equation: Equation, ins: Sequence[str]) -> Lookup | None:
        """A look-up with each column that counts along the batch as a batching dimension; None if there is none.

        The dimension of the array must have one element for each position, so that no index is outside of it.
        """
        name = dict(zip(equation.reads, ins, strict=True)).get(1)
        columns = self.columns.get(name, {}) if name is not None else {}
        numbers, shape, indices = equation.params["dimension_numbers"], equation.ins[0].shape, equation.ins[1].shape
        gathers = equation.record.fusion is Fusion.LOOKUP
        picked = tuple(numbers.start_index_map if gathers else numbers.scatter_dims_to_operand_dims)
        removed = tuple(numbers.collapsed_slice_dims if gathers else numbers.inserted_window_dims)
        mine = tuple(numbers.start_indices_batching_dims if gathers else numbers.scatter_indices_batching_dims)
        pairs = dict(zip(numbers.operand_batching_dims, mine, strict=True))
        left = list(range(len(picked)))
        for column, dim in columns.items():
            at = picked[column]
            if at in removed and dim not in pairs.values() and shape[at] == indices[dim] and len(left) > 1:
                pairs[at] = dim
                left.remove(column)
        if len(left) == len(picked):
            return None
        array, batch = tuple(sorted(pairs)), tuple(pairs[k] for k in sorted(pairs))
        kept = tuple(picked[k] for k in left), tuple(k for k in removed if k not in pairs)
        if gathers:
            changed = numbers._replace(
                start_index_map=kept[0], collapsed_slice_dims=kept[1],
                operand_batching_dims=array, start_indices_batching_dims=batch,
            )  # fmt: skip
        else:
            changed = numbers._replace(
                scatter_dims_to_operand_dims=kept[0], inserted_window_dims=kept[1],
                operand_batching_dims=array, scatter_indices_batching_dims=batch,
            )  # fmt: skip
        forms = list(equation.ins)
        forms[1] = forms[1]._replace(shape=(*indices[:-1], len(left)))
        params = {**equation.params, "dimension_numbers": changed, "indices_are_sorted": False}
        return Lookup(replace(equation, params=params, ins=tuple(forms)), tuple(left))

    def _of(self, equation: Equation, names: Mapping[int, str], operand: int) -> int | None:
        """The dimension along which an operand counts."""
        if operand not in equation.literals:
            return self.along.get(names[operand])
        return of_constant(equation.literals[operand])

    def _moved(self, equation: Equation, names: Mapping[int, str]) -> int | None:
        """The dimension along which the result counts, where it has the elements of an operand, or is an `iota`."""
        followed, params = equation.record.positions, equation.params
        if followed is Positions.MADE:
            return int(params["dimension"])
        if followed is Positions.CHOSEN and names.get(0) in self.never:
            return self._of(equation, names, 1)
        dim = None if followed in (Positions.COMPARED, Positions.CHOSEN) else self._of(equation, names, 0)
        if dim is None:
            return None
        before, after = equation.ins[0].shape, equation.outs[0].shape
        if followed is Positions.BROADCAST:
            there = params["broadcast_dimensions"][dim]
            return int(there) if after[there] == before[dim] else None
        if followed is Positions.TRANSPOSED:
            return int(params["permutation"].index(dim))
        if followed is Positions.SAME:
            return dim
        long = [[k for k, size in enumerate(shape) if size != 1] for shape in (before, after)]
        if [before[k] for k in long[0]] != [after[k] for k in long[1]] or dim not in long[0]:
            return None
        return long[1][long[0].index(dim)]

    def _join(self, equation: Equation, names: Mapping[int, str], out: str) -> None:
        """Note the columns of arrays side by side along the last dimension."""
        last = len(equation.outs[0].shape) - 1
        if equation.params["dimension"] != last:
            return
        columns, parts, first = dict[int, int](), dict[int, str](), 0
        for k, form in enumerate(equation.ins):
            dim = self._of(equation, names, k)
            if form.shape[last] == 1 and k in names:
                parts[first] = names[k]
            if form.shape[last] == 1 and dim is not None and dim != last:
                columns[first] = dim
            first += form.shape[last]
        if columns:
            self.columns[out], self.parts[out] = columns, parts


class LookupTracer(Protocol):
    """The part of the tracer that counting needs."""

    counting: Counting

    def add(self, equation: Equation, ins: Sequence[str], source: str) -> list[str]: ...


def with_batch(tracer: LookupTracer, equation: Equation, ins: Sequence[str], source: str) -> tuple[Equation, list[str]]:
    """A look-up and its operands, where columns of its indices that count along the batch are left out."""
    names, lookup = list(ins), tracer.counting.batched(equation, ins)
    if lookup is None:
        return equation, names
    place, form = equation.reads.index(1), equation.ins[1]
    batch, column = form.shape[:-1], form._replace(shape=(*form.shape[:-1], 1))
    columns, parts = list[str](), tracer.counting.parts.get(names[place], {})
    for number in lookup.columns:
        if number in parts:
            columns.append(parts[number])
            continue
        limits = {"start_indices": (*[0] * len(batch), number), "limit_indices": (*batch, number + 1), "strides": None}
        columns += tracer.add(Equation(lax.slice_p, limits, (form,), (column,), {}), [names[place]], source)
    if len(columns) > 1:
        joined = lookup.equation.ins[1]
        along = {"dimension": len(batch)}
        columns = tracer.add(
            Equation(lax.concatenate_p, along, (column,) * len(columns), (joined,), {}), columns, source
        )
    names[place] = columns[0]
    return lookup.equation, names


def of_constant(value: Any) -> int | None:
    """The dimension along which an array counts; all others have one element.

    >>> of_constant(np.arange(4)[None]), of_constant(np.array([0, 2]))
    (1, None)
    """
    shape = np.shape(value)
    if not shape or not jnp.issubdtype(jnp.result_type(value), jnp.integer) or max(shape) != math.prod(shape):
        return None
    dim = int(np.argmax(shape))
    return dim if np.array_equal(np.ravel(np.asarray(value)), np.arange(shape[dim])) else None


def _at_most_zero(equation: Equation, operand: int) -> bool:
    """Whether every element of an operand is known to be at most zero."""
    value = equation.literals.get(operand)
    return value is not None and bool(np.all(np.asarray(value) <= 0))


def _holds(dtype: str, size: int) -> bool:
    """Whether a type of integers has a number for each position."""
    if "int" not in dtype or not jnp.issubdtype(jnp.dtype(dtype), jnp.integer):
        return False
    return size - 1 <= int(jnp.iinfo(dtype).max)
