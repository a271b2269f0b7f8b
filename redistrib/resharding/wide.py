"""Arrays of 64-bit elements while JAX's 64-bit mode is off: they move as they are, as `jax.device_put` moves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from redistrib.resharding.checks import check
from redistrib.resharding.leaves import Leaf


def is_wide(array: object) -> bool:
    """Whether an array, or a placeholder, has 64-bit elements while the mode is off."""
    if getattr(getattr(array, "dtype", None), "itemsize", 8) < 8:  # as most are
        return False
    if not isinstance(array, jax.Array | jax.ShapeDtypeStruct) or jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return False
    return bool(jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype)


def mode_of(leaves: list[Leaf]) -> AbstractContextManager[list[Leaf]]:
    """A context in which JAX makes and compiles for the elements of all arrays, and the leaves in it.

    Host values become what they are outside it.

    Raises:
        LeafError: for a leaf that is no array.
    """
    return _wide(leaves) if any(is_wide(leaf.value) for leaf in leaves) else nullcontext(leaves)


@contextmanager
def _wide(leaves: Sequence[Leaf]) -> Iterator[list[Leaf]]:
    for leaf in leaves:
        check(leaf)
    narrowed = [replace(leaf, value=_narrowed(leaf.value)) for leaf in leaves]
    with jax.enable_x64(True):
        yield narrowed


def _narrowed(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value).astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False)
    return jnp.asarray(value) if isinstance(value, bool | int | float | complex) else value
