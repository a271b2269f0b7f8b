"""Types whose tiles are of unequal size: what can be said, what it means, and what is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.errors import NotationError, PlacementError, TypeFormError, UnevenTypeError
from redistrib.lang.mesh import Mesh
from redistrib.lang.specs import from_partition_spec
from redistrib.lang.types import DimType, DistType, as_even
from redistrib.testing import RedistributionCase, uneven_redistributions
from redistrib.theory.inverse import type_of
from redistrib.theory.placement import Placement, placement_of
from redistrib.theory.splits import split_points
from tests.messages import exactly
from tests.specification.rules import AllGatherRule
from tests.uneven.cases import halved, regions


@pytest.mark.parametrize("text", ["[3~{x}10]", "[3^{x}10, 7]", "[16{x}57+7]", "[16{}12+4]", "[2~{x,y}10, 2^{z}3]"])
def test_a_type_is_printed_as_it_is_read(text):
    assert str(DistType.parse(text)) == text
    assert DistType.parse(text).uneven


@pytest.mark.parametrize(
    "text", ["[3~12]", "[3~{x}]", "[~{x}12]", "[3~{x}12+4]", "[3^{x}12+4]", "[3{x}12+]", "[12+4]", "[3~~{x}12]"]
)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(NotationError):
        DistType.parse(text)


def test_an_even_dimension_is_what_it_was():
    plain = DimType(3, ("x",), 12)
    assert plain == DimType(3, ("x",), 12, "even", 0)
    assert not DistType((plain,)).uneven
    assert DistType((plain,)).padded_shape == (12,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[6~{x}50257]", "50257 elements in 8 tiles make largest tiles of 6283, not 6; write 6283~{x}50257"),
        ("[1^{x}9]", "9 elements in 8 tiles make largest tiles of 2, not 1; write 2^{x}9"),
        ("[6283{x}50257+6]", "8 tiles of 6283 make 50264 elements, not 50263; write 6283{x}50257+7"),
        ("[6282{x}50257+1]", "8 tiles of 6282 make 50256 elements, not 50258; write 6283{x}50257+7"),
        (
            "[6283{x}50257]",
            "8 tiles of 6283 make 50264 elements, not 50257; 8 does not divide 50257: take other axes, pad the "
            "dimension to 50264, or write 6283~{x}50257 for tiles of unequal size",
        ),
    ],
)
def test_a_tile_that_the_mesh_does_not_make_is_refused(text, message):
    with pytest.raises(TypeFormError) as caught:
        DistType.parse(text).check(Mesh.of("x=8"))
    assert str(caught.value) == f"dimension 0 of {text}: {message}"


def test_values_that_no_dimension_has_are_refused():
    with pytest.raises(
        TypeFormError,
        match=exactly("a dimension is cut as 'thirds'; it is cut in one of the ways 'even', 'balanced', 'chunk'"),
    ):
        DimType(3, ("x",), 12, "thirds")
    with pytest.raises(
        TypeFormError,
        match=exactly("dimension 3~{x}11+1 is cut as 'balanced', which needs no padding; leave the padding out"),
    ):
        DimType(3, ("x",), 11, "balanced", 1)
    with pytest.raises(
        TypeFormError, match=exactly("the padding -1 of a dimension is not an integer from 0 to 2**63 - 1")
    ):
        DimType(3, ("x",), 13, padding=-1)
    with pytest.raises(
        TypeFormError,
        match=exactly("the size with padding 9223372036854775808 of a dimension is not an integer from 0 to 2**63 - 1"),
    ):
        DimType(3, ("x",), 2**63 - 1, padding=1)


def test_summands_and_prime_axes_need_equal_tiles():
    with pytest.raises(
        UnevenTypeError,
        match=exactly(
            "a reduction takes tiles of one size, and those of [3~{x}8] sum{y} are of unequal size "
            "or padded; take axes that divide the array, or an array with padding as elements like "
            "any others"
        ),
    ):
        DistType.parse("[3~{x}8] sum{y}")
    with pytest.raises(
        UnevenTypeError,
        match=exactly(
            "a typing rule takes tiles of one size, and those of [3~{x}10] are of unequal size or "
            "padded; take axes that divide the array, or an array with padding as elements like "
            "any others"
        ),
    ):
        AllGatherRule(0, ("x",)).apply(DistType.parse("[3~{x}10]"), Mesh.of("x=4"))


def test_what_divides_is_said_as_equal_tiles():
    mesh = Mesh.of("x=4")
    assert str(as_even(DistType.parse("[3~{x}12]"), mesh)) == "[3{x}12]"
    same = DistType.parse("[3{x}12]")
    assert as_even(same, mesh) is same
    assert placement_of(DistType.parse("[3^{x}12]"), mesh) == placement_of(same, mesh)
    assert placement_of(DistType.parse("[3^{x}12]"), mesh).cuts == ()


def test_a_spec_may_cut_into_unequal_tiles():
    mesh = Mesh.of("x=4,y=2")
    assert str(from_partition_spec((("y", "x"), None), (11, 5), mesh, "chunk")) == "[2^{x,y}11, 5]"
    assert str(from_partition_spec(("x", "y"), (11, 6), mesh, "balanced")) == "[3~{x}11, 3{y}6]"


# From the documentation of torch.chunk: sizes of the parts of n elements in p.
TORCH_CHUNK = {
    (11, 6): [2, 2, 2, 2, 2, 1],
    (12, 6): [2, 2, 2, 2, 2, 2],
    (13, 6): [3, 3, 3, 3, 1],
    (10, 4): [3, 3, 3, 1],
    (7, 4): [2, 2, 2, 1],
    (5, 4): [2, 2, 1],
    (4, 3): [2, 2],
    (3, 8): [1, 1, 1],
    (1, 2): [1],
}


@pytest.mark.parametrize(("size", "parts"), TORCH_CHUNK)
def test_chunks_are_those_of_torch(size, parts):
    """`torch.chunk` stops when nothing is left; here the devices that get nothing have tiles without elements."""
    points = placement_of(DistType((DimType(-(-size // parts), ("x",), size, "chunk"),)), Mesh.of({"x": parts}))
    sizes = points.boxes.size[:, 0].tolist()
    given_out = TORCH_CHUNK[size, parts]
    assert sizes == given_out + [0] * (parts - len(given_out))
    assert halved((0, size), parts, "chunk") == [
        (sum(sizes[:k]), sum(sizes[: k + 1])) for k in range(parts)
    ]  # the model that other tests use


@pytest.mark.parametrize("size", [1, 2, 5, 7, 12, 23, 50, 197])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8, 11])
def test_balanced_tiles_are_those_of_array_split(size, parts):
    placement = placement_of(DistType((DimType(-(-size // parts), ("x",), size, "balanced"),)), Mesh.of({"x": parts}))
    split = [len(part) for part in np.array_split(np.arange(size), parts)]
    assert placement.boxes.size[:, 0].tolist() == split


@given(uneven_redistributions())
def test_a_type_means_the_boxes_of_the_model(pair: RedistributionCase):
    for dist_type, mesh in ((pair.source, pair.mesh), (pair.target, pair.target_mesh)):
        placement = placement_of(dist_type, mesh, mesh.span + 1)
        for device, region in enumerate(regions(dist_type, mesh, mesh.span + 1)):
            box = placement.box(device)
            if region is None:
                assert placement.nowhere[device]
                assert box.volume == 0
            else:
                assert box.size == tuple(stop - start for start, stop in region)
                assert not box.volume or box.start == tuple(start for start, _ in region)
        assert placement.tile_size == max(placement.boxes.volumes())


@given(uneven_redistributions())
def test_the_largest_tile_is_what_the_type_says_and_nested_cuts_keep_the_major_ones(pair: RedistributionCase):
    """In all definitions the largest tile has ceil(n / p) elements; the major axis alone would cut where all cut."""
    for dim in pair.source.dims:
        sizes = [pair.mesh.axis(name).size for name in dim.axes]
        points = split_points(dim, sizes)
        if points is None or dim.padding:
            continue
        assert max(b - a for a, b in pairwise(points)) == dim.tile
        major = split_points(DimType(-(-dim.size // sizes[-1]), dim.axes[-1:], dim.size, dim.cut), sizes[-1:])
        assert major is None or set(major) <= set(points)


@given(uneven_redistributions())
def test_a_placement_has_a_type_that_means_it(pair: RedistributionCase):
    placement = placement_of(pair.source, pair.mesh)
    found = type_of(placement, pair.mesh)
    if found is not None:
        assert placement_of(found, pair.mesh, placement.devices) == placement
    if (
        all(axis.size > 1 for axis in pair.mesh.axes)
        and pair.mesh.is_whole
        and not any(dim.padding for dim in pair.source.dims)
    ):
        assert found is not None


@pytest.mark.parametrize(
    "cuts",
    [((0, 3, 5),), ((0, 3, 2, 7),), ((1, 3, 5, 7),), ((0, 3, 5, 8),), ((0, 3, 5, 7), None)],
    ids=["too few", "falling", "late", "long", "two dimensions"],
)
def test_split_points_that_cut_no_such_dimension_are_refused(cuts):
    with pytest.raises(PlacementError):
        Placement((7,), (3,), np.array([[0], [1], [2]]), cuts=cuts)
    assert Placement((7,), (3,), np.array([[0], [1], [2]]), cuts=((0, 3, 5, 7),)).tile == (3,)


@given(st.integers(1, 40), st.integers(1, 8))
def test_split_points_of_tiles_of_one_size_are_none(tile, tiles):
    points = tuple(range(0, tile * tiles + 1, tile))
    even = Placement((tile * tiles,), (tiles,), np.arange(tiles)[:, None])
    assert Placement((tile * tiles,), (tiles,), np.arange(tiles)[:, None], cuts=(points,)) == even


def test_cuts_that_no_type_says_have_none():
    """Neither small ones nor such as would need padding beyond what a type can have."""
    for points in ((0, 1, 3, 4), (0, 2**62, 2**62 + 1, 2**62 + 2)):
        placement = Placement((points[-1],), (3,), np.arange(3)[:, None], cuts=(points,))
        assert type_of(placement, Mesh.of("x=3")) is None


def test_sizes_near_the_largest_do_not_overflow():
    size = 2**63 - 1
    for cut in ("balanced", "chunk"):
        points = split_points(DimType(-(-size // 11), ("x",), size, cut), [11])
        assert points is not None
        assert points[-1] == size
        assert list(points) == sorted(points)
