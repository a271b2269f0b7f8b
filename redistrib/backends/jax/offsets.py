"""Offsets in arrays, also those beyond the integers of 32 bits by which compiled programs index.

All numbers that such an offset may be are known when a program is made. So a program looks up its number among them,
and counts in cells that divide them all; where no cells are large enough, it branches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

LARGEST_INDEX = 2**31 - 1  # by which JAX indexes arrays, unless 64-bit types are enabled


def integers_for(size: int) -> Any:
    """Signed integers in which JAX counts the elements along a dimension."""
    return jnp.int32 if size <= LARGEST_INDEX else jnp.int64


@dataclass(frozen=True, eq=False)
class LargeOffset:
    """An offset that may be larger than an index.

    Attributes:
        values: the numbers that it may be.
        which: its place among them; may be traced, also of one value, where it says what must come before.
        largest: the largest index.
    """

    values: Sequence[int]
    which: int | jax.Array
    largest: int = LARGEST_INDEX

    def within(self, size: int, extent: int) -> LargeOffset:
        """As compilers read and write: the nearest offset from which `size` elements of `extent` do not end outside."""
        last = extent - size
        values = self.values if max(self.values) <= last else [min(value, last) for value in self.values]
        return LargeOffset(values, self.which, self.largest)

    def cell(self, size: int, extent: int) -> int | None:
        """The largest number of elements that divides all values, a size and an extent; None if there are too many."""
        cell = math.gcd(*self.values, size, extent)
        return cell if extent // cell <= self.largest else None

    def cells(self, cell: int) -> Any:
        """The offset in cells."""
        if isinstance(self.which, int):
            return np.int32(self.values[self.which] // cell)
        if len(self.values) == 1:
            return self.which + np.int32(self.values[0] // cell)
        return jnp.asarray(np.array([value // cell for value in self.values], np.int32))[self.which]


Offset: TypeAlias = int | jax.Array | LargeOffset
Offsets: TypeAlias = Sequence[Offset]


def offset_of(value: int, largest: int = LARGEST_INDEX) -> int | LargeOffset:
    """A number as an offset."""
    return value if value <= largest else LargeOffset((value,), 0, largest)


def farther(offset: Offset, steps: range, number: jax.Array, largest: int = LARGEST_INDEX) -> Offset:
    """An offset plus the step of a traced number.

    A traced offset plus the last step must be an index; see `LoweringContext.offsets`.
    """
    if isinstance(offset, int) and offset + steps[-1] > largest:
        offset = LargeOffset((offset,), 0, largest)
    if isinstance(offset, LargeOffset):
        values = [value + step for value in offset.values for step in steps]
        return LargeOffset(values, offset.which * len(steps) + number, largest)
    return offset + number * steps.step


def later(offset: Offset, zero: jax.Array) -> Offset:
    """An offset with a data dependency on a traced zero."""
    if isinstance(offset, LargeOffset):
        return LargeOffset(offset.values, offset.which + zero, offset.largest)
    return offset + zero
