"""What types mean, against the definition in the paper read literally, and counts against counting elements."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib.errors import PlacementError, TypeFormError, UnknownAxisError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.testing import RedistributionCase, meshes, redistributions, types
from redistrib.theory.boxes import summed_volumes, volumes
from redistrib.theory.inverse import type_of
from redistrib.theory.placement import (
    Placement,
    lower_bound,
    number_of,
    placement_of,
)
from tests.messages import exactly


def base_offset(dist_type: DistType, mesh: Mesh, coordinate: dict[str, int]) -> tuple[int, ...]:
    """Figure 7a: in each dimension, the coordinates on its axes weighted by the tiles that lie before."""
    offset = []
    for dim in dist_type.dims:
        at, stride = 0, dim.tile
        for name in dim.axes:  # minor to major
            at += coordinate[name] * stride
            stride *= mesh.axis(name).size
        offset.append(at)
    return tuple(offset)


def elements(placement: Placement, device: int) -> set[tuple[int, ...]]:
    """Every element that a device holds."""
    return set(
        itertools.product(
            *(range(i * n, (i + 1) * n) for i, n in zip(placement.index[device].tolist(), placement.tile, strict=True))
        )
    )


@st.composite
def typed_meshes(draw: st.DrawFn) -> tuple[DistType, Mesh]:
    mesh = draw(meshes(shuffled=True))
    return draw(types(mesh)), mesh


@given(typed_meshes())
def test_a_placement_is_the_base_offset_map(typed: tuple[DistType, Mesh]) -> None:
    dist_type, mesh = typed
    placement = placement_of(dist_type, mesh)
    positions = itertools.product(*(range(axis.size) for axis in mesh.axes))
    for device, position in zip(mesh.devices, positions, strict=True):
        coordinate = dict(zip(mesh.names, position, strict=True))
        assert tuple(placement.start[device].tolist()) == base_offset(dist_type, mesh, coordinate)
    assert placement.tile == dist_type.local_shape
    assert placement.shape == dist_type.global_shape


@given(typed_meshes())
def test_the_tiles_of_a_type_cover_the_array_evenly(typed: tuple[DistType, Mesh]) -> None:
    placement = placement_of(*typed)
    assert placement.is_uniform()
    held = [tuple(row) for row in placement.index.tolist()]
    assert set(held) == set(np.ndindex(placement.grid))
    assert len(held) == placement.devices


@given(typed_meshes())
def test_a_type_is_found_again_from_its_placement(typed: tuple[DistType, Mesh]) -> None:
    dist_type, mesh = typed
    placement = placement_of(dist_type, mesh)
    found = type_of(placement, mesh)
    assert found is not None
    assert placement_of(found, mesh) == placement


@given(redistributions())
def test_no_type_is_found_where_none_is(case: RedistributionCase) -> None:
    """On another mesh, a type is found only if it means the placement."""
    found = type_of(case.after, case.mesh)
    assert found is None or placement_of(found, case.mesh) == case.after


@pytest.mark.parametrize(
    ("grid", "index"),
    [
        ((2,), [[1], [0], [1], [0]]),  # device 0 must hold tile 0
        ((2,), [[0], [0], [0], [1]]),  # no axis tells device 3 apart
        ((2,), [[0], [1], [1], [0]]),
        ((4,), [[0], [1], [3], [2]]),
        ((4,), [[0], [2], [2], [0]]),
        ((2, 2), [[0, 0], [1, 1], [0, 0], [1, 1]]),  # one axis cannot cut two dimensions
        ((4,), [[0], [1], [0], [1]]),  # tiles 2 and 3 are missing
    ],
)
def test_a_placement_that_no_type_means(grid: tuple[int, ...], index: list[list[int]]) -> None:
    placement = Placement((4,) * len(grid), grid, np.array(index))
    assert type_of(placement, Mesh.of("x=2,y=2")) is None


def test_no_type_on_a_mesh_of_another_size() -> None:
    placement = placement_of(DistType.of("[4]"), Mesh.of("x=2"))
    assert type_of(placement, Mesh.of("x=2,y=2")) is None
    assert type_of(placement, Mesh.of("x=1")) is None


@given(redistributions(max_size=500))
def test_overlap_and_lower_bound_count_elements(case: RedistributionCase) -> None:
    common = [len(elements(case.before, d) & elements(case.after, d)) for d in range(case.mesh.size)]
    lacking = [len(elements(case.after, d) - elements(case.before, d)) for d in range(case.mesh.size)]
    overlap = case.before.boxes.meet(case.after.boxes).volumes()
    assert overlap == common
    assert lower_bound(case.before, case.after) == lacking
    assert all(type(count) is int for count in (*overlap, *lower_bound(case.before, case.after)))


def test_counts_beyond_64_bits_are_exact() -> None:
    mesh = Mesh.of("x=2")
    rest = ", 4096" * 5
    whole, half = (placement_of(DistType.of(text + rest + "]"), mesh) for text in ("[4096", "[2048{x}4096"))
    assert whole.tile_size == 2**72
    assert whole.boxes.meet(half.boxes).volumes() == [2**71, 2**71]
    assert lower_bound(half, whole) == [2**71, 2**71]
    assert lower_bound(whole, half) == [0, 0]


def test_sums_beyond_64_bits_are_exact() -> None:
    """Each box fits 64 bits, all of one owner do not."""
    extent = np.full((4, 2), 2**31, dtype=np.int64)
    assert volumes(extent) == [2**62] * 4
    assert summed_volumes(extent, np.array([0, 2, 2, 2]), 3) == [2**62, 0, 3 * 2**62]
    assert summed_volumes(np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64), 2) == [0, 0]


@given(redistributions())
def test_volumes_are_products(case: RedistributionCase) -> None:
    extent = np.abs(case.before.start - case.after.start)
    assert volumes(extent) == [math.prod(row) for row in extent.tolist()]


def test_the_example_of_the_design() -> None:
    """Minor to major: x advances first in 1{x,y}."""
    mesh = Mesh.of("x=2,y=3")
    assert placement_of(DistType.of("[1{x,y}6]"), mesh).start[:, 0].tolist() == [0, 2, 4, 1, 3, 5]
    assert placement_of(DistType.of("[1{y,x}6]"), mesh).start[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_device_order_moves_rows_to_device_numbers() -> None:
    mesh = Mesh(Mesh.of("x=3").axes, (2, 0, 1))
    assert placement_of(DistType.of("[1{x}3]"), mesh).start[:, 0].tolist() == [1, 2, 0]


def test_a_type_that_is_not_well_formed_has_no_meaning() -> None:
    with pytest.raises(UnknownAxisError):
        placement_of(DistType.of("[2{z}4]"), Mesh.of("x=2"))
    with pytest.raises(
        TypeFormError,
        match=exactly(
            "dimension 0 of [2{x}5]: 2 tiles of 2 make 4 elements, not 5; 2 does not divide 5: "
            "take other axes, pad the dimension to 6, or write 3~{x}5 for tiles of unequal size"
        ),
    ):
        placement_of(DistType.of("[2{x}5]"), Mesh.of("x=2"))


# ------------------------------------------------------------------------------------------ placements


def test_placements_are_equal_iff_every_device_holds_the_same() -> None:
    mesh = Mesh.of("x=2,y=2")
    one, same = (placement_of(DistType.of("[1{x,y}4, 2]"), mesh) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    for other in ("[1{y,x}4, 2]", "[2{x}4, 2]", "[1{x,y}4, 1, 2]"):
        assert one != placement_of(DistType.of(other), mesh)
    assert one != "a placement"


def test_two_types_that_mean_one_placement() -> None:
    """An axis of size 1 and a split axis change the type, not its meaning."""
    first = placement_of(DistType.of("[1{x}4]"), Mesh.of("x=4"))
    second = placement_of(DistType.of("[1{b,o,a}4]"), Mesh.of("a=2,o=1,b=2"))
    assert first == second


def test_placements_cannot_be_changed() -> None:
    table = np.array([[0], [1]])
    placement = Placement((4,), (2,), table)
    table[0] = 1
    assert placement.index.tolist() == [[0], [1]]
    for array in (placement.index, placement.start):
        with pytest.raises(ValueError, match=exactly("assignment destination is read-only")):
            array[0] = 1


def test_coarse_names_the_cell_that_holds_the_tile() -> None:
    placement = placement_of(DistType.of("[1{x}6, 2]"), Mesh.of("x=6"))
    assert placement.coarse((2, 1))[:, 0].tolist() == [0, 0, 0, 1, 1, 1]


def test_tiles_are_numbered_row_by_row() -> None:
    placement = placement_of(DistType.of("[1{x}2, 1{y}3]"), Mesh.of("x=2,y=3"))
    assert placement.number.tolist() == [0, 1, 2, 3, 4, 5]
    assert number_of(np.array([[1, 0, 2]]), (2, 3, 4)).tolist() == [14]


@pytest.mark.parametrize("index", [[[0], [0], [0], [1]], [[0], [1], [0]], [[0], [0], [0], [0]]])
def test_a_placement_with_unequal_replicas_is_not_uniform(index: list[list[int]]) -> None:
    assert not Placement((4,), (2,), np.array(index)).is_uniform()


@pytest.mark.parametrize(
    ("shape", "grid", "index", "message"),
    [
        ((4,), (3,), [[0]], "3 tiles do not divide a dimension of 4 elements"),
        ((4,), (0,), [[0]], "0 tiles do not divide a dimension of 4 elements"),
        ((4,), (2,), [[2]], "a tile index lies outside the grid (2,)"),
        ((4,), (2,), [[-2]],
         "a tile index lies outside the grid (2,); a device that holds nothing has -1 in every dimension"),
        ((4, 4), (2, 1), [[-1, 0]],
         "a tile index lies outside the grid (2, 1); a device that holds nothing has -1 in every dimension"),
        ((4, 4), (2, 1), [[0, 1]], "a tile index lies outside the grid (2, 1)"),
        (
            (4, 4), (2, 2), [[0]],
            "a placement of rank 2 needs one grid entry and one index column per dimension, "
            "got grid (2, 2) and index of shape (1, 1)",
        ),
        (
            (4,), (2, 2), [[0]],
            "a placement of rank 1 needs one grid entry and one index column per dimension, "
            "got grid (2, 2) and index of shape (1, 1)",
        ),
        (
            (4,), (2,), [0],
            "a placement of rank 1 needs one grid entry and one index column per dimension, "
            "got grid (2,) and index of shape (1,)",
        ),
    ],
)  # fmt: skip
def test_what_is_no_placement_is_refused(
    shape: tuple[int, ...], grid: tuple[int, ...], index: list[list[int]], message: str
) -> None:
    with pytest.raises(PlacementError) as caught:
        Placement(shape, grid, np.array(index))
    assert str(caught.value) == message


def test_tiles_beyond_64_bits_are_not_numbered_wrongly() -> None:
    placement = Placement((4096,) * 6, (4096,) * 6, np.full((1, 6), 4095))
    assert not placement.is_uniform()
    with pytest.raises(PlacementError) as caught:
        placement.number  # noqa: B018
    assert str(caught.value) == (f"the {2**72} tiles of the grid {(4096,) * 6} cannot be numbered in 64 bits")


def test_volumes_are_summed_exactly() -> None:
    assert list(map(repr, summed_volumes(np.array([[2, 3], [1, 1]]), np.array([1, 1]), 3))) == ["0", "7", "0"]
    large = np.array([[2**31, 2**22 + 1], [1, 1]])  # beyond what a float holds
    assert summed_volumes(large, np.array([0, 0]), 1) == [2**53 + 2**31 + 1]
    beyond = np.array([[2**40, 2**40], [1, 1]])  # beyond 64 bits
    assert summed_volumes(beyond, np.array([0, 0]), 1) == [2**80 + 1]
