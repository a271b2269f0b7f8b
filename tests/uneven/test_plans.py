"""Plans between tiles of unequal size, against a model of boxes that shares nothing with the library."""

from __future__ import annotations

import json
from dataclasses import replace
from operator import ge

import numpy as np
import pytest
from hypothesis import given, settings

import redistrib as rd
from proofs.bridge.export import plan_term
from redistrib.cli import main
from redistrib.errors import PlanJsonError, UnevenTypeError, VerificationError
from redistrib.explain.graph import weak_graph
from redistrib.explain.received import traffic
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans._json import digest_of_form
from redistrib.plans.reference import assemble, run, scatter
from redistrib.plans.steps import AllPermute, DynSlice, Exchange
from redistrib.run import on_virtual_devices
from redistrib.synthesis.synthesize import synthesize
from redistrib.testing import RedistributionCase, is_exact, numbered, uneven_redistributions
from tests.messages import exactly
from tests.plans.columns import columns_of, table_of
from tests.uneven.cases import all_uneven_types, elements, regions


def _checked(source: DistType, here: Mesh, target: DistType, there: Mesh, model: str = "exact") -> rd.Plan:
    """A plan, held against the model: who holds what, who must receive what, who does."""
    plan = synthesize(source, here, target, there, model=model)
    held = list(map(elements, regions(plan.source, here, plan.devices)))
    wanted = list(map(elements, regions(plan.target, there, plan.devices)))
    lacking = [len(want - have) for have, want in zip(held, wanted, strict=True)]
    assert list(plan.lower_bound) == lacking
    for device, least in enumerate(plan.send_bound):
        others = [k for k in range(plan.devices) if k != device]
        alone = held[device].difference(*(held[k] for k in others))
        assert least == len(alone & set().union(*(wanted[k] for k in others)))
    outside = [k for k in range(plan.devices) if k not in here.devices]
    assert plan.crossing_bound == len(set().union(*(wanted[k] for k in outside)))
    assert plan.crossing >= plan.crossing_bound
    assert all(map(ge, plan.sent, plan.send_bound))
    assert sum(plan.sent) == sum(plan.received)
    assert is_exact(plan)
    if model == "exact":
        assert list(plan.received) == lacking
    assert rd.Plan.from_json(plan.to_json()) == plan
    if len(plan.steps) == 1 and isinstance(plan.steps[0], Exchange):
        moved = plan.steps[0].transfers()
        for device in range(plan.devices):
            arrived = [elements(_region(box)) for _, box in moved.receives(device)]
            stays = elements(_region(plan.steps[0].retained().row(device)))
            assert sum(map(len, arrived)) + len(stays) == len(wanted[device])
            assert set().union(stays, *arrived) == wanted[device]
            assert stays <= held[device]
        for sender, receiver, box in zip(moved.sender, moved.receiver, moved.box.rows(), strict=True):
            assert elements(_region(box)) <= held[sender] & wanted[receiver]
    return plan


def _region(box):
    return tuple((a, a + n) for a, n in zip(box.start, box.size, strict=True))


@settings(max_examples=60)
@given(uneven_redistributions(max_devices=8, max_size=300))
def test_a_plan_moves_what_the_model_says(pair: RedistributionCase):
    _checked(pair.source, pair.mesh, pair.target, pair.target_mesh)


@settings(max_examples=30)
@given(uneven_redistributions(max_devices=8, max_size=300))
def test_padded_rounds_move_what_the_model_says(pair: RedistributionCase):
    _checked(pair.source, pair.mesh, pair.target, pair.target_mesh, "tpu")


@pytest.mark.long
@pytest.mark.parametrize(
    ("mesh", "shape"), [("x=4", (7,)), ("x=2,y=2", (5, 7)), ("x=3,y=2", (7, 5)), ("x=4,y=2", (9, 7))]
)
def test_every_pair_of_types_on_a_mesh(mesh, shape):
    here = Mesh.of(mesh)
    kinds = all_uneven_types(here, shape)
    for source in kinds:
        for target in kinds:
            _checked(source, here, target, here)


@pytest.mark.parametrize("model", ["exact", "tpu", "cpu", "gpu"])
def test_divisible_types_have_the_plans_that_they_had(model):
    """However they are said: the mark for unequal tiles changes nothing where tiles are equal."""
    plain = rd.synthesize("[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]", "x=4,y=6", machine=model)
    marked = rd.synthesize("[3~{x}12, 2^{y}12]", "[2~{y}12, 3{x}12]", "x=4,y=6", machine=model)
    assert marked.to_json() == plain.to_json()
    assert json.loads(plain.to_json())["version"] == 1


