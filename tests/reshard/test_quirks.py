"""Every quirk of XLA on CPUs can be switched off by itself, and all arrays arrive as they were."""

from __future__ import annotations

import gc
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import xla_cpu
from redistrib.resharding import eager

MESH = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
ROWS, COLUMNS, WHOLE = (NamedSharding(MESH, P(*spec)) for spec in ((("x", "y"),), (None, ("x", "y")), ()))


def tree() -> tuple[list[jax.Array], list[NamedSharding]]:
    """Leaves that are exchanged, gathered apart, coalesced, and of bfloat16, with their targets."""

    def leaf(shape: tuple[int, ...], sharding: NamedSharding, dtype: Any = np.float32) -> jax.Array:
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 251
        return jax.device_put(values.astype(dtype), sharding)

    large = [leaf((64, 512), ROWS), leaf((64, 512), COLUMNS), leaf((64, 256), ROWS, jnp.bfloat16)]
    small = [leaf((8, 4 + 4 * (k % 2)), ROWS) for k in range(20)]
    return large + small, [COLUMNS, WHOLE, COLUMNS, *[WHOLE] * len(small)]


@pytest.mark.long
@pytest.mark.usefixtures("fresh", "quick_compiles")
@pytest.mark.parametrize("field", [field.name for field in fields(xla_cpu.Quirks)])
def test_switched_off_one_by_one(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    switched = (
        not xla_cpu.ONE_PROCESS.pauses_collection if field == "pauses_collection" else getattr(xla_cpu.Quirks(), field)
    )
    assert getattr(xla_cpu.ONE_PROCESS, field) != switched
    monkeypatch.setattr(xla_cpu, "ONE_PROCESS", replace(xla_cpu.ONE_PROCESS, **{field: switched}))
    leaves, targets = tree()
    for before, after, target in zip(leaves, rd.reshard(leaves, targets), targets, strict=True):
        assert after.sharding == target
        for shard in after.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(before)[shard.index])


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("pauses", [True, False])
def test_what_is_process_wide_follows_the_switch(pauses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    compiling = eager.compiling
    monkeypatch.setattr(eager, "compiling", lambda makers: (seen.append(gc.isenabled()), compiling(makers))[1])
    monkeypatch.setattr(eager, "trim_heap", lambda: seen.append("trimmed"))
    switched = replace(xla_cpu.ONE_PROCESS, pauses_collection=pauses, trims_heap=pauses)
    monkeypatch.setattr(xla_cpu, "ONE_PROCESS", switched)
    rd.reshard(jax.device_put(np.zeros((8, 8)), ROWS), COLUMNS)
    assert seen == ([False, "trimmed"] if pauses else [True])
