"""Reductions on one device, in the order of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from redistrib.cache import cached
from redistrib.errors import TilesError
from redistrib.lang.notation import Reduction

Tile: TypeAlias = npt.NDArray[Any]

_EXTREME: dict[Reduction, Any] = {"max": np.maximum, "min": np.minimum}


class Accumulator:
    """A tile that adds up partial sums of its boxes.

    Args:
        shape: of the tile, in elements.
        dtype: of the tile and of the partial sums.
        reduction: of the partial sums.
        accumulate: name of the element type of the accumulator, rounded to `dtype` once; None for `dtype`.
        into: memory for the tile, of that shape and dtype; new memory by default.

    >>> total = Accumulator((3,), np.dtype(np.int64), "max")
    >>> total.add([0], np.array([5, 1]))
    >>> total.add([1], np.array([7, 2]))
    >>> total.result()
    array([5, 7, 2])
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        reduction: Reduction,
        accumulate: str | None = None,
        into: Tile | None = None,
    ) -> None:
        self._dtype, self._reduction, self._into = dtype, reduction, into
        within = dtype if accumulate is None else np.dtype(accumulate)
        self._total: Tile = np.empty(tuple(shape), within) if into is None or within != dtype else into
        self._begun: npt.NDArray[np.bool_] | None = None  # which elements have a value; None where all or none have
        self._all = self._total.size == 0

    def add(self, offset: Sequence[int], part: Tile) -> None:
        """Combine a box at an offset with the tile. The first value of an element is written, not added to zero.

        Raises:
            TilesError: if the box is not inside the tile.
        """
        sofar = view(self._total, offset, part.shape)
        values = part.astype(sofar.dtype, copy=False)
        if self._all:
            combined(self._reduction, sofar, values, out=sofar)
            return
        if self._begun is None:
            if sofar.size == self._total.size:
                sofar[...] = values
                self._all = True
                return
            self._begun = np.zeros(self._total.shape, dtype=np.bool_)
        begun = view(self._begun, offset, part.shape)
        sofar[...] = np.where(begun, combined(self._reduction, sofar, values), values) if begun.any() else values
        begun[...] = True

    def result(self) -> Tile:
        """The tile, with the identity element where it has no value."""
        if not self._all:
            missing = True if self._begun is None else ~self._begun
            np.copyto(self._total, identity(self._reduction, self._total.dtype), where=missing)
        if self._into is None:
            return self._total.astype(self._dtype, copy=False)
        if self._into is not self._total:
            self._into[...] = self._total.astype(self._dtype)
        return self._into


def combined(reduction: Reduction, one: Tile, other: Tile, out: Tile | None = None) -> Tile:
    """Sums, maxima or minima of two arrays of one shape and element type, with the semantics of XLA.

    A maximum or minimum with a NaN is a NaN, and -0.0 is below 0.0. NumPy returns either zero.

    Args:
        reduction: the reduction.
        one, other: the arrays.
        out: memory for the result, perhaps one of the arrays; new memory by default.

    >>> combined("max", np.array([-0.0, np.nan]), np.array([0.0, 1.0]))
    array([ 0., nan])
    """
    if reduction == "sum":
        return np.asarray(np.add(one, other, out=out))
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of NaNs
        equal = np.asarray(one == other) if _has_negative_zero(one.dtype) else None
        if equal is None or not equal.any():
            return np.asarray(_EXTREME[reduction](one, other, out=out))
        first = np.signbit(one) == (reduction == "min")  # whether to take `one` of two equal numbers
        equals = np.where(first, one, other)
        result: Tile = np.asarray(_EXTREME[reduction](one, other, out=out))
    np.copyto(result, equals, where=equal)
    return result


def combined_along(reduction: Reduction, values: Tile, axes: tuple[int, ...]) -> Tile:
    """The sum, maximum or minimum of an array along axes, with the semantics of `combined`.

    >>> combined_along("min", np.array([[0.0, -0.0], [np.nan, 1.0]]), (1,))
    array([-0., nan])
    """
    if reduction == "sum":
        return np.asarray(np.add.reduce(values, axis=axes))
    with np.errstate(invalid="ignore"):
        result: Tile = np.asarray(_EXTREME[reduction].reduce(values, axis=axes))
    if _has_negative_zero(values.dtype):
        signs = np.signbit(values)  # where the maximum is a zero, a value without a sign is 0.0
        negative = signs.all(axis=axes) if reduction == "max" else signs.any(axis=axes)
        zeros = np.where(negative, np.array(-0.0).astype(values.dtype), np.zeros((), values.dtype))
        np.copyto(result, zeros, where=np.asarray(result == 0))
    return result


@cached(64)
def _has_negative_zero(dtype: np.dtype[Any]) -> bool:
    """Whether an element type has two zeros; e8m0 has none and converts -0.0 to a NaN."""
    if dtype.kind in "biuc":
        return False
    negative: Tile = np.array(-0.0).astype(dtype)
    return bool(negative == 0) and bool(negative.tobytes() != np.zeros((), dtype).tobytes())


def view(tile: Tile, offset: Sequence[int], size: Sequence[int]) -> Tile:
    """The box as an array over the tile's memory, also of rank 0.

    Raises:
        TilesError: if the box is not inside the tile.
    """
    index: Any = (*window(tile, offset, size), ...)
    result: Tile = tile[index]
    return result


def window(tile: Tile, offset: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    """The box as an index; NumPy would clip a box that sticks out, or count it from the end.

    Raises:
        TilesError: if the box is not inside the tile.
    """
    if any(o < 0 or o + n > limit for o, n, limit in zip(offset, size, tile.shape, strict=True)):
        raise TilesError(f"a box of shape {tuple(size)} at {tuple(offset)} is not inside a tile of shape {tile.shape}")
    return tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))


def identity(reduction: Reduction, dtype: np.dtype[Any]) -> Any:
    """The identity element of a reduction: 0, or the lowest or highest value of an element type.

    >>> identity("sum", np.dtype("int8")), identity("max", np.dtype("int8")), identity("min", np.dtype("float32"))
    (np.int8(0), np.int8(-128), np.float32(inf))
    """
    if reduction == "sum":
        return np.zeros((), dtype)[()]
    sign = -1 if reduction == "max" else 1
    if dtype.kind in "iu":
        return dtype.type(np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max)
    if dtype.kind == "b":
        return np.bool_(sign > 0)
    infinite = np.array(sign * np.inf).astype(dtype)
    if dtype.itemsize == 1:  # the types of ml_dtypes below two bytes, of which not all have infinities
        values = np.arange(256, dtype=np.uint8).view(dtype)
        infinite = values[np.nanargmax(sign * values.astype(np.float64))]
    return infinite[()]