def test_an_exchange_is_said_with_split_points():
    plan = rd.synthesize("[3~{x}10, 6]", "[10, 3{x,y}6]".replace("3{x,y}", "1^{x,y}").replace("1^", "1^"), "x=4,y=2")
    form = json.loads(plan.to_json())
    assert form["version"] == 2
    assert form["source"]["type"] == "[3~{x}10, 6]"
    assert form["placements"][0]["grid"] == [[0, 3, 6, 8, 10], 1]
    assert form["placements"][1]["grid"] == [1, [0, 1, 2, 3, 3, 4, 5, 6, 6]]


def test_a_slice_and_equal_placements_send_nothing():
    sliced = rd.synthesize("[10, 7]", "[3~{x}10, 7]", "x=4")
    assert (sliced.collectives, sum(sliced.received)) == (0, 0)
    same = rd.synthesize("[3^{x}10]", "[3{x}10+2]", "x=4")
    assert same.steps == ()


def test_a_table_says_the_types_as_they_were_given():
    text = str(rd.synthesize("[2^{x}7, 3]", "[7, 1~{x}3]", "x=4"))
    assert text.splitlines()[0] == "[2^{x}7, 3] -> [7, 1~{x}3]"
    assert "[7, 1~{x}3]" in text.splitlines()[6]


def test_many_more_shares_than_are_arranged_at_leisure():
    """Where even plans have all-to-alls to fall back on, these have the direct exchange alone."""
    plan = rd.synthesize("[2~{x}199, 5]", "[199, 1~{x}5]", "x=100", machine="exact")
    assert plan.received == plan.lower_bound
    plan = rd.synthesize("[2~{x}199, 199]", "[199, 2~{x}199]", "x=100", machine="exact")
    assert len(plan.steps[0].shares) > 1 << 12
    assert plan.received == plan.lower_bound


def test_a_memory_limit_holds_or_is_refused():
    ends = "[3~{x}10, 64]", "[10, 16{x}64]", "x=4"
    least = rd.synthesize(*ends, memory_limit="1MiB").peak_bytes
    assert rd.synthesize(*ends, memory_limit=least).peak_bytes <= least
    with pytest.raises(rd.errors.MemoryLimitError):
        rd.synthesize(*ends, memory_limit=3 * 64 * 4)


def test_the_papers_algorithm_needs_equal_tiles():
    with pytest.raises(
        UnevenTypeError,
        match=exactly(
            "the paper's algorithm takes tiles of one size, and those of [3~{x}10] are of unequal "
            "size or padded; take axes that divide the array, or an array with padding as elements "
            "like any others"
        ),
    ):
        rd.synthesize("[3~{x}10]", "[10]", "x=4", algorithm="paper")
    rd.synthesize("[3~{x}12]", "[12]", "x=4", algorithm="paper")


def test_tiles_without_elements_and_devices_without_tiles():
    whole = numbered((3, 4))
    for source in ("[1~{x}3, 4]", "[1^{x}3, 4]"):
        plan = synthesize(
            DistType.of(source), Mesh.of("x=8"), DistType.of("[3, 1{x}4]"), Mesh.of("x=4", range(6, 10)), model="exact"
        )
        assert plan.received == plan.lower_bound
        tiles = run(plan, scatter(whole, plan.before))
        assert tiles[0].shape == (0, 0)
        assert np.array_equal(assemble(tiles, plan.after), whole)
    assert [tile.shape for tile in scatter(whole, plan.before)][:5] == [(1, 4)] * 3 + [(0, 4)] * 2


def test_where_what_a_plan_receives_goes_is_told(capsys):
    plan = rd.synthesize("[3~{x}10, 7]", "[10, 2^{x}7]", "x=4", machine="tpu")
    (row,) = traffic(plan)
    assert row.needed == sum(plan.lower_bound)
    assert row.needed + row.padding == sum(plan.received)
    assert main(["plan", "[3~{x}10, 7]", "[10, 2^{x}7]", "--mesh", "x=4"]) == 0
    assert "[10, 2^{x}7]" in capsys.readouterr().out


def test_nothing_that_needs_equal_tiles_takes_others():
    plan = rd.synthesize("[3~{x}10]", "[10]", "x=4")
    with pytest.raises(
        UnevenTypeError,
        match=exactly(
            "the weak graph takes tiles of one size, and those of [3~{x}10] are of unequal size or "
            "padded; take axes that divide the array, or an array with padding as elements like "
            "any others"
        ),
    ):
        weak_graph(plan)
    with pytest.raises(
        rd.RedistribError,
        match=exactly(
            "a run beside XLA takes tiles of one size, and those of [3~{x}10] are of unequal size "
            "or padded; take axes that divide the array, or an array with padding as elements like "
            "any others"
        ),
    ):
        on_virtual_devices(plan)
    with pytest.raises(ValueError, match=exactly("'[3~{x}10]' is no type, at '~{x}10'")):
        plan_term(json.loads(plan.to_json()))  # of the checker in Coq


