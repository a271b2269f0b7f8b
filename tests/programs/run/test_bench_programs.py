"""The programs that the bench compares: the schedules of ours pin what XLA is given as shardings, and no more."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from bench import goals
from bench.programs.all import cases
from bench.programs.case import SIZES, shardings
from bench.programs.compared import ratio
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
