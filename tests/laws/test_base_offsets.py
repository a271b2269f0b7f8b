"""Lemmas 4.1 and 4.2: the offsets of a type are the multiples of its tile, in every dimension, below the size."""

from __future__ import annotations

import itertools

from hypothesis import given

from redistrib.testing import RedistributionCase, redistributions


@given(redistributions())
def test_in_every_dimension_they_are_the_multiples_of_the_tile(pair: RedistributionCase) -> None:
    start = pair.before.start
    for i, dim in enumerate(pair.source.dims):
        assert set(start[:, i].tolist()) == set(range(0, dim.size, dim.tile))


@given(redistributions())
def test_together_they_are_all_combinations_of_these(pair: RedistributionCase) -> None:
    """Componentwise below the global shape: lexicographically, as the paper says, would be more."""
    start = pair.before.start
    lines = [range(0, dim.size, dim.tile) for dim in pair.source.dims]
    assert set(map(tuple, start.tolist())) == set(itertools.product(*lines))
