"""Paddings that convolutions and sums of windows have as their own, so that arrays keep sizes that axes divide.

`jnp.pad` before a convolution makes 34 rows of 32, and the gradient crops 34 to 32 again. Zeros around elements, or
between them, are a parameter of a convolution, and of a pooling that adds; and a convolution whose result is cropped is
one with less padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from redistrib.programs.ir.record import Joins
from redistrib.programs.rules.equation import Equation, ValueRange

_ZERO = ValueRange(0.0, 0.0)


@dataclass
class Paddings:
    """Equations that may be joined with readers of their results.

    Attributes:
        equations: by the name of a result the equation, and the names of its operands.
    """

    equations: dict[str, tuple[Equation, tuple[str, ...]]] = field(default_factory=dict)

    def joined(
        self, equation: Equation, names: Sequence[str], ranges: Mapping[str, ValueRange], *, is_alone: bool
    ) -> tuple[Equation, Sequence[str]]:
        """An equation and its operands; with the padding before it, or as the convolution that it crops.

        Args:
            equation, names: the equation, and the arrays that it reads.
            ranges: known bounds of arrays.
            is_alone: whether nothing else reads the first of the arrays.
        """
        if equation.record.joins is Joins.NONE or 0 in equation.literals or names[0] not in self.equations:
            return equation, names
        before, operands = self.equations[names[0]]
        if equation.record.joins is Joins.PAD:
            joined = _cropped(before, equation) if before.record.joins is Joins.CROPPED and is_alone else None
            return (equation, names) if joined is None else (joined, operands)
        value = before.literals.get(1)
        is_zero = ranges.get(operands[-1]) == _ZERO if value is None else not np.any(value)
        joined = _padded(equation, before) if before.record.joins is Joins.PAD and is_zero else None
        return (equation, names) if joined is None else (joined, (operands[0], *names[1:]))

    def note(self, outs: Sequence[str], equation: Equation, names: Sequence[str]) -> None:
        """Remember an equation that something may be one with."""
        if equation.record.joins in (Joins.PAD, Joins.CROPPED) and not equation.literals.keys() - {1}:
            self.equations[outs[0]] = equation, tuple(names)


def _padded(equation: Equation, pad: Equation) -> Equation | None:
    """Windows over a padded array as windows over the array before; None where they have no such padding."""
    config, params = pad.params["padding_config"], dict(equation.params)
    dims, dilation = range(len(config)), "base_dilation"
    if equation.record.joins is Joins.CROPPED:
        dims, dilation = params["dimension_numbers"].lhs_spec[2:], "lhs_dilation"
        if any(any(config[k]) for k in params["dimension_numbers"].lhs_spec[:2]):
            return None
    padding, spacings = [*params["padding"]], [*params[dilation]]
    for k, dim in enumerate(dims):
        low, high, inside = config[dim]
        if low < 0 < padding[k][0] or high < 0 < padding[k][1]:  # zeros where elements are cropped
            return None
        padding[k] = (padding[k][0] + low * spacings[k], padding[k][1] + high * spacings[k])
        spacings[k] *= inside + 1
    least = min((min(ends) for ends in padding), default=0)
    if 0 in pad.ins[0].shape or (equation.record.joins is Joins.WINDOWS and least < 0):
        return None
    params |= {"padding": tuple(padding), dilation: tuple(spacings)}
    return replace(equation, params=params, ins=(pad.ins[0], *equation.ins[1:]))


def _cropped(equation: Equation, pad: Equation) -> Equation | None:
    """A convolution whose result is cropped; None where it is not."""
    config, numbers = pad.params["padding_config"], equation.params["dimension_numbers"]
    crops = [config[k] for k in numbers.out_spec[2:]]
    beside = any(any(config[k]) for k in numbers.out_spec[:2])
    if beside or any(low > 0 or high > 0 or inside for low, high, inside in crops) or 0 in pad.outs[0].shape:
        return None
    padding = tuple(
        (low + stride * first, high + stride * last)
        for (low, high), stride, (first, last, _) in zip(
            equation.params["padding"], equation.params["window_strides"], crops, strict=True
        )
    )
    return replace(equation, params={**equation.params, "padding": padding}, outs=pad.outs)
