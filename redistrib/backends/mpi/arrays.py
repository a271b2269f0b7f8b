"""Conversion of users' tiles, any buffers in host memory, to NumPy arrays and to flat bytes for MPI."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from redistrib.backends.ranks.arguments import require_absent
from redistrib.errors import TilesError
from redistrib.errors.base import MASKED
from redistrib.plans.dtypes import dtype_of as dtype_of
from redistrib.plans.strided import Bytes


def absent_tile(value: Any, subject: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array without elements, for a rank without a tile.

    Raises:
        TilesError: if the value is not None.
    """
    require_absent(value, subject)
    return np.empty(0, dtype)


def tile_of(
    value: Any, subject: str, shape: tuple[int, ...], dtype: np.dtype[Any], writable: bool, *, whole: bool = False
) -> npt.NDArray[Any]:
    """A value as a C-ordered array over its own memory.

    Args:
        value: a NumPy array, or an object with the buffer or array interface, of this shape or flat.
        subject: name of the value in errors.
        shape, dtype: of the array.
        writable: whether it will be written, so that it must not be copied.
        whole: whether errors call it a whole array and not a tile.

    Raises:
        TilesError: for any other value.
    """
    if hasattr(value, "__cuda_array_interface__"):
        raise TilesError(f"{subject} lies on a device; MPI tiles lie in host memory, so copy it there first")
    if value is None:
        raise TilesError(f"{subject} is None where this rank's tile has shape {list(shape)}; pass it")
    if isinstance(value, np.ma.MaskedArray):
        raise TilesError(f"{subject} is a masked array, whose mask MPI would not send; {MASKED}")
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TilesError(f"{subject} of type {type(value).__name__} is no array: {error}") from None
    if array.dtype != dtype:
        raise TilesError(f"{subject} has dtype {array.dtype} where {dtype} is due; convert it with astype")
    if array.shape != shape and not (array.ndim == 1 and array.size == int(np.prod(shape, dtype=object))):
        due, way_out = ("array", "the whole array") if whole else ("tile", "this rank's tile, not the whole array")
        raise TilesError(f"{subject} has shape {list(array.shape)} where the {due} is {list(shape)}; pass {way_out}")
    if writable and not array.flags.writeable:
        raise TilesError(f"{subject} is read-only; pass an array that may be written")
    if not array.flags.c_contiguous:
        if writable:
            raise TilesError(f"{subject} is not C-contiguous, with strides {array.strides}; pass a contiguous one")
        array = np.ascontiguousarray(array)
    return array.reshape(shape)


def flat(array: npt.NDArray[Any]) -> Bytes:
    """The bytes of a C-ordered array, without copying."""
    return array.reshape(-1).view(np.uint8)
