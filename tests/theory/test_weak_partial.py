"""Weak types of partial arrays: nodes are those of types, and no order of weak collectives beats the normal form."""

from __future__ import annotations

import heapq
import itertools
import math
from fractions import Fraction

import pytest

from redistrib.lang.mesh import Mesh
from redistrib.testing import all_partial_types
from redistrib.theory.placement import placement_of
from tests.specification.normal import is_normal_form
from tests.specification.weak_partial import ORDER, PartialSpace, State, edges


@pytest.mark.parametrize("shape", [(), (12,), (12, 4)], ids=str)
@pytest.mark.parametrize("mesh", ["x=2,y=2", "x=2,y=3", "x=2,y=2,z=3"])
def test_nodes_are_the_weak_types_of_types_over_prime_axes(mesh: str, shape: tuple[int, ...]) -> None:
    over = Mesh.of(mesh)
    space = PartialSpace(shape, over.size, math.prod(shape))
    found = {(p.grid, p.summands) for p in (placement_of(t, over) for t in all_partial_types(over, shape))}
    counts = range(1, over.size + 1)
    nodes = {
        State(grid, p)
        for grid in itertools.product(counts, repeat=len(shape))
        for p in counts
        if space.is_node(State(grid, p))
    }
    assert nodes == found
    for state in nodes:
        assert {edge.target for edge in edges(space, state)} <= nodes


def cheapest(space: PartialSpace, start: State, in_order: bool) -> dict[State, Fraction]:
    """Elements received on the cheapest way to every node, by any order of collectives or by normal forms alone."""
    best: dict[tuple[State, int], Fraction] = {}
    queue: list[tuple[Fraction, int, State]] = [(Fraction(0), 0, start)]
    while queue:
        price, phase, state = heapq.heappop(queue)
        if best.setdefault((state, phase), price) < price:
            continue
        for edge in edges(space, state):
            if in_order and ORDER.index(edge.kind) < phase:
                continue
            after = ORDER.index(edge.kind) if in_order else 0
            onto = (edge.target, after)
            dearer = price + edge.received(space.local_size(state))
            if onto not in best or dearer < best[onto]:
                best[onto] = dearer
                heapq.heappush(queue, (dearer, after, edge.target))
    ends: dict[State, Fraction] = {}
    for (state, _), price in best.items():
        ends[state] = min(price, ends.get(state, price))
    return ends


@pytest.mark.parametrize(("shape", "devices"), [((12,), 6), ((4, 4), 8), ((2, 6), 12), ((3, 4), 8), ((6, 10), 12)])
def test_no_order_beats_the_normal_form_within_the_larger_end_tile(shape: tuple[int, ...], devices: int) -> None:
    everything = PartialSpace(shape, devices, math.prod(shape))
    nodes = list(cheapest(everything, State((1,) * len(shape), 1), in_order=False))
    nodes = [State(grid, p) for grid in {n.grid for n in nodes} for p in range(1, devices + 1)]
    nodes = [node for node in nodes if everything.is_node(node)]
    problems = 0
    for source in nodes:
        sizes = sorted({everything.local_size(node) for node in nodes if everything.local_size(node) >= 1})
        for bound in [size for size in sizes if size >= everything.local_size(source)]:
            space = PartialSpace(shape, devices, bound)
            free, ordered = (cheapest(space, source, in_order) for in_order in (False, True))
            for target in nodes:
                if max(everything.local_size(source), everything.local_size(target)) == bound:
                    assert ordered[target] == free[target], (source, target)
                    problems += 1
    assert problems == len(nodes) ** 2


def test_all_reduces_are_needed_where_tiles_do_not_divide() -> None:
    space = PartialSpace((3,), 2, 3)
    assert [edge.kind for edge in edges(space, State((1,), 2))] == ["all_reduce"]


def test_the_normal_form_of_steps() -> None:
    assert is_normal_form(
        ["dynslice", "reduce_scatter", "all_reduce", "alltoall", "allpermute", "allgather", "unreduce"]
    )
    assert is_normal_form(["dynslice", "reduce_exchange", "exchange", "allgather"])
    for wrong in (["allgather", "reduce_scatter"], ["unreduce", "dynslice"], ["alltoall", "reduce_scatter"]):
        assert not is_normal_form(wrong)
