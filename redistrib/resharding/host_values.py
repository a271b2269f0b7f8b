"""Values that every process has, and that go to devices of several processes or of others."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Sharding

from redistrib.resharding.leaves import Leaf


def origin_of(leaf: Leaf) -> Sharding | None:
    """The sharding from which a leaf moves; None for a value of the host.

    An array of this process that is not committed to its devices counts as such a value where the target has devices of
    other processes, as it does for `jax.device_put`.
    """
    sharding: Sharding | None = getattr(leaf.value, "sharding", None)
    if sharding is None or leaf.target.is_fully_addressable:
        return sharding
    local = isinstance(leaf.value, jax.Array) and sharding.is_fully_addressable and not leaf.value.committed
    return None if local else sharding


def is_on_host(leaf: Leaf) -> bool:
    """Whether a leaf is a value that every process has, and goes to devices of several processes or of others."""
    return not leaf.target.is_fully_addressable and origin_of(leaf) is None


def owners_of(leaf: Leaf) -> set[int]:
    """The processes that own a device of a leaf's source or target; none if there is only one."""
    source: Any = origin_of(leaf)
    devices = leaf.target.device_set if source is None else source.device_set | leaf.target.device_set
    owners = {device.process_index for device in devices}
    return owners if len(owners) > 1 else set()
