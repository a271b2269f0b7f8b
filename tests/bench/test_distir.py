"""DistIR's winners and cells, counted of records made up for it."""

from __future__ import annotations

from typing import Any

from bench import eager, report
from bench.distir import GPT2, MLP, differing, figures, rows, speedups, winners
from bench.results import Results


def layout(batch: int, name: str, seconds: float, peak: int = 1) -> dict[str, Any]:
    return {
        "model": "MLP 1B", "batch": batch, "layout": name, "seconds": seconds, "peak_bytes": peak
    }  # fmt: skip


SIMULATED = [
    layout(128, "1/16/1/1", 1.0),
    layout(128, "16/1/1/1", 7.0),
    layout(128, "1/1/16/128", 9.0, 40),
    layout(65536, "16/1/1/1", 1.04),
    layout(65536, "8/2/1/1", 1.0),
    layout(65536, "1/16/1/1", 0.5, 40),
]


def test_winners_and_cells_are_counted_among_what_fits() -> None:
    found = winners(SIMULATED, 32)
    assert found == [
        ["MLP 1B", "128", "1/16/1/1", "1/16/1/1", "1.000", "1"],
        ["MLP 1B", "65536", "16/1/1/1", "8/2/1/1", "1.040", "2"],
    ]
    # 15 replicas' gradients of 8192 are as many elements as those of seven and an activation of 65536
    assert differing(SIMULATED, 32) == [["MLP 1B", "65536", "16/1/1/1", "8/2/1/1", "1.040", "1.000"]]
    # At 128 all three pure layouts ran, of which the pipeline does not fit here; at 65536 pure T did not, nor here.
    # At 65536 eight replicas of two parts receive no more than sixteen replicas: 7 * 8192 + 65536 = 15 * 8192.
    assert figures(SIMULATED, 32) == {
        "rows": 2, "same": 1, "near": 2, "ten": 2, "flat": 2, "least": 2, "cells": 5, "fit": 4,
    }  # fmt: skip


def test_gains_are_those_of_the_cells_that_were_measured() -> None:
    taken, told = speedups(SIMULATED)
    assert taken == [7.5, 1.1, 21.7, 1.0] and told == [7.0, 1.0, 9.0, 1.0]


def test_the_page_counts_the_rows() -> None:
    results = Results({"distir": {"records": SIMULATED, "settings": {"memory": 32}}})
    text = report.distir(results)
    assert text.startswith("Of the 2 rows of Table 2 ours is theirs on 1; theirs is within 5% of ours on 2, ")
    assert "| MLP 1B | 65536 | 16/1/1/1 | 8/2/1/1 | 1.040 |" in report.distir_rows(results)
    assert report.distir(Results({})) == ""


def test_the_rows_are_those_of_tables_2_and_3() -> None:
    assert sum(len(rows(model)) for model in MLP) == 27
    assert [rows(model) for model in GPT2] == [[32768], [16384], [1024]]


def test_python_costs_what_an_operation_at_a_time_takes_longer_than_a_graph() -> None:
    records = [
        {"name": "1/8/2/2", "pipeline": 2, "microbatches": 2, "seconds": 0.010, "graph": 0.004},
        {"name": "1/2/8/64", "pipeline": 8, "microbatches": 64, "seconds": 0.005, "graph": 0.001},
    ]
    # Three times 48 layers, and 71 times 12, one after the other.
    assert eager.with_python(records, {"1/8/2/2": 4.0, "1/2/8/64": 3.0}) == [
        ["1/8/2/2", "4.00", "0.86", "4.86", "1.44", "0.58"],
        ["1/2/8/64", "3.00", "3.41", "6.41", "4.26", "0.85"],
    ]
    assert len(eager.SUITE.problems({"batch": 1024, "sets": eager.SUITE.sample})) == 29
