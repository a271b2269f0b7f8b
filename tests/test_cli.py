"""The command: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from redistrib.cli import main
from redistrib.cost.presets import PRESETS
from redistrib.plans.plan import Plan

PROBLEM = ["[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "--mesh", "x=4,y=6"]


def test_plan_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *PROBLEM, "--cost-model", "exact"]) == 0
    out = capsys.readouterr().out
    assert "exchange" in out
    assert "received is 1.00 times the bound" in out


def test_plan_prints_json_that_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *PROBLEM, "--json", "--algorithm", "paper", "--cost-model", "paper"]) == 0
    plan = Plan.from_json(capsys.readouterr().out)
    assert plan.algorithm == "paper"
    assert plan.cost == 18


def test_over_partitioning_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    figure_12 = ["[1{y,x}8, 8, 8, 4]", "[8, 4{y}8, 2{x}8, 4]", "--mesh", "x=4,y=2,z=4"]
    costs = []
    for extra in ([], ["--no-over-partition"]):
        assert main(["plan", *figure_12, "--json", "--algorithm", "paper", "--cost-model", "paper", *extra]) == 0
        costs.append(json.loads(capsys.readouterr().out)["cost"])
    assert costs == [384, 512]


def test_explain_draws_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = tmp_path / "plan.png"
    assert main(["explain", *PROBLEM, "--algorithm", "paper", "-o", str(drawing)]) == 0
    out = capsys.readouterr().out
    assert "times the lower bound of 124" in out
    assert drawing.read_bytes().startswith(b"\x89PNG")


def test_bad_input_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "[3{x}12", "[12]", "--mesh", "x=4"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("redistrib: ")
    assert "^" in captured.err


def test_a_profile_is_a_cost_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "mine.json"
    profile.write_text(PRESETS["gpu"].to_json())
    assert main(["plan", *PROBLEM, "--cost-model", str(profile), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost_model"] == "gpu"
    assert main(["plan", *PROBLEM, "--cost-model", str(tmp_path / "none.json")]) == 2
    assert "cannot read the profile" in capsys.readouterr().err


def test_run_checks_every_element(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    assert main(["run", "[4{x}8, 8]", "[8, 4{x}8]", "--mesh", "x=2", "--json", "--cost-model", "exact"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["compared"] == 64
    assert report["ours"] == {
        "collectives": {"all-to-all": 1},
        "received_bytes": 128,
        "scratch_bytes": report["ours"]["scratch_bytes"],
        "wrong_elements": 0,
    }
    assert report["bound_bytes"] == 128
