"""Koenig: shares of one size travel in as many rounds as the busiest device has of them, and no fewer are possible."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from redistrib.plans.steps import Exchange
from redistrib.synthesis.colouring import edge_colouring
from redistrib.synthesis.exchange import in_rounds
from redistrib.testing import Redistribution, redistributions

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
def test_in_a_round_every_device_sends_once_and_receives_once_and_shares_have_one_size(pair: Redistribution) -> None:
    for step in in_rounds(pair.before, pair.after) or []:
        if isinstance(step, Exchange):
            sizes = defaultdict(set)
            shares = step.shares
            rows = zip(
                shares.src.tolist(), shares.dst.tolist(), shares.round.tolist(), shares.size.tolist(), strict=True
            )
            sent, taken = Counter(), Counter()
            for src, dst, number, size in rows:
                sent[src, number] += 1
                taken[dst, number] += 1
                sizes[number].add(tuple(size))
            assert max(sent.values(), default=1) == max(taken.values(), default=1) == 1
            assert all(len(shapes) == 1 for shapes in sizes.values())
            assert set(sizes) == set(range(shares.rounds))


@given(redistributions())
def test_equal_shares_take_no_more_rounds_than_a_tile_has_shares(pair: Redistribution) -> None:
    """For nesting grids: the chunks that a target tile is put together from, less the rounds in which all stay home."""
    before, after = pair.before, pair.after
    chunks = 1
    for b, a in zip(before.grid, after.grid, strict=True):
        if b % a and a % b:
            return
        chunks *= max(1, b // a)
    for step in in_rounds(before, after) or []:
        if isinstance(step, Exchange):
            busiest = max(Counter(step.shares.dst.tolist()).values(), default=0)
            assert busiest <= step.shares.rounds <= chunks
