"""Plans as JSON: round trips, tampering, and everything a stranger could write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib import errors
from redistrib.lang.mesh import Mesh
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.plans.steps import AllGather, DynSlice
from tests.plans.corrupt import Corruption
from tests.plans.corrupt_collectives import COLLECTIVE_CORRUPTIONS
from tests.plans.corrupt_exchanges import EXCHANGE_CORRUPTIONS
from tests.plans.corrupt_plans import PLAN_CORRUPTIONS
from tests.plans.hand import GOOD, place, plan


def sealed(form: dict[str, Any]) -> str:
    """A form with the digest that fits it."""
    form = {name: value for name, value in form.items() if name != "digest"}
    text = json.dumps(form, sort_keys=True, separators=(",", ":"))
    return json.dumps({**form, "digest": hashlib.sha256(text.encode()).hexdigest()})


def edited(name: str, *path: str | int, value: Any) -> str:
    """The JSON of a correct plan with one value replaced, and a digest that fits."""
    form = json.loads(GOOD[name]().to_json())
    place = form
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return sealed(form)


def without(name: str, *path: str | int) -> str:
    form = json.loads(GOOD[name]().to_json())
    place = form
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return sealed(form)


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
    with pytest.raises(ValueError, match="not JSON compliant"):
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


REFUSED: dict[str, tuple[Callable[[], str], type[errors.PlanJsonError], str]] = {
    "no JSON": (
        lambda: "{",
        errors.PlanJsonError,
        "the text is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "no text": (lambda: "", errors.PlanJsonError, "the text is not JSON: Expecting value: line 1 column 1 (char 0)"),
    "a number": (lambda: "17", errors.PlanJsonError, "the plan is 17, where an object is expected"),
    "a field twice": (
        lambda: GOOD["slice"]().to_json().replace('"cost":', '"cost":0,"cost":', 1),
        errors.PlanJsonError,
        "cost is given twice",
    ),
    "not a number": (
        lambda: GOOD["slice"]().to_json().replace('"cost":0', '"cost":NaN', 1),
        errors.PlanJsonError,
        "the text is not a plan: NaN is not a finite number",
    ),
    "a number beyond all": (
        lambda: GOOD["slice"]().to_json().replace('"cost":0', '"cost":1e999', 1),
        errors.PlanJsonError,
        "the text is not a plan: 1e999 is not a finite number",
    ),
    "another format": (
        lambda: edited("slice", "format", value="checkpoint"),
        errors.PlanJsonError,
        "format is 'checkpoint', a plan has 'redistrib-plan'",
    ),
    "no format": (
        lambda: without("slice", "format"),
        errors.PlanJsonError,
        "format is None, a plan has 'redistrib-plan'",
    ),
    "a later version": (
        lambda: edited("slice", "version", value=3),
        errors.PlanVersionError,
        "the plan is of version 3, this release reads versions 1 and 2; write it again with this release",
    ),
    "a version that equals 1": (
        lambda: edited("slice", "version", value=True),
        errors.PlanVersionError,
        "the plan is of version True, this release reads versions 1 and 2; write it again with this release",
    ),
    "no version": (
        lambda: without("slice", "version"),
        errors.PlanVersionError,
        "the plan is of version None, this release reads versions 1 and 2; write it again with this release",
    ),
    "a field too few": (lambda: without("slice", "unit"), errors.PlanJsonError, "the plan lacks the field 'unit'"),
    "a field too many": (
        lambda: edited("slice", "comment", value="mine"),
        errors.PlanJsonError,
        "the plan has the field 'comment', which version 1 does not know",
    ),
    "a wrong digest": (
        lambda: json.dumps({**json.loads(GOOD["nothing to do"]().to_json()), "digest": "0" * 64}),
        errors.PlanDigestError,
        f"the plan's digest is {'0' * 64!r}, but its contents have "
        f"{json.loads(GOOD['nothing to do']().to_json())['digest']!r}; "
        "it was changed after it was written: make the plan again",
    ),
    "a mesh of no devices": (
        lambda: edited("slice", "source", "mesh", "devices", value=[]),
        errors.PlanJsonError,
        "source.mesh.devices is empty; a mesh names its devices, in their order",
    ),
    "a kind of step that is not known": (
        lambda: edited("slice", "steps", 0, "kind", value="reducescatter"),
        errors.PlanJsonError,
        "steps[0].kind is 'reducescatter', a step is one of dynslice, allgather, alltoall, allpermute, exchange",
    ),
    "a kind of step that is no text": (
        lambda: edited("slice", "steps", 0, "kind", value=["dynslice"]),
        errors.PlanJsonError,
        "steps[0].kind is ['dynslice'], a step is one of dynslice, allgather, alltoall, allpermute, exchange",
    ),
    "a step that is no object": (
        lambda: edited("slice", "steps", 0, value=[]),
        errors.PlanJsonError,
        "steps[0] is [], where an object is expected",
    ),
    "groups for a slice": (
        lambda: edited("slice", "steps", 0, "groups", value=[[0]]),
        errors.PlanJsonError,
        "steps[0] has the field 'groups', which version 1 does not know",
    ),
    "no groups for a gather": (
        lambda: without("gather off axis", "steps", 0, "groups"),
        errors.PlanJsonError,
        "steps[0] lacks the field 'groups'",
    ),
    "groups of unequal size": (
        lambda: edited("gather off axis", "steps", 0, "groups", value=[[0, 1, 2], [3, 4]]),
        errors.PlanJsonError,
        "steps[0].groups[1] is [3, 4], where a list as long as the first is expected",
    ),
    "groups that are numbers": (
        lambda: edited("gather off axis", "steps", 0, "groups", value=[0, 1, 2]),
        errors.PlanJsonError,
        "steps[0].groups[0] is 0, where a list as long as the first is expected",
    ),
    "groups of no numbers": (
        lambda: edited("gather off axis", "steps", 0, "groups", value=[["a", "b", "c"]]),
        errors.PlanJsonError,
        "steps[0].groups[0][0] is 'a', where an integer is expected",
    ),
    "groups of truths": (
        lambda: edited("gather off axis", "steps", 0, "groups", value=[[False, True, 2], [3, 4, 5]]),
        errors.PlanJsonError,
        "steps[0].groups[0][0] is False, where an integer is expected",
    ),
    "groups of fractions": (
        lambda: edited("gather off axis", "steps", 0, "groups", value=[[0, 1.0, 2], [3, 4, 5]]),
        errors.PlanJsonError,
        "steps[0].groups[0][1] is 1.0, where an integer is expected",
    ),
    "a device number beyond 64 bits": (
        lambda: edited("gather off axis", "steps", 0, "groups", value=[[0, 2**64, 2], [3, 4, 5]]),
        errors.PlanJsonError,
        "steps[0].groups has a number that does not fit 64 bits",
    ),
    "pairs of three": (
        lambda: edited("permute", "steps", 0, "pairs", value=[[0, 1, 2]]),
        errors.PlanJsonError,
        "steps[0].pairs[0] is [0, 1, 2], where a list of 2 integers is expected",
    ),
    "a placement that is not there": (
        lambda: edited("permute", "steps", 0, "after", value=2),
        errors.PlanJsonError,
        "steps[0].after is 2, which is not a position in the list of 2 placements",
    ),
    "a placement by truth": (
        lambda: edited("permute", "steps", 0, "after", value=True),
        errors.PlanJsonError,
        "steps[0].after is True, which is not a position in the list of 2 placements",
    ),
    "a placement counted from the end": (
        lambda: edited("permute", "steps", 0, "before", value=-1),
        errors.PlanJsonError,
        "steps[0].before is -1, which is not a position in the list of 2 placements",
    ),
    "a realisation that is not known": (
        lambda: edited("exchange ragged", "steps", 0, "realisation", value=["rounds"]),
        errors.PlanJsonError,
        "steps[0].realisation is ['rounds'], an exchange runs as 'rounds' or 'ragged'",
    ),
    "a share that is a number": (
        lambda: edited("exchange 4 to 6", "steps", 0, "shares", 1, value=5),
        errors.PlanJsonError,
        "steps[0].shares[1] is 5, a share is [src, dst, round, start, size]",
    ),
    "a share of four": (
        lambda: edited("exchange 4 to 6", "steps", 0, "shares", 1, value=[0, 1, 2, [3]]),
        errors.PlanJsonError,
        "steps[0].shares[1] is [0, 1, 2, [3]], a share is [src, dst, round, start, size]",
    ),
    "a share of another rank": (
        lambda: edited("exchange 4 to 6", "steps", 0, "shares", 1, 4, value=[1, 1]),
        errors.PlanJsonError,
        "steps[0].shares[1] is [1, 1], where a list of 1 integers is expected",
    ),
    "a share from a fraction of a device": (
        lambda: edited("exchange 4 to 6", "steps", 0, "shares", 1, 0, value=0.5),
        errors.PlanJsonError,
        "steps[0].shares[1][0] is 0.5, where an integer is expected",
    ),
    "placements that are no list": (
        lambda: edited("exchange 4 to 6", "placements", value=3),
        errors.PlanJsonError,
        "placements is 3, where a list is expected",
    ),
    "steps that are no list": (
        lambda: edited("exchange 4 to 6", "steps", value={}),
        errors.PlanJsonError,
        "steps is {}, where a list is expected",
    ),
    "a grid that does not divide": (
        lambda: edited("exchange 4 to 6", "placements", 0, "grid", value=[5]),
        errors.PlanJsonError,
        "placements[0]: 5 tiles do not divide a dimension of 12 elements",
    ),
    "a tile outside the grid": (
        lambda: edited("exchange 4 to 6", "placements", 0, "index", 3, value=[4]),
        errors.PlanJsonError,
        "placements[0]: a tile index lies outside the grid (4,)",
    ),
    "a placement of another rank": (
        lambda: edited("exchange 4 to 6", "placements", 0, "index", 3, value=[0, 0]),
        errors.PlanJsonError,
        "placements[0].index[3] is [0, 0], where a list of 1 integers is expected",
    ),
    "a type that cannot be read": (
        lambda: edited("exchange 4 to 6", "source", "type", value="[3{x}"),
        errors.PlanJsonError,
        "source.type: expected the global size after '}', found the end (character 5)\n    [3{x}\n         ^",
    ),
    "a type that is no text": (
        lambda: edited("exchange 4 to 6", "source", "type", value=12),
        errors.PlanJsonError,
        "source.type is 12, where a text is expected",
    ),
    "a type that is not well-formed": (
        lambda: edited("exchange 4 to 6", "source", "type", value="[4{x}12]"),
        errors.PlanJsonError,
        "source.type: dimension 0 of [4{x}12]: 4 tiles of 4 make 16 elements, not 12; write 3{x}12",
    ),
    "an axis without a size": (
        lambda: edited("exchange 4 to 6", "target", "mesh", "axes", 0, value=["x"]),
        errors.PlanJsonError,
        "target.mesh.axes[0] is ['x'], an axis is a name and a size",
    ),
    "an axis that is a number": (
        lambda: edited("exchange 4 to 6", "target", "mesh", "axes", 0, value=4),
        errors.PlanJsonError,
        "target.mesh.axes[0] is 4, an axis is a name and a size",
    ),
    "an axis with a size in words": (
        lambda: edited("exchange 4 to 6", "target", "mesh", "axes", 0, value="x4"),
        errors.PlanJsonError,
        "target.mesh.axes[0] is 'x4', an axis is a name and a size",
    ),
    "an axis with a truth for a size": (
        lambda: edited("nothing to do", "target", "mesh", "axes", value=[["x", 2], ["y", True]]),
        errors.PlanJsonError,
        "target.mesh.axes[1] is ['y', True], an axis is a name and a size",
    ),
    "an axis without a name": (
        lambda: edited("nothing to do", "target", "mesh", "axes", 0, 0, value=1),
        errors.PlanJsonError,
        "target.mesh: the axis name 1 is not a non-empty string; name mesh axes by strings such as 'x'",
    ),
    "an axis of size 0": (
        lambda: edited("exchange 4 to 6", "target", "mesh", "axes", 0, 1, value=0),
        errors.PlanJsonError,
        "target.mesh: axis 'x' has size 0; a mesh axis has a positive integer number of devices",
    ),
    "a device order that leaves one out": (
        lambda: edited("nothing to do", "target", "mesh", "devices", value=[0, 0]),
        errors.PlanJsonError,
        "target.mesh: mesh {x:2} needs 2 different device numbers, from 0 to 1,048,575, got [0, 0]; "
        "leave them out to number devices row by row",
    ),
    "meshes of two sizes": (
        lambda: edited("nothing to do", "target", "mesh", value={"axes": [["x", 1]], "devices": [0]}),
        errors.PlanJsonError,
        "target.type: dimension 0 of [2{x}4]: 1 tile of 2 makes 2 elements, not 4; write 4{x}4",
    ),
    "an element type that is not known": (
        lambda: edited("slice", "dtype", value="float33"),
        errors.PlanJsonError,
        "the plan: 'float33' names no element type; give a NumPy or ml_dtypes name such as 'float32' or 'bfloat16'",
    ),
    "a price that is no number": (
        lambda: edited("slice", "cost", value="cheap"),
        errors.PlanJsonError,
        "cost is 'cheap', which is not a price from 0 to 1e+300",
    ),
    "a price that is a gift": (
        lambda: edited("slice", "cost", value=-1),
        errors.PlanJsonError,
        "cost is -1, which is not a price from 0 to 1e+300",
    ),
    "a unit that is not known": (
        lambda: edited("slice", "unit", value="euros"),
        errors.PlanJsonError,
        "unit is 'euros', a cost is in 'elements' or 'seconds'",
    ),
    "a memory limit of nothing": (
        lambda: edited("slice", "memory_limit", value=0),
        errors.PlanJsonError,
        "memory_limit is 0, a limit is a number of bytes from 1 to 9223372036854775807 or null",
    ),
    "a memory limit by truth": (
        lambda: edited("slice", "memory_limit", value=True),
        errors.PlanJsonError,
        "memory_limit is True, a limit is a number of bytes from 1 to 9223372036854775807 or null",
    ),
    "an algorithm without a name": (
        lambda: edited("slice", "algorithm", value=None),
        errors.PlanJsonError,
        "algorithm is None, where a text is expected",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_text_that_is_no_plan_is_refused(name: str) -> None:
    make, error, message = REFUSED[name]
    with pytest.raises(errors.RedistribError) as caught:
        Plan.from_json(make())
    assert (type(caught.value), str(caught.value)) == (error, message)


def test_meshes_of_two_sizes_are_refused() -> None:
    form = json.loads(GOOD["nothing to do"]().to_json())
    form["target"] = {"type": "[4]", "mesh": {"axes": [["x", 3]], "devices": [0, 1, 2]}}
    with pytest.raises(errors.PlanJsonError) as caught:
        Plan.from_json(sealed(form))
    assert str(caught.value) == ("target.mesh is not over the devices of source.mesh, which needs version 2")


@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    text = GOOD["slice"]().to_json().replace('"cost":0', '"cost":' + "[" * depth + "]" * depth, 1)
    with pytest.raises(errors.PlanJsonError):
        Plan.from_json(text)


def test_device_orders_survive() -> None:
    made = GOOD["alltoall shuffled"]()
    again = Plan.from_json(made.to_json())
    assert again.target_mesh == Mesh(made.target_mesh.axes, (2, 0, 3, 1))
