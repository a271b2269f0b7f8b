"""Correct plans are accepted, and every kind of corruption is refused by an error of its own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from redistrib import errors, synthesize
from redistrib.lang.mesh import Mesh
from redistrib.plans import verify_cover
from redistrib.plans.steps import AllGather, AllToAll, DynSlice, Exchange
from redistrib.plans.verify import verify
from tests.plans.corrupt import Corruption
from tests.plans.corrupt_collectives import COLLECTIVE_CORRUPTIONS
from tests.plans.corrupt_devices import DEVICE_CORRUPTIONS
from tests.plans.corrupt_exchanges import EXCHANGE_CORRUPTIONS
from tests.plans.corrupt_plans import PLAN_CORRUPTIONS
from tests.plans.corrupt_reductions import REDUCTION_CORRUPTIONS
from tests.plans.corrupt_uneven import UNEVEN_CORRUPTIONS
from tests.plans.hand import GOOD, place, plan, pulled, shares

CORRUPTIONS = [
    *PLAN_CORRUPTIONS,
    *COLLECTIVE_CORRUPTIONS,
    *EXCHANGE_CORRUPTIONS,
    *REDUCTION_CORRUPTIONS,
    *DEVICE_CORRUPTIONS,
    *UNEVEN_CORRUPTIONS,
]


@pytest.mark.parametrize("name", GOOD)
def test_a_correct_plan_is_returned(name: str) -> None:
    made = GOOD[name]()
    assert verify(made) is made


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda corruption: corruption.name)
def test_a_corruption_is_refused(corruption: Corruption) -> None:
    broken = corruption.make()
    with pytest.raises(errors.VerificationError) as caught:
        verify(broken, corruption.bound)
    assert caught.value.rule == corruption.rule
    assert (caught.value.step, caught.value.device) == (corruption.step, corruption.device)
    assert str(caught.value) == corruption.message


def test_every_rule_is_broken() -> None:
    assert {corruption.rule for corruption in CORRUPTIONS} == set(errors.VERIFICATION_RULES)


def test_errors_carry_the_offending_values() -> None:
    with pytest.raises(errors.VerificationError) as caught:
        verify(next(c for c in EXCHANGE_CORRUPTIONS if c.name == "the same share from two holders").make())
    assert caught.value.rule == "overlapping shares"
    assert caught.value.values == {"senders": (0, 1), "overlap": "[0:2, 0:3]"}
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.rule, again.step, again.device, again.values) == (
        str(caught.value),
        "overlapping shares",
        1,
        2,
        caught.value.values,
    )


def test_a_bound_may_be_raised() -> None:
    cut, whole = place("[2{x}8, 4]", "x=4"), place("[8, 4]", "x=4")
    bounce = plan("[2{x}8, 4]", "[2{x}8, 4]", "x=4", AllGather(cut, whole, [[0, 1, 2, 3]]), DynSlice(whole, cut))
    with pytest.raises(errors.TileAboveBoundError):
        verify(bounce, 31)
    assert verify(bounce, 32) is bounce


def test_what_the_plan_says_of_itself_is_not_trusted() -> None:
    """Cached placements of a plan are not what it is held against."""
    made = GOOD["permute"]()
    made.__dict__["before"] = made.after
    assert verify(made) is made
    liar = plan("[4{x}8, 8{y}16]", "[4{y}8, 8{x}16]", "x=2,y=2")
    liar.__dict__["after"] = liar.before
    with pytest.raises(errors.VerificationError) as caught:
        verify(liar)
    assert caught.value.rule == "wrong end"


def test_volumes_beyond_64_bits_are_exact() -> None:
    """Rank 6, 4,096 each: 2^72 elements, and 2^71 of them received."""
    mesh, source, target = "x=2", "[2048{x}4096" + ", 4096" * 5 + "]", "[4096" + ", 4096" * 5 + "]"
    before, after = place(source, mesh), place(target, mesh)
    for step in (AllGather(before, after, [[0, 1]]), pulled(before, after)):
        made = verify(plan(source, target, mesh, step))
        assert made.received == made.lower_bound == (2**71, 2**71)
        assert made.height == 2**72
        with pytest.raises(errors.TileAboveBoundError):
            verify(made, 2**72 - 1)


def test_boxes_beyond_64_bits_that_overlap_are_found() -> None:
    """Volumes and corner numbers modulo 2^64 would agree; the boxes do not."""
    mesh, source, target = "x=2", "[2048{x}4096" + ", 4096" * 5 + "]", "[4096" + ", 4096" * 5 + "]"
    before, after = place(source, mesh), place(target, mesh)
    rest = [4096] * 4
    low, high = [0, 0, *[0] * 4], [2048, 0, *[0] * 4]
    halves = [
        (1, 0, 0, high, [2048, 2048, *rest]),
        (0, 1, 0, low, [2048, 2048, *rest]),
        (1, 0, 1, [2048, 2048, *[0] * 4], [2048, 2048, *rest]),
        (0, 1, 1, [0, 2048, *[0] * 4], [2048, 2048, *rest]),
    ]
    assert verify(plan(source, target, mesh, Exchange(before, after, shares(*halves))))
    halves[2] = (1, 0, 1, high, [2048, 2048, *rest])
    with pytest.raises(errors.VerificationError) as caught:
        verify(plan(source, target, mesh, Exchange(before, after, shares(*halves))))
    assert caught.value.rule == "overlapping shares"


def test_a_grid_with_more_tiles_than_64_bits_number_is_checked() -> None:
    """One device with a 2^72-th of the array: no type means that, but a slice may pass through it."""
    mesh = Mesh.of("x=2")
    source = "[4096" + ", 4096" * 5 + "]"
    whole = place(source, mesh)
    fine = type(whole)(whole.shape, (4096,) * 6, np.zeros((2, 6), dtype=np.int64))
    broken = plan(
        source, source, mesh, DynSlice(whole, fine), Exchange(fine, whole, GOOD["exchange nothing"]().steps[0].shares)
    )
    with pytest.raises(errors.VerificationError) as caught:
        verify(broken)
    assert caught.value.rule == "uncovered tile"
    assert caught.value.values == {"filled": 1, "needed": 2**72}


def test_many_devices_are_verified_without_a_loop_over_them() -> None:
    """4,096 devices, rank 6, slice, all-to-all, gather and an exchange; a loop over devices and pairs takes minutes."""
    names = [f"a{k}" for k in range(12)]
    mesh = Mesh.of(dict.fromkeys(names, 2))
    position = np.arange(4096).reshape((2,) * 12)
    source = "[16{a0,a1}64, 16{a2,a3}64, 16{a4,a5}64, 16{a6,a7}64, 64, 64]"
    sliced = "[8{a8,a0,a1}64, 16{a2,a3}64, 16{a4,a5}64, 16{a6,a7}64, 32{a9}64, 64]"
    moved = "[16{a0,a1}64, 16{a2,a3}64, 16{a4,a5}64, 16{a6,a7}64, 16{a8,a9}64, 64]"
    pairs = np.moveaxis(position, 8, -1).reshape(-1, 2)
    fours = np.moveaxis(position, (9, 8), (-2, -1)).reshape(-1, 4)
    at = [place(text, mesh) for text in (source, sliced, moved)]
    made = plan(
        source, source, mesh, DynSlice(at[0], at[1]), AllToAll(at[1], at[2], pairs), AllGather(at[2], at[0], fours)
    )
    verify(made)
    assert set(made.received) == {at[1].tile_size // 2 + 3 * at[2].tile_size}


def test_whole_cells_are_known_without_looking_for_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiles of the senders are the cells of the new tile, so that it has no holes takes no sweep."""

    def sweep(*_: object) -> None:
        raise AssertionError("the tiles are looked through for holes")

    made = synthesize("[4{x,y}16, 8]", "[8{x}16, 4{y}8]", "x=2,y=2", machine="exact")
    assert [type(step) for step in made.steps] == [Exchange]
    monkeypatch.setattr(verify_cover, "first_not_filled_once", sweep)
    assert verify(made) is made
