"""Inverse plans: the plan of the way back undoes the plan of the way there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redistrib.plans.reference import run, scatter
from redistrib.testing import RedistributionCase, numbered, redistributions

ALGORITHMS = st.sampled_from([("best", "exact"), ("best", "tpu"), ("paper", "paper")])


@given(redistributions(), ALGORITHMS, ALGORITHMS)
def test_there_and_back_is_nothing(pair: RedistributionCase, there: tuple[str, str], back: tuple[str, str]) -> None:
    tiles = scatter(numbered(pair.source.global_shape), pair.before)
    moved = run(pair.plan(*there), tiles)
    returned = run(pair.reversed().plan(*back), moved)
    assert all(np.array_equal(got, want) for got, want in zip(returned, tiles, strict=True))


@given(redistributions(), ALGORITHMS)
def test_from_a_type_to_itself_nothing_is_done(pair: RedistributionCase, how: tuple[str, str]) -> None:
    still = RedistributionCase(pair.source, pair.source, pair.mesh, pair.mesh)
    assert still.plan(*how).steps == ()


@given(redistributions(two_meshes=False))
def test_without_replication_the_way_back_receives_as_much(pair: RedistributionCase) -> None:
    there, back = pair.plan(), pair.reversed().plan()
    if there.before.tiles == there.after.tiles == there.devices:
        assert sum(there.received) == sum(back.received)
