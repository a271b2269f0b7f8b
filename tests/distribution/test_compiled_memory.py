"""What is predicted of compiled memory, beside what the compiler reports, for forty programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from bench.programs.all import cases
from bench.programs.case import Case
from bench.programs.others import held_out, known


def near(case: Case) -> bool:
    """Whether the prediction is within a tenth of the arguments, results and temporaries that the compiler reports."""
    f = case.distributed(cost_model="exact")
    found = f.lower().compile().memory_analysis()
    taken = found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes
    return bool(abs(f.compiled_memory / taken - 1) <= 0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("programs", "most"),
    [(lambda: cases("full").values(), 18), (known, 6), (held_out, 9)],
    ids=["the bench's", "seen while rules were written", "held out"],
)
def test_memory_is_predicted_within_a_tenth_of_what_is_reported(
    programs: Callable[[], Iterable[Case]], most: int
) -> None:
    assert sum(map(near, programs())) >= most
