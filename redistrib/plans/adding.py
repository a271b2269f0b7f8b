"""Reducing summands on one device, in the order in which they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from redistrib.errors import TilesError
from redistrib.lang.notation import Reduction

Tile: TypeAlias = npt.NDArray[Any]

_COMBINE: dict[Reduction, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Summed:
    """A tile that grows by summands of boxes of it.

    Args:
        shape: of the tile, in elements.
        dtype: of the tile and of the summands.
        reduction: how summands are combined.
        accumulate: name of the element type to combine them in, rounded to `dtype` once; None for `dtype`.
        into: memory for the tile, of that shape and dtype; its own by default.

    >>> total = Summed((3,), np.dtype(np.int64), "max")
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
        self._begun: npt.NDArray[np.bool_] | None = None  # which elements have a summand, unless all or none have
        self._all = self._total.size == 0

    def add(self, offset: Sequence[int], part: Tile) -> None:
        """Combine a box that begins at an offset; where it is the first, it is written, not added to zero.

        Raises:
            TilesError: if the box is not inside the tile.
        """
        sofar, combine = view(self._total, offset, part.shape), _COMBINE[self._reduction]
        given = part.astype(sofar.dtype, copy=False)
        if self._all:
            combine(sofar, given, out=sofar)
            return
        if self._begun is None:
            if sofar.size == self._total.size:
                sofar[...] = given
                self._all = True
                return
            self._begun = np.zeros(self._total.shape, dtype=np.bool_)
        begun = view(self._begun, offset, part.shape)
        sofar[...] = np.where(begun, combine(sofar, given), given) if begun.any() else given
        begun[...] = True

    def result(self) -> Tile:
        """The tile; the neutral element where no summand was given."""
        if not self._all:
            nothing = True if self._begun is None else ~self._begun
            np.copyto(self._total, neutral(self._reduction, self._total.dtype), where=nothing)
        if self._into is None:
            return self._total.astype(self._dtype, copy=False)
        if self._into is not self._total:
            self._into[...] = self._total.astype(self._dtype)
        return self._into


def view(tile: Tile, offset: Sequence[int], size: Sequence[int]) -> Tile:
    """The box as an array over the tile's memory, a scalar's too.

    Raises:
        TilesError: if the box is not inside the tile.
    """
    index: Any = (*window(tile, offset, size), ...)
    found: Tile = tile[index]
    return found


def window(tile: Tile, offset: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    """The box as an index; NumPy would clip a box that sticks out, or count it from the end.

    Raises:
        TilesError: if the box is not inside the tile.
    """
    if any(o < 0 or o + n > limit for o, n, limit in zip(offset, size, tile.shape, strict=True)):
        raise TilesError(f"a box of shape {tuple(size)} at {tuple(offset)} is not inside a tile of shape {tile.shape}")
    return tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))


def neutral(reduction: Reduction, dtype: np.dtype[Any]) -> Any:
    """What changes no sum, maximum or minimum: 0, the lowest or the highest value of an element type.

    >>> neutral("sum", np.dtype("int8")), neutral("max", np.dtype("int8")), neutral("min", np.dtype("float32"))
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
