"""What plans and steps say of themselves."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from redistrib.errors import PlanFormError
from redistrib.lang.mesh import Mesh
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, AllPermute, AllToAll, DynSlice, Exchange, Step
from redistrib.plans.verify import verify
from tests.messages import exactly
from tests.plans.columns import table_of
from tests.plans.hand import GOOD, place, plan, pulled, shares


class Noted(Plan):
    """A plan of one's own class."""


def test_a_plan_keeps_its_class() -> None:
    made = GOOD["three phases"]()
    fields = {name: getattr(made, name) for name in made.__match_args__}
    noted = Noted(**fields)
    assert noted != made
    assert type(verify(noted)) is type(replace(noted, cost=3)) is type(Noted.from_json(made.to_json())) is Noted
    assert type(pickle.loads(pickle.dumps(made))) is type(copy.deepcopy(made)) is Plan
    assert pickle.loads(pickle.dumps(made)) == made == Plan.from_json(noted.to_json())


def test_a_plan_counts_exactly_per_device() -> None:
    made = GOOD["exchange to larger"]()
    assert made.received == (8, 8, 12, 12, 8, 8) == made.lower_bound
    assert (made.devices, made.shape, made.height, made.collectives) == (6, (6, 4), 12, 3)
    three = GOOD["three phases"]()
    assert [step.received() for step in three.steps] == [[0] * 8, [12] * 8, [16] * 8]
    assert three.received == (28,) * 8
    assert three.lower_bound == (16,) * 8
    assert (three.height, three.collectives) == (32, 2)


def test_height_looks_at_every_placement() -> None:
    cut, whole = place("[2{x}8, 4]", "x=4"), place("[8, 4]", "x=4")
    bounce = plan("[2{x}8, 4]", "[2{x}8, 4]", "x=4", AllGather(cut, whole, [[0, 1, 2, 3]]), DynSlice(whole, cut))
    assert bounce.height == 32
    assert GOOD["alltoall slicing"]().height == 8  # the source
    assert GOOD["gather off axis"]().height == 6  # the target


@pytest.mark.parametrize("name", GOOD)
def test_totals_are_the_sums_over_devices(name: str) -> None:
    made = GOOD[name]()
    assert sum(step.received_total() for step in made.steps) == sum(made.received)
    assert all(got >= bound for got, bound in zip(made.received, made.lower_bound, strict=True))


def test_an_exchange_launches_a_collective_a_round_or_one_if_ragged() -> None:
    step = GOOD["exchange 4 to 6"]().steps[0]
    assert step.collectives == 6
    assert replace(step, implementation="ragged").collectives == 1
    assert GOOD["exchange nothing"]().steps[0].collectives == 0
    assert GOOD["slice"]().steps[0].collectives == 0
    assert GOOD["permute"]().steps[0].collectives == 1


def test_shares_of_an_all_to_all() -> None:
    steps = [GOOD[name]().steps[0] for name in ("alltoall", "alltoall repeated", "alltoall slicing")]
    assert [step.share for step in steps if isinstance(step, AllToAll)] == [(1, 2), (1, 2), (2, 1)]


@pytest.mark.parametrize("types", [("[4] sum{x}", "[4]"), ("[4]", "[4] sum{x}"), ("[]", "[]")])
def test_summands_and_scalars_need_the_same_devices(types: tuple[str, str]) -> None:
    with pytest.raises(PlanFormError) as caught:
        plan(*types, "x=2", target_mesh=Mesh.of("x=2,y=2"))
    assert str(caught.value) == (
        "source mesh {x:2} has 2 of 4 devices and target mesh {x:2, y:2} has 4; tiles that are partial sums, or of "
        "rank 0, "
        "need the same devices on both sides"
    )


def test_plans_are_equal_iff_all_but_the_prices_of_steps_is() -> None:
    made, again = GOOD["three phases"](), GOOD["three phases"]()
    assert made == again
    assert hash(made) == hash(again)
    assert replace(made, step_costs=(0, 1, 2)) == made
    for changed in (
        replace(made, dtype="float64"),
        replace(made, cost=1),
        replace(made, steps=made.steps[:2]),
        replace(made, target_mesh=Mesh(made.target_mesh.axes, (1, 0, 2, 3, 4, 5, 6, 7))),
    ):
        assert changed != made


def _variants() -> list[Step]:
    cut, whole = place("[2{x}4]", "x=2"), place("[4]", "x=2")
    exchange = pulled(cut, whole)
    other = exchange.shares[np.array([1, 0])]
    return [
        DynSlice(whole, cut),
        DynSlice(whole, whole),
        AllGather(cut, whole, [[0, 1]]),
        AllGather(cut, whole, [[1, 0]]),
        AllToAll(cut, whole, [[0, 1]]),
        AllPermute(cut, cut, [[0, 1]]),
        AllPermute(cut, cut, [[1, 0]]),
        exchange,
        Exchange(cut, whole, exchange.shares, "ragged"),
        Exchange(cut, whole, other),
    ]


def test_steps_are_equal_iff_they_do_the_same_in_the_same_way() -> None:
    for i, step in enumerate(_variants()):
        for j, other in enumerate(_variants()):
            assert (step == other) == (i == j)
            assert i != j or hash(step) == hash(other)
    assert shares((0, 1, 0, [0], [1])) != "shares"


def test_tables_of_steps_cannot_be_changed() -> None:
    table = np.array([[0, 1]])
    step = AllGather(place("[2{x}4]", "x=2"), place("[4]", "x=2"), table)
    table[:] = 0
    assert step.groups.tolist() == [[0, 1]]
    with pytest.raises(ValueError, match=exactly("assignment destination is read-only")):
        step.groups[0] = 0


def test_tables_of_the_wrong_form_make_no_step() -> None:
    cut, whole = place("[2{x}4]", "x=2"), place("[4]", "x=2")
    for make, message in (
        (lambda: AllGather(cut, whole, [0, 1]), "groups form a table [groups, members], got 1 dimensions"),
        (lambda: AllPermute(cut, cut, [[0, 1, 2]]), "pairs form a table [pairs, 2], got shape (1, 3)"),
        (
            lambda: table_of([0], [1, 2], [[0]], [[1]], [0]),
            "the columns of a table of boxes must have equal length",
        ),
    ):
        with pytest.raises(PlanFormError) as caught:
            make()
        assert str(caught.value) == message
