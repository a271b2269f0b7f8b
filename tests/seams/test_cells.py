"""Every public call beside transformations, meshes, modes and sources: right, or refused as the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from tests.seams.cells import BESIDE, CALLS, MESH, SOURCE, TARGET, cells, outcome, refused, table

PAGE = (Path(__file__).parents[2] / "docs" / "seams.md").read_text().partition("## Several processes")[0]
ROW = NamedSharding(MESH, P("b"))
SAMPLE = [
    *(("to_jax", name) for name in ("grad", "vmap", "jit of vmap of grad", "another mesh of Explicit axes")),
    *(("reshard", name) for name in ("scan", "jit under a larger mesh", "transfer_guard", "a deleted source")),
    ("reshard of trees", "jit under another mesh of Explicit axes"),
    ("reshard through", "its mesh of Explicit axes"),
    ("reshard through", "disable_jit"),
    ("distribute", "another mesh of Explicit axes"),
    ("distribute", "jacfwd"),
    ("distribute", "jit inside"),
    ("distribute", "to pinned_host"),
    ("reshard through", "shard_map inside"),
    ("reshard through", "to unpinned_host"),
    ("reshard of trees", "jit to pinned_host"),
    ("reshard of trees", "grad from pinned_host"),
    ("pipeline", "a larger mesh"),
    ("pipeline", "grad"),
]


@pytest.mark.parametrize(("call", "beside"), SAMPLE)
def test_a_call_beside_something(call: str, beside: str) -> None:
    expected = refused(PAGE).get((call, beside), "right")
    assert outcome(call, BESIDE[beside]).partition(":")[0] == expected


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_all_cells_of_a_call(call: str) -> None:
    """The table of the page is that of the cells, line for line."""
    outcomes = {cell: outcome(call, BESIDE[cell[1]]) for cell in cells() if cell[0] == call}
    assert len(outcomes) == sum(beside.may_be_asked_of(CALLS[call]) for beside in BESIDE.values())
    page = [line for line in PAGE.splitlines() if line.startswith(f"| {call} |")]
    assert table(outcomes).splitlines()[2:] == page


@pytest.mark.parametrize("via", ["collectives", "copies"])
def test_nans_travel_while_jax_looks_for_them(via: Any) -> None:
    values = np.full((4, 4), np.nan, np.float32)
    array = jax.device_put(values, SOURCE)
    with jax.debug_nans(True):
        moved = rd.reshard(array, TARGET, via=via)
        batched = jax.vmap(lambda row: rd.reshard(row, ROW, source=ROW))(array)
    assert np.isnan(moved).all() and np.isnan(batched).all()


def test_the_table_is_read_as_it_is_drawn() -> None:
    drawn = {("reshard", "jit under a larger mesh"): "TracedError", ("reshard", "shard_map"): "TracedError"}
    assert refused(table({**drawn, ("reshard", "a larger mesh"): "right"})) == drawn
