"""Every quirk of XLA on CPUs can be switched off by itself, and all arrays arrive as they were."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.quirks import Quirks
from redistrib.backends.jax.xla_cpu import quirks

MESH = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
ROWS, COLUMNS, WHOLE = (NamedSharding(MESH, P(*spec)) for spec in ((("x", "y"),), (None, ("x", "y")), ()))


def tree() -> tuple[list[jax.Array], list[NamedSharding]]:
    """Leaves that are exchanged, gathered, coalesced, and of bfloat16, with their targets."""

    def leaf(shape: tuple[int, ...], sharding: NamedSharding, dtype: Any = np.float32) -> jax.Array:
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 251
        return jax.device_put(values.astype(dtype), sharding)

    large = [leaf((64, 512), ROWS), leaf((64, 512), COLUMNS), leaf((64, 256), ROWS, jnp.bfloat16)]
    small = [leaf((8, 4 + 4 * (k % 2)), ROWS) for k in range(20)]
    return large + small, [COLUMNS, WHOLE, COLUMNS, *[WHOLE] * len(small)]


FACTS = {"ragged", "copies_results", "adds_up_lines", "knows_kinds_of_memory", "wide_sums", "adds_by_gloo", "copies"}
BETWEEN_PROCESSES = {"half_duplex_bytes", "shares_memory"}


@pytest.mark.long
@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("field", sorted({field.name for field in fields(Quirks)} - BETWEEN_PROCESSES - FACTS))
def test_switched_off_one_by_one(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switched = getattr(Quirks(), field)
    assert getattr(quirks.ONE_PROCESS, field) != switched
    monkeypatch.setattr(quirks, "ONE_PROCESS", replace(quirks.ONE_PROCESS, **{field: switched}))
    leaves, targets = tree()
    for before, after, target in zip(leaves, rd.reshard(leaves, targets), targets, strict=True):
        assert after.sharding == target
        for shard in after.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(before)[shard.index])
