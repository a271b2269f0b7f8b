"""The layouts taken of those simulated, of records made up for it."""

from __future__ import annotations

from typing import Any

from bench.top_ten import TOP, choices, goal, rows


def layout(name: str, predicted: float, seconds: float) -> dict[str, Any]:
    return {"batch": 8, "layout": name, "predicted": predicted, "times": {"step": [seconds] * 3}}


def test_the_fastest_of_the_ten_that_are_simulated_fastest_is_taken() -> None:
    mixed = [layout("2/1/2/2", 1.0, 3.0), layout("2/2/1/1", 2.0, 2.0)]
    pure = [layout("4/1/1/1", 3.0, 4.0), layout("1/1/4/2", 4.0, 6.0), layout("1/1/4/4", 5.0, 5.0)]
    (one,) = choices([*mixed, *pure, {"batch": 8, "layout": "1/4/1/1", "status": "crash"}])
    assert (one.taken["layout"], one.place, one.pure) == ("2/2/1/1", 2, {"D": 4.0, "P": 5.0})
    assert rows([one])[1] == [["8", "2/2/1/1", "2", "2000", "4000", "-", "5000"]]
    assert goal([*mixed, *pure])[1:] == ("the fastest pure one's time over its: batch 8 2.00x", True)


def test_a_pure_strategy_that_is_not_among_the_ten_may_be_faster() -> None:
    ten = [layout("2/1/2/2", float(k), 3.0) for k in range(TOP)]
    records = [*ten, layout("4/1/1/1", 99.0, 1.5)]
    assert goal(records)[1:] == ("the fastest pure one's time over its: batch 8 0.50x", False)
    assert goal([])[2] is None
