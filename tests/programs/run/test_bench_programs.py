"""The programs that the bench compares: the schedules of ours pin what XLA is given as shardings, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest

from bench import goals, gpt_step, results, tables
from bench.__main__ import parser_for
from bench.programs.all import cases
from bench.programs.case import SIZES, shardings
from bench.programs.compared import ratio
from bench.programs.gpt import MESHES, gpt
from bench.programs.pair import Pair
from bench.results import Results
from bench.summary import OURS, XLA

ALL = cases()


def equivalent(found: Any, wanted: Any, forms: Any) -> None:
    spread = jax.tree.map(lambda one, below: jax.tree.map(lambda _: one, below), wanted, forms)
    for a, b, form in zip(*map(jax.tree.leaves, (found, spread, forms)), strict=True):
        assert a.is_equivalent_to(b, len(form.shape)), (a, b)


@pytest.mark.parametrize("name", ALL)
def test_both_have_the_same_pins(name: str) -> None:
    case = ALL[name]
    mesh = case.mesh_of(jax.devices())
    f = case.distributed(mesh, machine="exact")
    assert f.opaque == ()
    equivalent(f.in_shardings, shardings(mesh, case.ins), case.args)
    equivalent(f.out_shardings, shardings(mesh, case.outs), jax.eval_shape(case.undistributed, *case.args))


def test_a_program_is_compared_and_a_wrong_result_is_told() -> None:
    parts: list[dict[str, Any]] = []
    pair = Pair(ALL["SpMV"], jax.devices())
    programs = pair.compile({"cost_model": "exact"}, parts.append)
    args = pair.array()
    assert [pair.check(programs[name](args)) for name in (OURS, XLA)] == [None, None]
    assert "differs by" in str(pair.check(programs[OURS](args) * 2))
    record = {"name": "SpMV", "mesh": {"d": 8}, "small": {"wrong": {}}}
    record["full"] = {key: value for part in parts for key, value in part.items()}
    assert record["full"][OURS]["predicted"] == record["full"][OURS]["received"]
    share = ratio(record)
    assert share is not None and share < 1
    (goal,) = goals.programs(Results({"programs": {"records": [record]}}))
    assert goal.holds and goal.measured.endswith("more on 0 of 1")


def test_there_are_twenty_in_three_sizes() -> None:
    assert [len(cases(size)) for size in SIZES] == [20, 20, 20]
    assert cases("full").keys() == ALL.keys()


@pytest.mark.parametrize("name", MESHES)
def test_a_step_of_a_gpt_has_the_same_pins_by_both(name: str) -> None:
    case = gpt(name, "small")
    mesh = case.mesh_of(jax.devices())
    f = case.distributed(mesh)
    assert f.opaque == ()
    equivalent(f.in_shardings, shardings(mesh, case.ins), case.args)
    equivalent(f.out_shardings, shardings(mesh, case.outs), jax.eval_shape(case.undistributed, *case.args))


@pytest.mark.long
def test_steps_of_a_gpt_run_in_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each result is compared with that of one device, and the table is of what was measured."""
    monkeypatch.setattr(results, "DIRECTORY", tmp_path)
    asked = ["gpt-step", "--size", "small", "--rounds", "3", "--sets", "data 4 x model 2"]
    shown: list[str] = []
    code = gpt_step.SUITE.main(parser_for("gpt-step").parse_args(asked), lambda *of: shown.append(tables.of(*of)))
    (record,) = (results.load("gpt_step") or {})["records"]
    assert code == 0 and "wrong" not in record
    assert {side: len(record["times"][side]) for side in (OURS, XLA)} == {OURS: 3, XLA: 3}
    assert record[OURS]["received"] == record[OURS]["predicted"] and record[XLA]["received"]
    assert "| data 4 x model 2 | " in shown[0] and shown[0].count("\n") == 2
