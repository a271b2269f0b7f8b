"""The rule of products in groups of rows, as in mixtures of experts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax.numpy as jnp
from jax import lax

from redistrib.programs.ir.nest import Nest
from redistrib.programs.rules.equation import At, Dims, Equation, name_the_rest, product_letters, rule
from redistrib.programs.rules.sums import can_be_summed


@rule("ragged_dot_general")
def _ragged_dot(equation: Equation) -> Nest | None:
    """A product with a matrix for each group of rows, or its gradient with respect to the matrices.

    Rows may be cut: a device counts its rows in each group. Groups may be cut: a device multiplies the rows of its
    groups, and the other rows are zero or left out. Cut contracted dimensions leave partial sums.
    """
    numbers, sizes_of_groups = equation.params["ragged_dot_dimension_numbers"], equation.ins[2].shape
    (left_sum, _), (left_batch, _) = numbers.dot_dimension_numbers
    (rows,), at_groups = numbers.lhs_ragged_dimensions, tuple(numbers.rhs_group_dimensions)
    in_batch = rows in left_batch
    wide = len(sizes_of_groups) != 1 or equation.literals or equation.params.get("group_offset") is not None
    if wide or in_batch or len(at_groups) > 1 or not can_be_summed(equation.outs[0].dtype):
        return None
    left, right = equation.ins[0].shape, equation.ins[1].shape
    a, b = product_letters(left, right, numbers.dot_dimension_numbers)
    for k in at_groups:
        b[k] = "g"
    name_the_rest(a, b)
    row = a[rows]
    sizes = dict(zip(a, left, strict=True)) | dict(zip(b, right, strict=True)) | {"g": sizes_of_groups[0]}
    contracts = rows in left_sum  # the gradient: a matrix for each group, first in the result
    free = [*(name for name in a if name not in b), *(name for name in b if name not in (*a, "g"))]
    out: Dims = [*(["g"] if contracts else []), *(a[i] for i in left_batch), *free]
    summed = [a[i] for i in left_sum] + ([] if contracts else ["g"])

    def body(at: At, *tiles: Any) -> Any:
        operand, other, groups = equation.operands(tiles)
        first, count = at["g"].start, len(at["g"])
        if len(at[row]) == sizes[row] and count == sizes["g"]:
            return equation.run(tiles)
        ends = jnp.clip(jnp.cumsum(groups) - at[row].start, 0, len(at[row]))
        counts = jnp.diff(ends, prepend=0).astype(groups.dtype)
        if count == sizes["g"]:
            return equation.run([operand, other, counts])
        numbers_of_groups = jnp.arange(sizes["g"])
        before = jnp.sum(jnp.where(numbers_of_groups < first, counts, 0), dtype=groups.dtype)
        in_groups = jnp.take(counts, first + jnp.arange(count))
        # The first group takes the rows before it as well; what comes of them is dropped.
        counts = in_groups.at[0].add(before)
        if contracts:
            return equation.run([_without(operand, rows, before), _without(other, b.index(row), before), counts])
        return _without(equation.run([operand, other, counts]), out.index(row), before)

    return equation.nest(
        sizes,
        [a, b, [""]],
        [out],
        body=body,
        combine=dict.fromkeys(summed, "sum"),
        indexed={row, "g"},
        flops=Fraction(2, max(1, sizes["g"])),  # a row is in one group
    )


def _without(array: Any, axis: int, rows: Any) -> Any:
    """The array with zeros in place of its first rows."""
    number = lax.broadcasted_iota(rows.dtype, array.shape, axis)
    return jnp.where(number < rows, jnp.zeros((), array.dtype), array)
