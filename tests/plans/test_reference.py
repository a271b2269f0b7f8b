"""The reference interpreter: real tiles, read from the senders alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from redistrib.errors import TilesError
from redistrib.lang.mesh import Mesh
from redistrib.plans.reference import assemble, run, run_step, scatter, tile_of
from redistrib.plans.steps import AllGather, AllToAll, DynSlice
from redistrib.theory.placement import Placement
from tests.plans.hand import GOOD, array_for, place


def test_summands_of_short_floats_are_added_in_longer_ones() -> None:
    """In float16 each 1 beside 2,048 is lost, and in bfloat16 beside 256; maxima are those of the type itself."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for dtype, large in (("float16", 2048), (bfloat16, 256)):
        tiles = [np.full(2, value, dtype) for value in (large, 1, 1)]
        assert assemble(tiles, place("[2] sum{x}", "x=3")).tolist() == [large + 2] * 2
        assert assemble(tiles, place("[2] max{x}", "x=3")).tolist() == [large] * 2


@pytest.mark.parametrize("name", GOOD)
def test_every_device_ends_with_its_target_tile(name: str) -> None:
    made = GOOD[name]()
    array = array_for(made)
    result = run(made, scatter(array, made.before))
    for tile, expected in zip(result, scatter(array, made.after), strict=True):
        np.testing.assert_array_equal(tile, expected)


@pytest.mark.parametrize("name", GOOD)
def test_the_tiles_given_stay_as_they_were(name: str) -> None:
    made = GOOD[name]()
    tiles = scatter(array_for(made), made.before)
    copies = [tile.copy() for tile in tiles]
    for tile in run(made, tiles):
        tile[...] = -1
    for tile, copy in zip(tiles, copies, strict=True):
        np.testing.assert_array_equal(tile, copy)


@pytest.mark.parametrize("name", GOOD)
def test_received_counts_what_comes_from_other_devices(name: str) -> None:
    """Every element is replaced by the number of the device that holds it, so what arrives can be counted."""
    made = GOOD[name]()
    total = np.zeros(made.devices, dtype=np.int64)
    for step in made.steps:
        labels = [np.full(step.before.tile, d) for d in range(made.devices)]
        arrived = [int((tile != d).sum()) for d, tile in enumerate(run_step(step, labels))]
        assert arrived == step.received()
        assert sum(arrived) == step.received_total()
        total += arrived
    assert tuple(total) == made.received


def test_a_gather_lays_members_out_in_their_order() -> None:
    mesh = "x=2,y=2"
    step = AllGather(place("[1{x}2, 1{y}2]", mesh), place("[2, 2]", mesh), [[3, 1, 0, 2]])
    for tile in run_step(step, [np.full((1, 1), d) for d in range(4)]):
        np.testing.assert_array_equal(tile, [[3, 1], [0, 2]])


def test_an_all_to_all_sends_the_part_that_the_receiver_ends_with() -> None:
    before, after = place("[1{x}2, 4]", "x=2"), place("[2, 2{x}4]", Mesh(Mesh.of("x=2").axes, (1, 0)))
    tiles = run_step(AllToAll(before, after, [[0, 1]]), [np.arange(4).reshape(1, 4), np.arange(4, 8).reshape(1, 4)])
    np.testing.assert_array_equal(tiles[0], [[2, 3], [6, 7]])
    np.testing.assert_array_equal(tiles[1], [[0, 1], [4, 5]])


@pytest.mark.parametrize("dtype", ["bool", "complex64", "int8", "float16", "datetime64[s]", "V3"])
def test_any_element_type_moves_bit_for_bit(dtype: str) -> None:
    made = GOOD["three phases"]()
    raw = np.random.default_rng(7).integers(0, 2, size=(8, 8, np.dtype(dtype).itemsize), dtype=np.uint8)
    array = raw.view(dtype)[..., 0]
    assert assemble(run(made, scatter(array, made.before)), made.after).tobytes() == array.tobytes()


