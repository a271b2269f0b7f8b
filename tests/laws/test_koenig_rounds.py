"""Koenig: as many rounds as the busiest device has shares of one kind, and no fewer are possible."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redistrib.plans.steps import Exchange
from redistrib.plans.transfers import NeededParts
from redistrib.synthesis.exchange import in_rounds
from redistrib.synthesis.problem import Problem
from redistrib.synthesis.rounds import edge_colouring, padded_rounds
from redistrib.testing import RedistributionCase, redistributions
from redistrib.theory.boxes import Boxes
from redistrib.theory.placement import Placement

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=60)


@given(EDGES)
def test_a_bipartite_multigraph_has_as_many_colours_as_its_largest_degree(edges: list[tuple[int, int]]) -> None:
    colours = edge_colouring(edges)
    assert len(colours) == len(edges)
    for side in (0, 1):
        at = Counter((edge[side], colour) for edge, colour in zip(edges, colours, strict=True))
        assert all(times == 1 for times in at.values())
    degree = max((n for side in (0, 1) for n in Counter(edge[side] for edge in edges).values()), default=0)
    assert set(colours) == set(range(degree))


@given(redistributions())
def test_in_a_round_every_device_sends_once_and_receives_once(pair: RedistributionCase) -> None:
    """In the first way the shares of a round have one shape besides; later ways take fewer rounds."""
    ways = in_rounds(Problem.plain(pair.before, pair.after))
    for number_of_way, step in enumerate(chain(*ways)):
        if isinstance(step, Exchange):
            sizes = defaultdict(set)
            shares = step.shares
            rows = zip(
                shares.sender.tolist(),
                shares.receiver.tolist(),
                shares.round.tolist(),
                shares.box.size.tolist(),
                strict=True,
            )
            sent, taken = Counter(), Counter()
            for src, dst, number, size in rows:
                sent[src, number] += 1
                taken[dst, number] += 1
                sizes[number].add(tuple(size))
            assert max(sent.values(), default=1) == max(taken.values(), default=1) == 1
            assert number_of_way or all(len(shapes) == 1 for shapes in sizes.values())
            assert set(sizes) == set(range(shares.rounds))
    rounds = [sum(step.collectives for step in steps) for steps in ways]
    assert all(more > fewer for more, fewer in pairwise(rounds))


LACKS = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda pair: pair[0] != pair[1]),
    st.integers(1, 9),
    min_size=1,
)


@given(LACKS)
def test_shares_of_all_sizes_take_as_many_rounds_as_the_busiest_device_has_of_them(
    lacks: dict[tuple[int, int], int],
) -> None:
    """Every tile has one holder here, so that who sends is given; the largest shares travel first, side by side."""
    before = Placement((60,), (6,), np.arange(6)[:, None])
    tile, receiver = np.array([*lacks], np.int64).T
    missing = NeededParts(receiver, tile, Boxes(10 * tile[:, None], np.array([*lacks.values()])[:, None]))
    shares = padded_rounds(missing, before)
    assert {
        (s, d): n
        for s, d, (n,) in zip(shares.sender.tolist(), shares.receiver.tolist(), shares.box.size.tolist(), strict=True)
    } == lacks
    for side in (shares.sender, shares.receiver):
        assert len(set(zip(side.tolist(), shares.round.tolist(), strict=True))) == len(lacks)
    assert shares.rounds == max(n for side in (0, 1) for n in Counter(pair[side] for pair in lacks).values())


@given(redistributions())
def test_equal_shares_take_no_more_rounds_than_a_tile_has_shares(pair: RedistributionCase) -> None:
    """For nesting grids: the chunks that a target tile is put together from, less the rounds in which all stay home."""
    before, after = pair.before, pair.after
    chunks = 1
    for b, a in zip(before.grid, after.grid, strict=True):
        if b % a and a % b:
            return
        chunks *= max(1, b // a)
    for step in chain(*in_rounds(Problem.plain(before, after))):
        if isinstance(step, Exchange):
            busiest = max(Counter(step.shares.receiver.tolist()).values(), default=0)
            assert busiest <= step.shares.rounds <= chunks
