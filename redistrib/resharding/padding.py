"""Arrays that are kept at the front of larger ones, whose padding differs between source and target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding

from redistrib.arith import as_integer
from redistrib.errors import LeafError
from redistrib.errors.base import shown
from redistrib.lang.specs import with_padding
from redistrib.lang.types import DistType


@dataclass(frozen=True)
class Padding:
    """What is known of such an array beyond where it is.

    Attributes:
        logical: its shape.
        target: shape of the array that has it at its front on the target.
    """

    logical: tuple[int, ...]
    target: tuple[int, ...]


def is_shape(value: Any) -> bool:
    """Whether a value is a logical shape, or says that there is none, and no tree of them."""
    return value is None or (isinstance(value, tuple | list) and all(as_integer(size) is not None for size in value))


def padding_of(
    path: str, value: Any, logical: Sequence[int] | None, target: Sharding, wanted: Sequence[int] | None = None
) -> Padding | None:
    """The padding of a leaf whose array has a logical shape; None where source and target have none.

    On the target the array is padded to the shape wanted, by default to the least that the sharding divides.

    Raises:
        LeafError: if the value is no array, or has no part of that shape, or the shape wanted cannot be.
    """
    if logical is None:
        return None
    shape, sizes = np.shape(value), [as_integer(size) for size in logical] if is_shape(logical) else []
    given = [size for size in sizes if size is not None]
    if len(given) != len(shape) or any(not 1 <= size <= whole for size, whole in zip(given, shape, strict=True)):
        raise LeafError(
            path,
            f"the logical shape {shown(logical)} is not at the front of an array of shape {shape}; give one size for "
            "each dimension, from 1 to that of the array",
        )
    if not isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        raise LeafError(path, f"{type(value).__name__} has no padding; give a jax.Array, or no logical shape")
    count = target.mesh.size if isinstance(target, NamedSharding) else len(target.device_set)
    tiles = [count // part for part in target.shard_shape((count,) * len(shape))]
    padded = tuple(-(-size // n) * n for size, n in zip(given, tiles, strict=True))
    if wanted is not None:
        if len(wanted) != len(padded) or any(
            size < least or size % n for size, least, n in zip(wanted, padded, tiles, strict=True)
        ):
            raise LeafError(
                path,
                f"the shape {tuple(wanted)} has no room for {tuple(given)} in equal tiles on the target; each size "
                f"must be a multiple of {tuple(tiles)} and at least {padded}",
            )
        padded = tuple(wanted)
    return None if tuple(given) == shape == padded else Padding(tuple(given), padded)


def padded_types(source: DistType, target: DistType, padding: Padding | None) -> tuple[DistType, DistType]:
    """Types of the array itself, from those of the arrays that have it at their front."""
    if padding is None:
        return source, target
    return with_padding(source, padding.logical), with_padding(target, padding.logical)
