"""`redistrib plan --against dtensor`, and placements of DTensor in `rd.synthesize`, without ranks."""

from __future__ import annotations

import pytest
from ranks import Ranks
from torch.distributed.tensor import Partial, Replicate, Shard

import redistrib as rd
from redistrib.cli import main
from redistrib.lang.placements import from_placements


def test_what_dtensor_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "--mesh", "x=4,y=6", "--against", "dtensor"]) == 0
    out = capsys.readouterr().out
    assert "greedy, by default: allgather over" in out and "least cost" in out
    assert "the largest tile has 36" in out  # DTensor's; no tile of the plan has more than 6
    assert "this plan: a device receives at most 13 elements (bound 6), the largest tile has 6" in out


def test_sums_and_other_meshes_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "[8] sum{x}", "[8]", "--mesh", "x=4", "--against", "dtensor"]) != 0
    assert "a comparison with DTensor" in capsys.readouterr().err


def test_placements_are_types() -> None:
    mesh = rd.Mesh.of("x=2,y=4")
    assert str(from_placements([Shard(0), Shard(0)], (16, 3), mesh)) == "[2{y,x}16, 3]"
    assert str(from_placements([Shard(1), Shard(0)], (7, 6), mesh)) == "[2^{y}7, 3{x}6]"
    assert str(from_placements([Partial("avg"), Replicate()], (8,), mesh)) == "[8] sum{x}"
    assert str(from_placements([Partial("max"), Shard(-1)], (8,), mesh)) == "[2{y}8] max{x}"


def test_a_plan_on_a_device_mesh_says_what_dtensor_would_do(ranks: Ranks) -> None:
    assert ranks.run("dtensors.printed_beside") == [(True, False)] * 8
