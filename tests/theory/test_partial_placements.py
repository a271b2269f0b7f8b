"""What partial types mean: which summand of its tile each device holds, whatever the summands are called."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from redistrib.errors import PlacementError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.testing import all_partial_types
from redistrib.theory.inverse import type_of
from redistrib.theory.placement import Placement, placement_of
from tests.messages import exactly

MESHES = [Mesh.of("x=4"), Mesh.of("x=2,y=2"), Mesh.of("x=2,y=3")]
SHAPES = [(), (12,), (12, 12)]


def place(text: str, mesh: str) -> Placement:
    return placement_of(DistType.of(text), Mesh.of(mesh))


def same_summands(placement: Placement) -> set[frozenset[int]]:
    """The sets of devices that hold one summand of one tile: all that a placement says of summands."""
    holders: dict[object, set[int]] = {}
    for device, (index, label) in enumerate(zip(placement.index.tolist(), placement.label.tolist(), strict=True)):
        holders.setdefault((tuple(index), label), set()).add(device)
    return {frozenset(devices) for devices in holders.values()}


def means_the_same(a: Placement, b: Placement) -> bool:
    boxes = a.start.tolist() == b.start.tolist() and a.tile == b.tile
    kinds = (a.summands, a.reduction) == (b.summands, b.reduction)
    return boxes and kinds and same_summands(a) == same_summands(b)


def test_summands_are_numbered_by_the_coordinates_along_the_partial_axes() -> None:
    mesh = Mesh.of("x=2,y=3")
    assert place("[4{x}8] sum{y}", "x=2,y=3").label.tolist() == mesh.coordinates[:, 1].tolist()
    both = place("[8] sum{x,y}", "x=2,y=3")
    assert both.label.tolist() == [x + 2 * y for x, y in mesh.coordinates.tolist()]
    assert (both.summands, both.reduction) == (6, "sum")


def test_a_whole_placement_is_what_it_was() -> None:
    whole = place("[4{x}8]", "x=2,y=3")
    assert (whole.summand, whole.summands, whole.reduction) == (None, 1, None)
    assert Placement(whole.shape, whole.grid, whole.index, np.zeros(6, dtype=np.int64), 1) == whole
    assert hash(whole) == hash((whole.shape, whole.grid, whole.index.tobytes()))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_types_are_equal_iff_they_mean_the_same(mesh: Mesh, shape: tuple[int, ...]) -> None:
    shuffled = Mesh(mesh.axes, tuple(np.random.default_rng(0).permutation(mesh.size).tolist()))
    placements = [
        placement_of(dist_type, over)
        for over in (mesh, shuffled)
        for kind in ("sum", "max")
        for dist_type in all_partial_types(over, shape, kind)  # type: ignore[arg-type]
    ]
    same = 0
    for a, b in itertools.product(placements, repeat=2):
        assert (a == b) == means_the_same(a, b)
        if a == b:
            assert hash(a) == hash(b)
            same += a is not b
    assert same  # all of [12] sum{x,y} in any device order, for one


def test_summands_may_be_called_otherwise_in_every_tile() -> None:
    a = place("[4{x}8] sum{y}", "x=2,y=2")
    swapped = Placement(a.shape, a.grid, a.index, [0, 1, 1, 0], 2, "sum")  # type: ignore[arg-type]
    assert a == swapped and hash(a) == hash(swapped)
    merged = Placement(a.shape, a.grid, a.index, [0, 1, 1, 1], 2, "sum")  # type: ignore[arg-type]
    assert a != merged


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_a_type_is_found_for_what_it_means(mesh: Mesh, shape: tuple[int, ...]) -> None:
    for over in (mesh, Mesh(mesh.axes, tuple(range(mesh.size))[::-1])):
        for dist_type in all_partial_types(over, shape):
            assert type_of(placement_of(dist_type, over), over) == dist_type


def test_there_is_no_type_for_what_no_type_means() -> None:
    a = place("[4{x}8] sum{y}", "x=2,y=2")
    merged = Placement(a.shape, a.grid, a.index, [0, 1, 1, 1], 2, "sum")  # type: ignore[arg-type]
    assert type_of(merged, Mesh.of("x=2,y=2")) is None
    renamed = Placement(a.shape, a.grid, a.index, [0, 1, 1, 0], 2, "sum")  # type: ignore[arg-type]
    assert str(type_of(renamed, Mesh.of("x=2,y=2"))) == "[4{x}8] sum{y}"


def test_summands_are_a_dimension_of_their_own() -> None:
    stack = place("[4{x}16, 8] sum{y}", "x=4,y=2").stacked()
    assert stack == place("[1{y}2, 4{x}16, 8]", "x=4,y=2")
    assert place("[] max{x,y}", "x=2,y=3").stacked() == place("[1{x,y}6]", "x=2,y=3")
    assert place("[4{x}16]", "x=4").stacked() == place("[1, 4{x}16]", "x=4")


NAMES = "a placement of 2 devices names one partial sum for each, of at most as many"
KINDS = "not by one of ('sum', 'max', 'min')"


@pytest.mark.parametrize(
    ("summand", "count", "kind", "why"),
    [
        ([0, 2], 2, "sum", "the number of a partial sum lies outside 0 to 1"),
        ([0, -1], 2, "sum", "the number of a partial sum lies outside 0 to 1"),
        ([0, 1, 0], 2, "sum", f"{NAMES}, got 2 partial sums and numbers of shape (3,)"),
        ([0, 1], 3, "sum", f"{NAMES}, got 3 partial sums and numbers of shape (2,)"),
        ([0, 1], 2, None, f"2 partial sums are reduced by None, {KINDS}"),
        ([0, 1], 2, "prod", f"2 partial sums are reduced by 'prod', {KINDS}"),
        ([0, 1], 2**70, "sum", f"{NAMES}, got {2**70} partial sums and numbers of shape (2,)"),
        (None, 2, None, f"2 partial sums are reduced by None, {KINDS}"),
        (None, 0, None, f"{NAMES}, got 0 partial sums and numbers of shape (2,)"),
        (None, 1, "prod", f"1 partial sums are reduced by 'prod', {KINDS}"),
    ],
)
def test_summands_that_cannot_be_are_refused(summand: list[int] | None, count: int, kind: str | None, why: str) -> None:
    with pytest.raises(PlacementError, match=exactly(why)):
        Placement((4,), (1,), np.zeros((2, 1)), summand, count, kind)  # type: ignore[arg-type]
