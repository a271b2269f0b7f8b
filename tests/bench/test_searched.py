"""Layouts written by hand, and what the page says of schedules that were searched, of records made up for it."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh, NamedSharding

from bench import goals as of_suites
from bench import tables
from bench.programs.case import SIZES, P
from bench.programs.compared import best
from bench.programs.written import BATCH, LAYOUTS, SEARCHED, is_trained, laid, programs, written
from bench.results import Results


@pytest.mark.parametrize("size", SIZES[1:])
def test_written_layouts_are_of_their_programs_and_divide(size: str) -> None:
    for name in LAYOUTS:
        layouts = written(name, size)
        assert next(iter(layouts)) == BATCH
        for case in layouts.values():
            mesh = AbstractMesh(tuple(case.mesh.values()), tuple(case.mesh))
            flat = jax.tree.leaves(case.ins, is_leaf=lambda one: isinstance(one, P))
            for spec, form in zip(flat, jax.tree.leaves(case.args), strict=True):
                NamedSharding(mesh, spec).shard_shape(form.shape)  # raises where a part would not divide
            assert case.outs == (case.ins[0], P()) if is_trained(programs(size)[name]) else case.outs is not None


def test_axes_that_cut_one_dimension_are_one_entry() -> None:
    case = programs("medium")["MLP"]
    made = laid(case, [("d", {"x": 0}), ("t", {"x": 0, "params/w1": 1})])
    assert made.ins[1] == P(("d", "t")) and made.ins[0]["w1"] == P(None, "t") and made.ins[2] == P()
    with pytest.raises(AssertionError, match=r"MLP has no \['y'\]"):
        laid(case, [("d", {"y": 0})])


def record(name: str, found: float, batch: float, other: float, predicted: float) -> dict[str, Any]:
    times = {SEARCHED: [found] * 5, BATCH: [batch] * 5, "model": [other] * 5}
    seconds = {SEARCHED: predicted, BATCH: 1.0, "model": 2.0}
    return {
        "name": name,
        "mesh": {"d": 2, "t": 4},
        "times": times,
        "predicted": {side: {"seconds": own} for side, own in seconds.items()},
        SEARCHED: {"received": 2e6, "peak": 1e6},
    }


def goals(records: list[dict[str, Any]]) -> list[of_suites.Goal]:
    return of_suites.searched_cluster(Results({"searched_cluster": {"records": records}}))


def test_goals_are_held_against_the_fastest_written_layout() -> None:
    fine = [record("one", 1.0, 2.0, 1.5, 1.0), record("two", 1.0, 2.0, 3.0, 0.5)]
    assert best(fine[0]) == "model" and best(fine[1]) == BATCH
    assert [met for _, _, met in goals(fine)] == [True, True, True]
    slow = [record("one", 1.0, 1.2, 0.8, 1.1)]
    (_, above, least), (_, _, batch), (_, text, written_met) = goals(slow)
    assert above.startswith("above on 1 of 1") and (least, batch, written_met) == (False, False, False)
    assert text.endswith("slower on one")
    assert [met for _, _, met in goals([])] == [None, None, None]


@pytest.mark.parametrize(("received", "holds"), [(60, True), (99, False), (101, False)])
def test_searched_programs_are_a_row_and_a_goal(received: int, holds: bool) -> None:
    records = [
        {"name": "one", "xla": 100, "ours": 90, "received": received, "bound": 50.0},
        {"name": "two", "xla": 100, "ours": 90, "received": 60, "bound": 50.0},
    ]
    results = Results({"programs_searched": {"records": records}})
    assert list(tables.programs(results).rows[0]) == ["one", "-", f"{received / 100:.3f}", "-", "-"]
    (goal,) = of_suites.programs_searched(results)
    assert goal.holds is holds
    assert f"more on {int(received > 100)} of 2" in goal.measured
    assert of_suites.programs_searched(Results({})) == [of_suites.Goal(goal.name)]
