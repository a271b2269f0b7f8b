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
    """The shapes of an array with padding.

    Attributes:
        logical: its shape.
        target: shape of the padded array on the target.
    """

    logical: tuple[int, ...]
    target: tuple[int, ...]

    def with_batch(self, dim: int, size: int) -> Padding:
        """The shapes of a batch of so many examples, which lie along dimension `dim` and have no padding there."""
        logical, target = ((*shape[:dim], size, *shape[dim:]) for shape in (self.logical, self.target))
        return Padding(logical, target)


def is_shape(value: Any) -> bool:
    """Whether a value is one logical shape or None, and not a tree of these."""
    return value is None or (isinstance(value, tuple | list) and all(as_integer(size) is not None for size in value))


def shape_of(value: Any) -> Any:
    """The shape of an array or of a placeholder for one; what else stands for a logical shape, as it is."""
    return getattr(value, "shape", value)


def padding_of(
    path: str, value: Any, logical: Sequence[int] | None, target: Sharding, shape_after: Sequence[int] | None = None
) -> Padding | None:
    """The padding of a leaf with a logical shape; None where neither source nor target has padding.

    Args:
        path: of the leaf.
        value: the padded array.
        logical: its shape without padding.
        target: sharding of the result.
        shape_after: shape of the result; by default the least shape that the sharding divides.

    Raises:
        LeafError: if the value is no array or is smaller than that shape, or `shape_after` does not fit it.
    """
    if logical is None:
        return None
    shape, sizes = np.shape(value), [as_integer(size) for size in logical] if is_shape(logical) else []
    logical_sizes = [size for size in sizes if size is not None]
    if len(logical_sizes) != len(shape) or any(
        not 1 <= size <= whole for size, whole in zip(logical_sizes, shape, strict=True)
    ):
        raise LeafError(
            path,
            f"the logical shape {shown(logical)} is not at the front of an array of shape {shape}; give one size for "
            "each dimension, from 1 to that of the array",
        )
    if not isinstance(value, jax.Array | jax.ShapeDtypeStruct):
        raise LeafError(path, f"{type(value).__name__} has no padding; give a jax.Array, or no logical shape")
    count = target.mesh.size if isinstance(target, NamedSharding) else len(target.device_set)
    tiles = [count // part for part in target.shard_shape((count,) * len(shape))]
    padded = tuple(-(-size // n) * n for size, n in zip(logical_sizes, tiles, strict=True))
    if shape_after is not None:
        if len(shape_after) != len(padded) or any(
            size < least or size % n for size, least, n in zip(shape_after, padded, tiles, strict=True)
        ):
            raise LeafError(
                path,
                f"the shape {tuple(shape_after)} has no room for {tuple(logical_sizes)} in equal tiles on the "
                "target; each size "
                f"must be a multiple of {tuple(tiles)} and at least {padded}",
            )
        padded = tuple(shape_after)
    return None if tuple(logical_sizes) == shape == padded else Padding(tuple(logical_sizes), padded)


def padded_types(source: DistType, target: DistType, padding: Padding | None) -> tuple[DistType, DistType]:
    """The types without padding, from the types of the padded arrays."""
    if padding is None:
        return source, target
    return with_padding(source, padding.logical), with_padding(target, padding.logical)
