"""Devices that hold nothing: the figures of plans, their JSON form, the table, and the reference."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib import errors
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans import reference
from redistrib.plans._json import sealed
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllToAll
from redistrib.plans.verify import verify
from redistrib.testing import RedistributionCase, plans, redistributions
from redistrib.theory.crossing import least_crossing, least_sent, sides_of
from redistrib.theory.inverse import type_of
from redistrib.theory.placement import Placement, placement_of
from tests.messages import exactly
from tests.plans.corrupt import Corruption
from tests.plans.corrupt_devices import HERE, THERE, WAITING_IN_TEXTS, good, on


def test_the_figures_of_a_plan_between_two_sets() -> None:
    made = verify(good())
    assert (made.devices, made.height, made.collectives) == (4, 8, 2)
    assert (made.received, made.lower_bound) == ((0, 0, 8, 8), (0, 0, 8, 8))
    assert (made.sent, made.send_bound) == ((4, 4, 4, 4), (4, 4, 0, 0))
    assert (made.crossing, made.crossing_bound) == (8, 8)
    assert made.crossing_between([0, 1, 0, 1]) == (8, 8)  # by the gather alone
    with pytest.raises(errors.PlanFormError):
        made.crossing_between([0, 1])


def test_the_reference_holds_nothing_where_nothing_is() -> None:
    whole = np.arange(8).reshape(4, 2)
    tiles = reference.run(good(), reference.scatter(whole, good().before))
    assert [tile.tolist() for tile in tiles[2:]] == [whole.tolist()] * 2
    assert [tile.shape for tile in tiles[:2]] == [(0, 0)] * 2
    assert np.array_equal(reference.assemble(tiles, good().after), whole)
    with pytest.raises(errors.TilesError) as caught:
        reference.run(good(), [whole[:2], whole[2:], whole, whole])
    assert str(caught.value) == "device 2 holds a tile of shape (4, 2), the plan's source gives it (0, 0)"
    with pytest.raises(errors.TilesError, match=exactly("there is no device 1 in mesh {x:2}; its devices are [2, 3]")):
        reference.tile_of(whole, "[4, 2]", THERE, 1)


def test_version_2_says_who_holds_nothing() -> None:
    text = good().to_json()
    form = json.loads(text)
    assert (form["version"], form["target"]["mesh"]["devices"]) == (2, [2, 3])
    assert form["placements"][0]["index"] == [[0, 0], [1, 0], [-1, -1], [-1, -1]]
    assert form["traffic"] == {"received": [0, 0, 8, 8], "sent": [4, 4, 4, 4], "crossing": 8}
    assert Plan.from_json(text) == good()


def _edited(change: dict[str, object], without: tuple[str, ...] = ()) -> str:
    form = json.loads(good().to_json()) | change
    return sealed({name: value for name, value in form.items() if name not in ("digest", *without)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_edited({"traffic": {"received": [0] * 4, "sent": [0] * 4, "crossing": 0}}),
         "traffic is not what the steps move; leave it to to_json"),
        (_edited({"traffic": None}), "traffic is not what the steps move; leave it to to_json"),
        (_edited({}, without=("traffic",)),
         "traffic stands in a plan iff some device holds nothing at one of its ends"),
        (_edited({"version": 1}, without=("traffic", "accumulate", "order")),
         "placements[0].index has a negative number; that a device holds nothing needs version 2"),
        (_edited({"version": 1}), "the plan has the field 'accumulate', which version 1 does not know"),
    ],
)  # fmt: skip
def test_a_text_that_tells_otherwise_is_refused(text: str, message: str) -> None:
    with pytest.raises(errors.PlanJsonError) as caught:
        Plan.from_json(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("corruption", WAITING_IN_TEXTS, ids=lambda corruption: corruption.name)
def test_a_text_with_summands_beside_devices_that_hold_nothing_is_refused(corruption: Corruption) -> None:
    text = corruption.make().to_json()
    with pytest.raises(errors.VerificationError) as caught:
        Plan.from_json(text)
    assert str(caught.value) == corruption.message


def test_a_large_device_number_makes_no_large_table() -> None:
    side = {"type": f"[{', '.join('1' * 64)}]", "mesh": {"axes": [["x", 2]], "devices": [0, 2**20 - 1]}}
    text = _edited({"source": side, "target": side, "placements": [], "steps": []})
    with pytest.raises(errors.PlanJsonError) as caught:
        Plan.from_json(text)
    assert str(caught.value) == (
        "mesh.devices has the number 1,048,575, and no placement says what so many devices hold"
    )


def test_the_table_tells_devices_and_what_crosses() -> None:
    lines = str(good()).splitlines()
    assert lines[0] == "[2{x}4, 2] -> [4, 2] on {x:2} of devices 2 to 3"
    assert lines[-2:] == [
        "most sent by one device: 4 (16 B); no plan does with less than 4 (16 B)",
        "crossing to other devices: 8 (32 B), 1.00 times its bound",
    ]
    assert "of devices 3, 5" in str(Plan(*_ends("[2{x}4]", "x=2", (3, 5)), "int8", 1, (), "", "exact", 0, "elements"))


def _ends(text: str, mesh: str, devices: tuple[int, ...]) -> tuple[DistType, Mesh, DistType, Mesh]:
    return (DistType.of(text), Mesh.of(mesh, devices)) * 2  # type: ignore[return-value]


def test_types_are_read_off_placements_over_some_devices() -> None:
    for text in ("[2{x}4, 2]", "[4, 1{x}2]", "[4, 2]"):
        assert str(type_of(on(text, THERE), THERE)) == text
        assert type_of(on(text, THERE), HERE) is None
    assert type_of(on("[4, 2]", THERE), Mesh.of("x=4")) is None
    assert on("[4, 2]", THERE).is_uniform() is not None and on("[2{x}4, 2]", THERE).is_uniform()
    assert on("[4, 2]", THERE).number.tolist() == [-1, -1, 0, 0]


def test_summands_and_scalars_are_everywhere() -> None:
    for text in ("[4] sum{x}", "[]"):
        with pytest.raises(
            errors.PlacementError,
            match=exactly(
                f"the type {text} on 2 of 3 devices leaves the others without data, as only types of rank 1 "
                "or more can, whose tiles are no partial sums"
            ),
        ):
            placement_of(DistType.of(text), HERE, 3)
    with pytest.raises(
        errors.PlacementError,
        match=exactly("a placement of 2 partial sums leaves some devices without any; all hold one"),
    ):
        Placement((4,), (1,), [[0], [0], [-1]], [0, 1, 0], 2, "sum")  # type: ignore[arg-type]


@given(plans(max_devices=12))
def test_as_much_is_sent_as_is_received(plan: Plan) -> None:
    assert sum(plan.sent) == sum(plan.received)
    assert all(sent >= least for sent, least in zip(plan.sent, plan.send_bound, strict=True))
    assert (plan.crossing, plan.crossing_bound) == (0, 0)
    alone = list(range(plan.devices))  # each device a side of its own
    crossing, bound = plan.crossing_between(alone)
    assert crossing == sum(plan.received) and bound == sum(plan.lower_bound)


@given(redistributions(max_devices=12, max_size=500), st.integers(1, 4))
def test_bounds_agree_with_element_by_element_counts(case: RedistributionCase, sides: int) -> None:
    before, after = case.before, case.after
    holds, wants = (
        [{int(e) for e in tile.ravel()} for tile in reference.scatter(np.arange(_size(p)).reshape(p.shape), p)]
        for p in (before, after)
    )
    side = np.arange(before.devices) % sides
    crossing = sum(
        len(set().union(*(wants[d] for d in mine)) - set().union(*(holds[d] for d in mine)))
        for mine in ([d for d in range(before.devices) if side[d] == k] for k in range(sides))
        if mine
    )
    assert least_crossing(before, after, side) == crossing
    sent = [
        sum(
            all(e not in holds[other] for other in range(before.devices) if other != d)
            and any(e in wants[other] for other in range(before.devices) if other != d)
            for e in holds[d]
        )
        for d in range(before.devices)
    ]
    assert least_sent(before, after) == sent
    assert sides_of(before).tolist() == [0] * before.devices


def _size(placement: Placement) -> int:
    return int(np.prod(placement.shape))


def test_groups_of_some_devices_count_their_members_only() -> None:
    step = AllToAll(on("[2{x}4, 2]", THERE), on("[4, 1{x}2]", THERE), [[2, 3]])  # type: ignore[arg-type]
    assert step.received() == step.sent() == [0, 0, 2, 2] and step.received_total() == 4
