"""Summands that a run is checked by: their sums are exact in every element type, and no other summands make them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import redistrib as rd
from redistrib.plans import pattern, reference
from redistrib.theory.boxes import Box

DTYPES = ["int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "bfloat16", "float8_e4m3fn", "int4"]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.filterwarnings("error")
def test_sums_are_exact_and_tell_their_summands(dtype: str, kind: str) -> None:
    if (dtype == "bool" and kind == "sum") or (dtype == "complex64" and kind == "max"):
        return
    plan = rd.synthesize(f"[4{{x}}16, 8] {kind}{{y}}", "[16, 1{x,y}8]", "x=4,y=2", dtype=dtype, order="fixed")
    kept = dtype_of(dtype)
    tiles = [pattern.source_tile(plan, device, kept) for device in range(8)]
    for device, tile in enumerate(reference.run(plan, tiles)):
        want = pattern.reduced(plan, plan.after.box(device), kept)
        assert tile.dtype == want.dtype == kept
        assert tile.tobytes() == want.tobytes()
    if kind == "sum":
        tiles[1] = tiles[0]  # one summand twice, the other never
        wrong = reference.assemble(reference.run(plan, tiles), plan.after)
        assert (wrong != pattern.reduced(plan, Box((0, 0), (16, 8)), kept)).sum() > 4 * 8 // 4


@pytest.mark.filterwarnings("error")
def test_scalars() -> None:
    plan = rd.synthesize("[] sum{x}", "[]", "x=3", dtype="int64")
    tiles = [pattern.source_tile(plan, device, np.dtype("int64")) for device in range(3)]
    assert [int(t) for t in reference.run(plan, tiles)] == [int(pattern.reduced(plan, Box((), ()), tiles[0].dtype))] * 3
    assert len({int(tile) for tile in tiles}) == 3
