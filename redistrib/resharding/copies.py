"""The choice between collectives and copies for a leaf; copies are for virtual CPU devices of one process."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp

from redistrib.backends.jax.contexts import guard_levels
from redistrib.backends.jax.platforms import copies_of_tiles
from redistrib.backends.jax.with_sharding import with_sharding
from redistrib.cache import Cache
from redistrib.errors import ChoiceError
from redistrib.resharding.actions import LeafRoute
from redistrib.resharding.leaves import Leaf

if TYPE_CHECKING:
    from redistrib.backends.jax.xla_cpu.copies import TileCopies

Via: TypeAlias = Literal["auto", "collectives", "copies"]

VARIABLE = "REDISTRIB_VIA"  # of the environment: the default of `via`

_WAYS: tuple[Via, ...] = get_args(Via)
_OPEN = frozenset((None, "allow"))  # levels of guards that let everything pass

# The copies for (shape, source sharding, target sharding).
_COPIES: Cache[TileCopies] = Cache(1024)


def via_of(via: str | None) -> Via:
    """The way that a caller chooses; None for that of the environment.

    Raises:
        ChoiceError: if there is no such way.
    """
    chosen = os.environ.get(VARIABLE, "auto") if via is None else via
    for way in _WAYS:
        if chosen == way:
            return way
    raise ChoiceError("via", via=chosen)


def copies_of(leaf: Leaf, route: LeafRoute, via: Via) -> TileCopies | None:
    """The copies by which a leaf moves; None if it moves by another way.

    Copies need default memory, in row-major order, of CPU devices of this process, one element type that JAX keeps, and
    neither padding nor partial sums.
    """
    value = leaf.value
    if via == "collectives" or route.action != "move" or leaf.padding is not None or not isinstance(value, jax.Array):
        return None
    tile_copies = copies_of_tiles(route.devices)
    if tile_copies is None:
        return None
    assert route.ends is not None
    if route.ends.source.partial or route.ends.target.partial or not _is_plain(value, leaf.target):
        return None
    key = (value.shape, value.sharding, leaf.target)
    copies = _COPIES.get(key, lambda: tile_copies(value.shape, value.sharding, leaf.target))
    return copies if via == "copies" or copies.rates.prefers_copies(copies, value.dtype.itemsize) else None


def copied(leaf: Leaf, copies: TileCopies) -> jax.Array:
    """The leaf on its target; waits for its source. Transfer guards let it pass: the host's memory is the devices'."""
    guarded = not _OPEN.issuperset(guard_levels(jax.config))
    with jax.transfer_guard("allow") if guarded else nullcontext():  # entering it takes as long as some copies
        result = copies(leaf.value)
    if leaf.value.aval.weak_type:
        return with_sharding(result, result.shape, leaf.target, weak=True)
    return result


def _is_plain(value: Any, target: Any) -> bool:
    if jnp.issubdtype(value.dtype, jax.dtypes.extended) or jax.dtypes.canonicalize_dtype(value.dtype) != value.dtype:
        return False
    for sharding in (value.sharding, target):
        device = next(iter(sharding.device_set))
        if sharding.memory_kind not in (None, device.default_memory().kind):
            return False
    return True
