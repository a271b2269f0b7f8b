"""Five hundred calls of `synthesize`, and two thousand in the long tests, give the plans and prices they gave before.

Its optimality is tested elsewhere; here nothing changes unseen, neither a tie, nor a price, nor what ranks send and
stage, nor the text of a refusal.
`python -m tests.synthesis.kept_plans` answers them anew, for whoever means to change it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.synthesis.kept_plans import KEPT, LONG, Call, answer, kept

PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_a_call_is_answered_as_before(part: int) -> None:
    compare(kept()[part::PARTS])


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_two_thousand_calls_are_answered_as_before(part: int) -> None:
    calls = kept(LONG)
    assert len(calls) >= 2000
    compare(calls[part::PARTS])


def compare(calls: list[tuple[Call, dict[str, Any]]]) -> None:
    other = [(call, was, now) for call, was in calls if (now := answer(call)) != was]
    if other:
        call, was, now = other[0]
        pytest.fail(f"{len(other)} of {len(calls)} are answered otherwise; the first: {json.dumps(call)}\n{was}\n{now}")


def test_the_calls_are_of_every_kind() -> None:
    calls = kept()
    assert len(calls) >= 450, KEPT
    steps = " ".join(was["steps"] for _, was in calls if "steps" in was)
    for kind in (
        "dynslice", "allgather of", "alltoall of", "allpermute", "rounds", "ragged", "all_reduce", "reduce_scatter",
        "reduce_exchange", "unreduce",
    ):  # fmt: skip
        assert kind in steps, kind

    most = [was["staging"][:2] for _, was in calls if "staging" in was]
    assert all(any(words) for words in zip(*most, strict=True)) and any(one != other for one, other in most)

    def some(holds: str) -> list[Call]:
        return [call for call, was in calls if holds in call and "steps" in was]

    for holds in ("topology", "torus", "memory_limit", "algorithm", "order", "accumulate", "target_mesh"):
        assert len(some(holds)) >= 5, holds
