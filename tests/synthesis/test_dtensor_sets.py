"""On the problems of `bench dtensor` plans receive the lower bound, and no tile is above the larger end.

The sample of `bench dtensor` runs with all tests, a test for each set; the whole sets are long.
"""

from __future__ import annotations

import pytest

import redistrib as rd
from bench.dtensor import SAMPLE
from bench.problems import DEFAULT_SEED, problem_set
from bench.xla_cpu import FULL


def hold(name: str, first: int, count: int) -> int:
    """Plan the problems of a set from number `first` on; how many there are."""
    problems = problem_set(name, DEFAULT_SEED, count)[first:]
    for problem in problems:
        plan = rd.synthesize(problem.source, problem.target, problem.axes, machine="exact", dtype="float32")
        assert plan.received == plan.lower_bound, (problem.name, plan)
        tiles = (plan.before.tile_size, plan.after.tile_size)
        assert plan.height <= max(tiles), (problem.name, plan)
    return len(problems)


@pytest.mark.parametrize("name", sorted(SAMPLE))
def test_the_sample_is_at_the_bound(name: str) -> None:
    assert hold(name, 0, SAMPLE[name])


@pytest.mark.parametrize("name", sorted(name for name in FULL if FULL[name] > SAMPLE.get(name, 0)))
def test_the_rest_is_at_the_bound(name: str) -> None:
    assert hold(name, SAMPLE.get(name, 0), FULL[name])
