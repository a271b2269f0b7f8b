"""Sixty plans are lowered to the collectives and groups of before; `python -m tests.jax.kept_lowered` renews them."""

from __future__ import annotations

import json

from tests.jax.kept_lowered import KEPT, PLANS, collectives
from tests.synthesis import kept_plans


def test_plans_are_lowered_as_before() -> None:
    rows = json.loads(KEPT.read_text(encoding="utf-8"))
    calls = [call for call, was in kept_plans.kept(kept_plans.LONG) if was.get("steps")]
    assert len(rows) == PLANS
    kinds = " ".join(collective for row in rows for collective in row["collectives"])
    for kind in ("all_gather", "all_to_all", "collective_permute", "all_reduce", "reduce_scatter"):
        assert kind in kinds, kind
    for row in rows:
        assert collectives(kept_plans.plan_of(calls[row["call"]])) == row["collectives"], calls[row["call"]]
