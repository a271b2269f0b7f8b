"""Texts that are no plans: everything a stranger could write is refused, with the path of the field at fault."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from redistrib import errors
from redistrib.plans.plan import Plan
from tests.plans.edits import edited, sealed, without
from tests.plans.hand import GOOD

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
        errors.PlanJsonError,
        "the plan is of version 3, this release reads versions 1 and 2; write it again with this release",
    ),
    "a version that equals 1": (
        lambda: edited("slice", "version", value=True),
        errors.PlanJsonError,
        "the plan is of version True, this release reads versions 1 and 2; write it again with this release",
    ),
    "no version": (
        lambda: without("slice", "version"),
        errors.PlanJsonError,
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
        errors.PlanJsonError,
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
        "steps[0].shares[1] is 5, a box is [src, dst, round, start, size]",
    ),
    "a share of four": (
        lambda: edited("exchange 4 to 6", "steps", 0, "shares", 1, value=[0, 1, 2, [3]]),
        errors.PlanJsonError,
        "steps[0].shares[1] is [0, 1, 2, [3]], a box is [src, dst, round, start, size]",
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
        "cost is 'cheap', which is not a cost from 0 to 1e+300",
    ),
    "a price that is a gift": (
        lambda: edited("slice", "cost", value=-1),
        errors.PlanJsonError,
        "cost is -1, which is not a cost from 0 to 1e+300",
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