def test_not_a_number_and_signed_zero_move_bit_for_bit() -> None:
    made = GOOD["three phases"]()
    array = np.full((8, 8), -0.0)
    array[::2] = np.array([0x7FF8000000000123], dtype=np.uint64).view(np.float64)
    result = assemble(run(made, scatter(array, made.before)), made.after)
    assert result.tobytes() == array.tobytes()


def test_tile_of_takes_notation_and_other_device_orders() -> None:
    mesh = Mesh(Mesh.of("x=2,y=2").axes, (3, 1, 2, 0))
    array = np.arange(4)
    assert [tile_of(array, "[1{y,x}4]", mesh, d).tolist() for d in range(4)] == [[3], [1], [2], [0]]
    assert tile_of(array.reshape(2, 2), "[2, 1{x}2]", {"x": 2}, 1).tolist() == [[1], [3]]
    assert tile_of(5, "[]", "x=2", 1).shape == ()


def test_assemble_inverts_scatter() -> None:
    placement = place("[1{y,x}6, 4]", "x=2,y=3")
    array = np.arange(24).reshape(6, 4)
    np.testing.assert_array_equal(assemble(scatter(array, placement), placement), array)


def _tampered(placement: Placement) -> list[np.ndarray]:
    tiles = scatter(np.arange(4.0), placement)
    tiles[3][1] = -tiles[3][1]
    return tiles


def _half_placed() -> Placement:
    return Placement((4,), (2,), np.zeros((2, 1), dtype=np.int64))


SLICE = GOOD["slice"]()

REFUSED = {
    "too few tiles": (
        lambda: run(SLICE, [np.zeros((8, 8))] * 7),
        "7 tiles were given, the plan's source has 8 devices",
    ),
    "a tile of another shape": (
        lambda: run(SLICE, [np.zeros((8, 8))] * 5 + [np.zeros((4, 8))] + [np.zeros((8, 8))] * 2),
        "device 5 holds a tile of shape (4, 8), the plan's source gives it (8, 8)",
    ),
    "another array": (
        lambda: scatter(np.zeros((8, 4)), SLICE.before),
        "an array of shape (8, 4) cannot be placed as one of shape (8, 8)",
    ),
    "an array of another type": (
        lambda: tile_of(np.zeros(8), "[2{x}4]", "x=2", 0),
        "an array of shape (8,) is not of type [2{x}4], whose shape is (4,)",
    ),
    "no such device": (
        lambda: tile_of(np.zeros(4), "[2{x}4]", "x=2", 2),
        "there is no device 2 in mesh {x:2}; its devices are 0 to 1",
    ),
    "replicas that disagree": (
        lambda: assemble(_tampered(place("[2{x}4]", "x=2,y=2")), place("[2{x}4]", "x=2,y=2")),
        "devices 2 and 3 hold the same tile (1,) with different contents",
    ),
    "a tile that nobody holds": (
        lambda: assemble([np.zeros(2)] * 2, _half_placed()),
        "no device holds tile (1,) of the grid (2,)",
    ),
    "a slice outside the tile": (
        lambda: run_step(DynSlice(place("[4{x}8]", "x=2,y=2"), place("[2{x,y}8]", "x=2,y=2")), [np.zeros(4)] * 4),
        "a box of shape (2,) at (4,) is not inside a tile of shape (4,)",
    ),
    "a group of the wrong size": (
        lambda: run_step(AllGather(place("[2{x}8]", "x=4"), place("[8]", "x=4"), [[0, 1], [2, 3]]), [np.zeros(2)] * 4),
        "2 parts do not make 4 of them",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(TilesError) as caught:
        call()
    assert str(caught.value) == message


def test_a_wrong_order_of_members_gives_wrong_tiles() -> None:
    """The interpreter looks at nothing but the groups, so it can disagree with the target."""
    made = GOOD["gather two dimensions"]()
    step = made.steps[0]
    broken = replace(made, steps=(AllGather(step.before, step.after, [[0, 3, 1, 4, 2, 5]]),))
    array = array_for(made)
    assert not np.array_equal(run(broken, scatter(array, made.before))[0], array)
