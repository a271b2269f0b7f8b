"""DistIR's winners and cells, counted of records made up for it."""

from __future__ import annotations

from typing import Any

from bench import report
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
    assert differing(SIMULATED, 32) == [["MLP 1B", "65536", "16/1/1/1", "8/2/1/1", "1.040", "1.000", "0.0", "0.0"]]
    # At 128 all three pure layouts ran, of which the pipeline does not fit here; at 65536 pure T did not, nor here.
    # At 65536 eight replicas of two parts receive no more than sixteen replicas: 7 * 8192 + 65536 = 15 * 8192.
    assert figures(SIMULATED, 32) == {
        "rows": 2, "same": 1, "near": 2, "ten": 2, "flat": 2, "least": 2, "cells": 5, "fit": 4,
    }  # fmt: skip


def test_gains_are_those_of_the_cells_that_were_measured() -> None:
    taken, told = speedups(SIMULATED)
    assert taken == [7.5, 1.1, 21.7, 1.0] and told == [7.0, 1.0, 9.0, 1.0]


def test_the_page_counts_the_rows() -> None:
    text = report.distir(Results({"distir": {"records": SIMULATED, "settings": {"memory": 32}}}))
    assert text.startswith("Of the 2 rows of Table 2 ours is theirs on 1; theirs is within 5% of ours on 2, ")
    assert text.endswith("Furthest behind: 1.040 on MLP 1B at 65536 (theirs 16/1/1/1, ours 8/2/1/1).\n")
    assert report.distir(Results({})) == ""


def test_the_rows_are_those_of_tables_2_and_3() -> None:
    assert sum(len(rows(model)) for model in MLP) == 27
    assert [rows(model) for model in GPT2] == [[32768], [16384], [1024]]
