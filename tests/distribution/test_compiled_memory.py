"""What is predicted of compiled memory, beside what the compiler reports, for forty programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from bench.programs.all import cases
from bench.programs.case import Case
from tests.distribution.others import held_out, known


def near(case: Case) -> bool:
    """Whether the prediction is within a tenth of the arguments, results and temporaries that the compiler reports."""
    f = case.distributed(cost_model="exact")
    found = f.lower().compile().memory_analysis()
    taken = found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes
    return bool(abs(f.compiled_memory / taken - 1) <= 0.1)


# Programs of the bench whose prediction is off by more: look-ups that are added as bits take scratch that is not
# predicted, a product that the compiler makes again is predicted as held, and the last holds half a kilobyte.
OUTSIDE = {"embedding and cross-entropy", "LayerNorm backward", "Monte Carlo"}


@pytest.mark.long
def test_the_benchs_programs_that_are_predicted_worse_are_known() -> None:
    assert {name for name, case in cases("full").items() if not near(case)} == OUTSIDE


@pytest.mark.long
@pytest.mark.parametrize(
    ("programs", "most"), [(known, 6), (held_out, 9)], ids=["seen while rules were written", "held out"]
)
def test_memory_is_predicted_within_a_tenth_of_what_is_reported(
    programs: Callable[[], Iterable[Case]], most: int
) -> None:
    assert sum(map(near, programs())) >= most
