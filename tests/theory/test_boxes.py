"""Boxes against counting their elements one by one; sizes differ from box to box, and some hold nothing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.theory.boxes import Box, Boxes, rows_around, summed_volumes
from redistrib.theory.placement import placement_of


def elements(box: Box) -> set[tuple[int, ...]]:
    return set(itertools.product(*(range(s, s + n) for s, n in zip(box.start, box.size, strict=True))))


def table(boxes: list[Box], rank: int) -> Boxes:
    start, size = ([getattr(box, name) for box in boxes] for name in ("start", "size"))
    return Boxes(*(np.array(column, dtype=np.int64).reshape(len(boxes), rank) for column in (start, size)))


@st.composite
def pairs_of_tables(draw: st.DrawFn) -> tuple[list[Box], list[Box], int]:
    rank, count = draw(st.integers(0, 3)), draw(st.integers(0, 5))
    numbers = st.tuples(*[st.integers(0, 4)] * rank)
    boxes = st.lists(st.builds(Box, numbers, numbers), min_size=count, max_size=count)
    return draw(boxes), draw(boxes), rank


@given(pairs_of_tables())
def test_what_boxes_share_is_what_their_elements_share(case: tuple[list[Box], list[Box], int]) -> None:
    ours, theirs, rank = case
    met = table(ours, rank).meet(table(theirs, rank))
    assert len(met.rows()) == len(ours)
    for k, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        common = elements(one) & elements(other)
        assert elements(met.row(k)) == common == elements(one.meet(other))
        assert bool(met.empty[k]) == (not common)
        assert met.volumes()[k] == len(common) == one.meet(other).volume


@given(pairs_of_tables())
def test_a_table_gives_back_its_boxes(case: tuple[list[Box], list[Box], int]) -> None:
    boxes, _, rank = case
    made = table(boxes, rank)
    assert made.rows() == boxes == [made.row(k) for k in range(len(boxes))]
    assert made[~made.empty].rows() == [box for box in boxes if box.volume]
    assert made[np.arange(len(boxes))[::-1]].rows() == boxes[::-1]


def test_a_moved_box_keeps_its_extent() -> None:
    assert Box((1, 2), (3, 4)).moved((10, -2)) == Box((11, 0), (3, 4))


def test_what_boxes_hold_beyond_64_bits_is_exact() -> None:
    one, other = Box((0,) * 6, (4096,) * 6), Box((2048, *(0,) * 5), (4096,) * 6)
    met = table([one], 6).meet(table([other], 6))
    assert met.volumes() == [2**71] == [one.meet(other).volume]


def test_a_placement_tells_the_box_of_every_device() -> None:
    placement = placement_of(DistType.of("[2{x}4, 3]"), Mesh.of("x=2,y=2"))
    boxes = [Box((0, 0), (2, 3))] * 2 + [Box((2, 0), (2, 3))] * 2
    assert placement.boxes.rows() == boxes == [placement.box(device) for device in range(4)]


@pytest.mark.parametrize("largest", [2**53 + 1, 2**61 + 1])
def test_volumes_are_summed_to_the_last_element(largest: int) -> None:
    """Integers of Python where 64 bits are too few, and never floats."""
    found = summed_volumes(np.array([[largest, 1], [1, 2], [largest, 3]]), np.array([0, 2, 0]), 3)
    assert found == [4 * largest, 0, 2] and {type(volume) for volume in found} == {int}


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=3), st.data())
def test_a_box_reads_as_edges_and_as_slices(drawn: list[tuple[int, int]], data: st.DataObject) -> None:
    edges = tuple((a, a + n) for a, n in drawn)
    shape = tuple(b + data.draw(st.integers(0, 2)) for _, b in edges)
    box, numbers, inside = Box.between(edges), np.arange(math.prod(shape)).reshape(shape), np.zeros(shape, bool)
    inside[box.slices()] = True
    assert box.edges == edges
    assert Box.at(box.slices(), shape) == box
    assert {at for at in np.ndindex(*shape) if inside[at]} == elements(box)
    part = box.cut_to([data.draw(st.integers(0, n)) for n in shape])
    assert part.volume == len(elements(part) & elements(box))
    if part.lies_in(box):
        assert np.array_equal(numbers[box.slices()][part.slices(box)], numbers[part.slices()])


def test_which_box_lies_in_which() -> None:
    box = Box((1, 2), (3, 4))
    assert box.lies_in(box) and box.lies_in(Box((0, 0), (4, 6))) and Box((2, 2), (1, 4)).lies_in(box)
    assert not box.lies_in(Box((2, 2), (3, 4))) and not box.lies_in(Box((1, 2), (3, 3)))
    assert box.with_edge(1, (0, 7)) == Box((1, 0), (3, 7))
    assert Box.at((slice(None), slice(2, 4)), (3, 6)) == Box((0, 2), (3, 2))
    assert rows_around((9, 5), [Box((4, 1), (1, 2)), Box((2, 0), (1, 5))]) == Box((2, 0), (3, 5))
