"""Plans as JSON: round trips, tampering, and everything a stranger could write."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib import errors
from redistrib.lang.mesh import Mesh
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, DynSlice
from tests.messages import exactly
from tests.plans.corrupt import Corruption
from tests.plans.corrupt_collectives import COLLECTIVE_CORRUPTIONS
from tests.plans.corrupt_exchanges import EXCHANGE_CORRUPTIONS
from tests.plans.corrupt_plans import PLAN_CORRUPTIONS
from tests.plans.edits import sealed
from tests.plans.hand import GOOD, place, plan


@pytest.mark.parametrize("name", GOOD)
def test_a_plan_comes_back_as_it_went(name: str) -> None:
    made = GOOD[name]()
    text = made.to_json()
    again = Plan.from_json(text)
    assert again == made
    assert again.to_json() == text


def test_the_form_is_the_documented_one() -> None:
    made = plan("[1{x}2]", "[2]", "x=2", AllGather(place("[1{x}2]", "x=2"), place("[2]", "x=2"), [[0, 1]]))
    assert made.to_json() == (
        '{"algorithm":"by hand","cost":2,"cost_model":"exact",'
        '"digest":"DIGEST","dtype":"float32","format":"redistrib-plan","memory_limit":null,'
        '"placements":[{"grid":[2],"index":[[0],[1]]},{"grid":[1],"index":[[0],[0]]}],'
        '"source":{"mesh":{"axes":[["x",2]],"devices":[0,1]},"type":"[1{x}2]"},'
        '"steps":[{"after":1,"before":0,"groups":[[0,1]],"kind":"allgather"}],'
        '"target":{"mesh":{"axes":[["x",2]],"devices":[0,1]},"type":"[2]"},"unit":"elements","version":1}'
    ).replace("DIGEST", json.loads(made.to_json())["digest"])
    assert json.loads(sealed(json.loads(made.to_json()))) == json.loads(made.to_json())


def test_shares_are_written_as_rows_of_source_destination_round_start_and_size() -> None:
    form = json.loads(GOOD["exchange split shares"]().to_json())
    assert form["steps"][0]["shares"][4] == [3, 0, 1, [6, 0], [2, 3]]
    assert form["steps"][0]["realisation"] == "rounds"


def test_each_placement_is_written_once() -> None:
    form = json.loads(GOOD["three phases"]().to_json())
    assert [(step["before"], step["after"]) for step in form["steps"]] == [(0, 1), (1, 2), (2, 3)]
    assert len(form["placements"]) == 4


def test_layout_of_the_text_does_not_matter() -> None:
    made = GOOD["three phases"]()
    assert Plan.from_json(json.dumps(json.loads(made.to_json()), indent=2)) == made


@pytest.mark.parametrize("cost", [0, 2**80, 0.1, 1e-300, np.float64(2.5), np.int64(7)])
def test_costs_are_exact(cost: float) -> None:
    made = replace(GOOD["slice"](), cost=cost)
    assert Plan.from_json(made.to_json()).cost == cost


@pytest.mark.parametrize(
    ("dtype", "itemsize"),
    [("bfloat16", 2), ("float8_e4m3b11fnuz", 1), ("int4", 1), ("uint2", 1), ("bool", 1), ("complex128", 16),
     ("float4_e2m1fn", 1), ("float8_e8m0fnu", 1), ("key<fry>", 8)],
)  # fmt: skip
def test_element_types_are_known_by_name(dtype: str, itemsize: int) -> None:
    made = replace(GOOD["slice"](), dtype=dtype, itemsize=itemsize)
    assert Plan.from_json(made.to_json()).itemsize == itemsize


@pytest.mark.parametrize("dtype", ["object", "str", "i4,f4", "(2,)f4", "float33", "", "int3", "key<new>"])
def test_what_is_no_element_type_of_fixed_size_is_refused(dtype: str) -> None:
    with pytest.raises(errors.DtypeError) as caught:
        itemsize_of(dtype)
    assert str(caught.value) == (
        f"{dtype!r} names no element type; give a NumPy or ml_dtypes name such as 'float32' or 'bfloat16'"
    )


def test_a_plan_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(errors.PlanFormError) as caught:
        replace(GOOD["slice"](), itemsize=8).to_json()
    assert str(caught.value) == (
        "the plan counts 8 bytes per element, but float32 has 4; its JSON form records the dtype alone"
    )
    with pytest.raises(errors.DtypeError):
        replace(GOOD["slice"](), dtype="float33").to_json()


def test_a_price_that_is_no_number_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"\AOut of range float values are not JSON compliant"):
        replace(GOOD["slice"](), cost=float("nan")).to_json()


def test_a_plan_made_under_a_memory_limit_may_be_as_high_as_it_is() -> None:
    cut, whole = place("[2{x}8, 4]", "x=4"), place("[8, 4]", "x=4")
    bounce = plan("[2{x}8, 4]", "[2{x}8, 4]", "x=4", AllGather(cut, whole, [[0, 1, 2, 3]]), DynSlice(whole, cut))
    with pytest.raises(errors.TileAboveBoundError):
        Plan.from_json(bounce.to_json())
    limited = replace(bounce, memory_limit=192)
    assert Plan.from_json(limited.to_json()) == limited
    with pytest.raises(errors.TileAboveBoundError):
        Plan.from_json(limited.to_json(), bound=31)


def test_a_plan_that_is_predicted_to_exceed_its_limit_is_still_a_plan() -> None:
    """What a release predicts is not what another did when the plan was made."""
    limited = replace(GOOD["exchange 4 to 6"](), memory_limit=1)
    assert limited.peak_bytes > 1
    assert Plan.from_json(limited.to_json()) == limited


@given(st.data())
def test_a_changed_character_is_found(data: st.DataObject) -> None:
    made = GOOD[data.draw(st.sampled_from(sorted(GOOD)))]()
    text = made.to_json()
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from('0123456789-.eE"[]{},: abx'))
    changed = text[:at] + letter + text[at + 1 :]
    if changed == text:
        return
    try:
        again = Plan.from_json(changed)
    except errors.PlanJsonError:
        return
    assert again == made  # such as another spelling of one float


# a plan may be loaded that is as high as it is, and the form has no words for a step of no kind
SAYABLE = [
    corruption
    for corruption in (*PLAN_CORRUPTIONS, *COLLECTIVE_CORRUPTIONS, *EXCHANGE_CORRUPTIONS)
    if corruption.rule not in ("tile above bound", "unknown step")
]


@pytest.mark.parametrize("corruption", SAYABLE, ids=lambda corruption: corruption.name)
def test_a_broken_plan_with_a_fitting_digest_is_refused(corruption: Corruption) -> None:
    text = corruption.make().to_json()
    with pytest.raises(errors.RedistribError) as caught:
        Plan.from_json(text)
    # what the form cannot say at all is refused as a form
    if not isinstance(caught.value, errors.PlanJsonError):
        assert isinstance(caught.value, errors.VerificationError)
        assert caught.value.rule == corruption.rule


def test_device_orders_survive() -> None:
    made = GOOD["alltoall shuffled"]()
    again = Plan.from_json(made.to_json())
    assert again.target_mesh == Mesh(made.target_mesh.axes, (2, 0, 3, 1))


@pytest.mark.parametrize("parts", [2, 8, "many"])
def test_a_plan_in_overlapping_parts_is_refused_with_what_to_do(parts: object) -> None:
    form = json.loads(GOOD["slice"]().to_json()) | {"version": 2, "accumulate": None, "order": "any"}
    Plan.from_json(sealed(form))
    with pytest.raises(
        errors.PlanJsonError,
        match=exactly(
            f"the plan travels in {parts!r} parts that overlap, as earlier versions wrote it; this release carries "
            "plans out whole: make the plan again"
        ),
    ) as caught:
        Plan.from_json(sealed(form | {"parts": parts, "along": 1}))
    assert caught.value.where == "parts"