# ------------------------------------------------------------------------------------------ what is refused


def _exchange(source: str = "[3~{x}10]", target: str = "[4~{x,y}10]") -> rd.Plan:
    return rd.synthesize("[3~{x}10, 3]", "[10, 1{y}3]", "x=4,y=3", machine="exact")


def _with(plan: rd.Plan, **changes) -> rd.Plan:
    step = plan.steps[0]
    return replace(plan, steps=(replace(step, shares=table_of(**columns_of(step.shares) | changes)),))


def test_a_share_that_is_too_long_is_found():
    plan = _exchange()
    shares = plan.steps[0].shares
    rd.verify(plan)
    longer, shorter = np.array(shares.box.size), np.array(shares.box.size)
    longer[0, 0] += 1
    shorter[0, 0] -= 1
    with pytest.raises(VerificationError) as caught:
        rd.verify(_with(plan, size=longer))
    assert caught.value.rule == "share not held"
    with pytest.raises(VerificationError) as caught:
        rd.verify(_with(plan, size=shorter))
    assert caught.value.rule in ("uncovered tile", "empty share")


def test_every_element_that_is_left_out_is_found():
    plan = _exchange()
    shares = plan.steps[0].shares
    for k in range(len(shares)):
        keep = np.arange(len(shares)) != k
        columns = columns_of(shares[keep]) | {"round": np.arange(len(shares) - 1)}
        with pytest.raises(VerificationError) as caught:
            rd.verify(_with(plan, **columns))
        assert caught.value.rule == "uncovered tile"
        assert caught.value.device == shares.receiver[k]


def test_other_steps_do_not_take_unequal_tiles():
    plan = rd.synthesize("[10, 7]", "[3~{x}10, 7]", "x=4")
    sliced = DynSlice(plan.before, plan.after)
    with pytest.raises(VerificationError) as caught:
        rd.verify(replace(plan, steps=(sliced,)))
    assert caught.value.rule == "uneven step"
    turned = AllPermute(plan.after, plan.after, np.array([[0, 1], [1, 0]]))
    with pytest.raises(VerificationError) as caught:
        rd.verify(replace(plan, steps=(*plan.steps, turned)))
    assert caught.value.rule == "uneven step"


@pytest.mark.parametrize(
    "cuts",
    [((0, 3, 6, 9, 10), None, None), ((0, 3, 6, 11, 10), None), ((0, 3, 6, 10), None)],
    ids=["rank", "fall", "few"],
)
def test_split_points_of_a_placement_made_by_hand_are_checked(cuts):
    plan = _exchange()
    before = plan.before
    odd = object.__new__(type(before))
    for name in ("shape", "grid", "index"):
        object.__setattr__(odd, name, getattr(before, name))
    object.__setattr__(odd, "cuts", cuts)
    with pytest.raises((VerificationError, ValueError)) as caught:
        rd.verify(replace(plan, steps=(replace(plan.steps[0], after=odd),)))
    assert getattr(caught.value, "rule", None) == "tile index"


RISE = (
    "placements[0]: the split points of {} tiles of a dimension of 10 elements are {}; they are {} numbers that rise "
    "from 0 to 10"
)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([[0, 3, 6, 8], 1], RISE.format(3, (0, 3, 6, 8), 4)),
        ([[0], 1], "placements[0].grid[0] is [0], split points are two numbers at least"),
        ([[0, 3, 6, 8, "10"], 1], "placements[0].grid[0][4] is '10', where an integer is expected"),
        ([[0, 3, 6, 8, 11], 1], RISE.format(4, (0, 3, 6, 8, 11), 5)),
        ([[0, 3, 6, 8, 2**64], 1], "placements[0].grid has a number that does not fit 64 bits"),
        ([[0, 3, 8, 6, 10], 1], RISE.format(4, (0, 3, 8, 6, 10), 5)),
    ],
)
def test_split_points_in_a_text_are_checked(grid, message):
    form = json.loads(_exchange().to_json())
    form["placements"][0]["grid"] = grid
    del form["digest"]
    form["digest"] = digest_of_form(form)
    with pytest.raises(PlanJsonError, match=exactly(message)):
        rd.Plan.from_json(json.dumps(form))


def test_version_one_has_no_unequal_tiles():
    form = json.loads(rd.synthesize("[3{x}12]", "[12]", "x=4").to_json())
    for change in ({"grid": [[0, 3, 6, 9, 12]]}, {}):
        changed = json.loads(json.dumps(form))
        changed["placements"][0] |= change
        if not change:
            changed["source"]["type"] = "[3~{x}12]"
        del changed["digest"]
        changed["digest"] = digest_of_form(changed)
        with pytest.raises(PlanJsonError):
            rd.Plan.from_json(json.dumps(changed))
