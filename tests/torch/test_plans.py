"""Plans through `rd.to_torch`, on 2, 4 and 8 ranks of one launch."""

from __future__ import annotations

import pytest
from ranks import Ranks


@pytest.mark.parametrize("kind", ["even", "uneven", "partial"])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_random_plans_equal_the_reference(ranks: Ranks, count: int, kind: str) -> None:
    used = ranks.run("plans.random_plans", count, kind, 1, 42)
    assert used[0]


def test_long_tiles_take_native_collectives(ranks: Ranks) -> None:
    assert "native" in ranks.run("plans.long_tiles")[0]


def test_other_devices(ranks: Ranks) -> None:
    ranks.run("plans.other_devices", 1, 28)


def test_errors_are_the_same_on_every_rank(ranks: Ranks) -> None:
    said = ranks.run("plans.refusals")
    assert all(one == said[0] for one in said)
    for text, word in zip(
        said[0],
        ("makes another call than rank 0", "give the same on all ranks", "MemoryLimitError", "has 8 ranks",
         "rank 5: the tensor has dtype", "rank 2: the tensor has shape", "rank 1: the tensor is NoneType",
         "rank 4 makes another call", "rank 6: out overlaps", "'gloo' is no process group"),
        strict=True,
    ):  # fmt: skip
        assert word in text


def test_a_memory_limit_counts_wide_accumulators(ranks: Ranks) -> None:
    for added, needed, (below, at) in ranks.run("plans.wide_sums"):
        assert added == 2 * 4 * 8  # a sum and a partial sum of 8 elements
        assert at == "no error" and below.startswith("MemoryLimitError") and f"{needed:,} bytes" in below


def test_a_table_of_disagreements(ranks: Ranks) -> None:
    """Each is the same library error on all ranks within seconds."""
    answers = ranks.run("plans.disagreements")
    assert len(answers[0]) == 2 * (12 + 5)
    for case in zip(*answers, strict=True):
        assert len({text for _, text, _ in case}) == 1 and case[0][1] != "no error", case
        assert max(seconds for *_, seconds in case) < 10, case


def test_a_profile_is_measured(ranks: Ranks) -> None:
    assert ranks.run("plans.measured")[0] >= 6
