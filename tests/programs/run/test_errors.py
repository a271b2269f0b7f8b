"""What a refused schedule says: the operation, its line, the array and the rule; and the way out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.errors import (
    CutError,
    CutInnerFactorError,
    LeafError,
    NoCombinerError,
    ProgramError,
    TypeFormError,
    UnevenTypeError,
    UnknownAxisError,
)
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.schedule.overlap import Overlap
from redistrib.programs.schedule.schedule import Schedule

X = np.ones((8, 16), np.float32)


def product(x: Any) -> Any:
    return x @ x.T


def apart(x: Any) -> Any:
    return x.reshape(8, 2, 8).sum(2)


def last(x: Any) -> Any:
    return jnp.prod(x, 1)


def opaque(x: Any) -> Any:
    return jax.pure_callback(lambda x: x * 8, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


LAST = {"reduce_prod": lambda equation: equation.nest({"i": 8, "j": 16}, [["i", "j"]], [["i"]])}


@pytest.mark.parametrize(
    ("function", "work", "rules", "kind", "array", "rule", "why"),
    [
        (product, {"dot_general": "q"}, {}, CutError, "", "Schedule", "no iteration dimension 'q'; it has m0, k0, n0"),
        (
            apart,
            {"reshape": "f2"},
            {},
            CutInnerFactorError,
            "x",
            "Dim",
            (
                "dimension 1 is made of 'f1', 'f2', major to minor, and 'f2' is cut while 'f1' above it is "
                "not cut into single elements, so what a device works on is no tile; reshape to (8, 2, 8)"
            ),
        ),
        (
            last,
            {"reduce_prod": "j"},
            LAST,
            NoCombinerError,
            "out",
            "Combine",
            (
                "iteration dimension 'j' is cut over d and not written, and nothing says how its results "
                "combine; leave it whole, or give combine={'j': 'sum'}"
            ),
        ),
        (
            opaque,
            {"pure_callback": "i"},
            {},
            CutError,
            "",
            "Opaque",
            "no rule for pure_callback, so every device runs all of it; give a rule, or leave it whole",
        ),
    ],
)
def test_an_error_names_operation_line_array_and_rule(
    function: Callable[..., Any],
    work: dict[str, str],
    rules: dict[str, Any],
    kind: type[ProgramError],
    array: str,
    rule: str,
    why: str,
) -> None:
    line = function.__code__.co_firstlineno + 1
    (operation,) = work
    with pytest.raises(kind) as caught:
        rd.distribute(function, (X,), {"d": 8}, schedule=rd.work("d", work), rules=rules)
    error = caught.value
    assert type(error) is kind
    assert (error.operation, error.rule) == (operation, rule)
    assert error.source.endswith(f"test_errors.py:{line}")
    where = f"operation '{operation}'" + (f", array '{error.array}'" if array else "")
    assert str(error) == f"{error.source}: {where}: {why}"
    assert bool(error.array) == bool(array)


def test_a_cut_of_one_element_names_operation_line_and_rule() -> None:
    with pytest.raises(CutError) as caught:
        rd.distribute(product, (X[:1],), {"d": 3}, schedule=rd.work("d", {"dot_general": "m0"}))
    assert (caught.value.operation, caught.value.rule) == ("dot_general", "Schedule")
    assert caught.value.source.endswith(f"test_errors.py:{product.__code__.co_firstlineno + 1}")
    why = "operation 'dot_general': axis 'd' cannot cut dimension 'm0': 1 points make no 3 equal parts"
    assert why in str(caught.value)


def test_a_whole_schedule_of_another_function_names_the_operation_and_its_line() -> None:
    other = Schedule(Mesh.of("d=8"), {"dot_general": {"d": "q"}}, {}, {}, {})
    with pytest.raises(CutError) as caught:
        rd.distribute(product, (X,), {"d": 8}, schedule=other)
    why = "operation 'dot_general': it has no dimensions q"
    assert str(caught.value) == f"{caught.value.source}: {why}"
    assert caught.value.source.endswith(f"test_errors.py:{product.__code__.co_firstlineno + 1}")


@pytest.mark.parametrize("side", ["in_shardings", "out_shardings"])
def test_tiles_of_unequal_size_are_refused(side: str) -> None:
    with pytest.raises(LeafError) as caught:
        rd.distribute(
            lambda x: {"y": x * 2}, (jax.ShapeDtypeStruct((10, 4), np.float32),), {"d": 4}, **{side: "[3~{d}10, 4]"}
        )
    assert isinstance(caught.value.__cause__, UnevenTypeError)
    assert str(caught.value) == (
        f"leaf {'x' if side == 'in_shardings' else 'y'}: {side}: distribute takes tiles of one size, and those of "
        "[3~{d}10, 4] are of unequal size or padded; take axes that "
        "divide the array, or an array with padding as elements like any others"
    )


@pytest.mark.parametrize("side", ["in_shardings", "out_shardings"])
def test_shardings_that_do_not_fit_are_refused_by_leaf(side: str) -> None:
    args, one = (
        ({"w": jax.ShapeDtypeStruct((8, 4), np.float32)},),
        {"in_shardings": "p/w", "out_shardings": "y/w"}[side],
    )
    for spec, says in (
        (P("d", None, None), "the partition spec has 3 entries and the shape (8, 4) only 2 dimensions"),
        (P("d", "d"), "axis 'd' is used twice in partition spec ('d', 'd')"),
        (P("z"), "mesh {d:4} has no axis 'z'"),
    ):
        given = {"in_shardings": ({"w": spec},), "out_shardings": {"y": {"w": spec}}}[side]
        with pytest.raises(LeafError) as caught:
            rd.distribute(lambda p: {"y": p}, args, {"d": 4}, **{side: given})
        assert str(caught.value).startswith(f"leaf {one}: {side}: {says}")
    with pytest.raises(LeafError, match=f"{side} is no tree like that of the arrays, and no prefix of one: "):
        rd.distribute(lambda p: {"y": p}, args, {"d": 4}, **{side: {"q": P()}})


def test_of_many_arguments_twelve_are_named() -> None:
    args = {f"w{k:02}": jax.ShapeDtypeStruct((8,), np.float32) for k in range(14)}
    with pytest.raises(CutError) as caught:
        rd.distribute(lambda w: sum(w.values()), (args,), {"d": 8}, schedule=rd.along("d", {"z": 0}))
    twelve = ", ".join(f"'w/w{k:02}'" for k in range(12))
    assert str(caught.value) == (f"array 'z': no argument is called so; there are {twelve} and 2 more")


@pytest.mark.parametrize("schedule", [("d",), [["d"]]])
def test_what_is_no_tactic_is_named(schedule: Any) -> None:
    with pytest.raises(CutError) as refused:
        rd.distribute(product, (X,), {"d": 2}, schedule=schedule)
    assert str(refused.value) == "'d' is no tactic; write rd.along(axis, {argument: dimension})"


WHOLE = Schedule(
    Mesh.of("d=8"),
    {"dot_general": {"d": "m0"}},
    {"add": {"d": 0}},
    {"x": DistType.of("[1{d}8, 16]")},
    {0: DistType.of("[1{d}8, 8]")},
    {("x", DistType.of("[8, 16]")): DistType.of("[1{d}8, 16]")},
)


def test_a_schedule_as_text() -> None:
    text = WHOLE.to_json()
    assert json.loads(text) == {
        "format": "redistrib-schedule",
        "version": 1,
        "mesh": {"d": 8},
        "cuts": {"dot_general": {"d": "m0"}},
        "carries": {"add": {"d": 0}},
        "starts": {"x": "[1{d}8, 16]"},
        "ends": [[0, "[1{d}8, 8]"]],
        "sources": [["x", "[8, 16]", "[1{d}8, 16]"]],
    }
    assert Schedule.from_json(text) == WHOLE
    assert str(WHOLE).splitlines()[0].strip() == "schedule on {d:8}"
    assert [line.split() for line in str(WHOLE).splitlines()[-2:]] == [
        ["x", "[1{d}8,", "16]"],
        ["dot_general", "m0", "by", "d"],
    ]


def test_what_is_kept_and_what_moves_beside_as_text() -> None:
    schedule = replace(WHOLE, keep=16, overlap=Overlap(None, ("w",), ()))
    form = json.loads(schedule.to_json())
    assert (form["keep"], form["overlap"]) == (16, {"window": None, "ahead": ["w"], "behind": []})
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert [line.strip() for line in str(schedule).splitlines()[-2:]] == [
        "moved values are kept for 16 operations",
        "moves run beside operations",
    ]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"format": "redistrib-plan"}, "its format is no redistrib-schedule of version 1"),
        ({"version": 2}, "its format is no redistrib-schedule of version 1"),
        ({"mesh": {"d": "many"}}, "axis 'd' has size 'many'; a mesh axis has a positive integer number of devices"),
        ({"mesh": "d=8"}, "'mesh' is 'd=8', and not an object"),
        ({"ends": [[float("inf"), "[8]"]]}, "a result of 'ends' is inf, and not an integer from 0 on"),
        ({"ends": [[True, "[8]"]]}, "a result of 'ends' is True, and not an integer from 0 on"),
        ({"ends": [[-1, "[8]"]]}, "a result of 'ends' is -1, and not an integer from 0 on"),
        ({"ends": [["0", "[8]"]]}, "a result of 'ends' is '0', and not an integer from 0 on"),
        ({"ends": [1]}, "'ends' is [1], and not a list of lists of 2"),
        ({"ends": {"0": "[8]"}}, "'ends' is {'0': '[8]'}, and not a list of lists of 2"),
        ({"sources": [["x", "[8]"]]}, "'sources' is [['x', '[8]']], and not a list of lists of 3"),
        ({"sources": [[["x"], "[8]", "[8]"]]}, "a value of 'sources' is ['x'], and not a text"),
        ({"cuts": []}, "'cuts' is [], and not an object"),
        ({"cuts": {"add": ["d"]}}, "'add' of 'cuts' is ['d'], and not an object"),
        ({"cuts": {"add": {"d": ["m0"]}}}, "axis 'd' of 'add' of 'cuts' is ['m0'], and not a text"),
        ({"cuts": {"add": {"d": None}}}, "axis 'd' of 'add' of 'cuts' is None, and not a text"),
        ({"cuts": {"add": {"e": "m0"}}}, "no axis 'e'"),
        ({"carries": {"add": {"d": 0.0}}}, "axis 'd' of 'add' of 'carries' is 0.0, and not an integer from 0 on"),
        ({"starts": {"x": [8]}}, "'x' of 'starts' is [8], and not a text"),
        ({"starts": {"x": "[3{d}8]"}}, "3"),
        ({"other": 1}, "it has a part 'other', which schedules have not"),
        ({"keep": -1}, "'keep' is -1, and not an integer from 0 on"),
        ({"overlap": []}, "'overlap' is [], and not an object"),
        ({"overlap": {"window": 1}}, "'overlap' has the parts ['window'], and not window, ahead, behind"),
        ({"overlap": {"window": 1, "ahead": "w", "behind": []}}, "'overlap' has 'w', and not a list of names"),
        ({"overlap": {"window": 1, "ahead": [1], "behind": []}}, "a name of 'overlap' is 1, and not a text"),
        ({"overlap": {"window": "1", "ahead": [], "behind": []}}, "the window of 'overlap' is '1', and not an integer"),
    ],
)
def test_a_text_that_is_no_schedule(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(CutError) as caught:
        Schedule.from_json(json.dumps({**json.loads(WHOLE.to_json()), **changed}))
    writes = "`redistrib search -o` and `to_json` write one"
    message = str(caught.value)
    assert message.startswith("the text is no schedule: ")
    assert message.endswith(f"; {writes}")
    assert why in message


def test_a_text_without_a_part_of_a_schedule() -> None:
    for part in ("mesh", "cuts", "carries", "starts", "ends", "sources"):
        form = json.loads(WHOLE.to_json())
        del form[part]
        with pytest.raises(CutError) as caught:
            Schedule.from_json(json.dumps(form))
        assert str(caught.value).startswith(f"the text is no schedule: it has no {part!r}; ")
    with pytest.raises(CutError) as caught:
        Schedule.from_json("[" * 100_000)
    says = "Stack overflow" if sys.version_info >= (3, 14) else "maximum recursion depth exceeded"
    assert str(caught.value).startswith(f"the text is no schedule: {says}")
    for text in ("[]", "7", "null"):
        with pytest.raises(CutError) as caught:
            Schedule.from_json(text)
        assert str(caught.value).startswith("the text is no schedule: the whole is ")


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (Schedule(Mesh.of("d=4"), {}, {}, {}, {}), "the schedule is for the mesh {d:4}, and not for {d:8}"),
        (
            Schedule(Mesh.of("d=8"), {"add": {"d": "i"}}, {}, {}, {}),
            "operation 'add': there is no such operation: the schedule is of another function",
        ),
        (
            Schedule(Mesh.of("d=8"), {}, {"add": {"d": 0}}, {}, {}),
            "operation 'add': there is no such operation: the schedule is of another function",
        ),
        (
            Schedule(Mesh.of("d=8"), {}, {}, {"z": DistType.of("[8, 16]")}, {}),
            "array 'z': the schedule is of a function of other arguments",
        ),
        (
            Schedule(Mesh.of("d=8"), {}, {}, {"x": DistType.of("[16, 8]")}, {}),
            "array 'x': the schedule is of a function of other arguments",
        ),
    ],
)
def test_a_whole_schedule_of_something_else(schedule: Schedule, why: str) -> None:
    with pytest.raises(CutError) as caught:
        rd.distribute(product, (X,), {"d": 8}, schedule=schedule)
    assert str(caught.value) == f"{why}"


@pytest.mark.parametrize(
    ("start", "error", "why"),
    [
        ("[1~{d}8, 16]", UnevenTypeError, "those of [1~{d}8, 16] are of unequal size or padded"),
        ("[2{d}8, 16]", TypeFormError, "dimension 0 of [2{d}8, 16]: 8 tiles of 2 make 16 elements, not 8"),
        ("[1{e}8, 16]", UnknownAxisError, "'e'"),
    ],
)
def test_a_whole_schedule_with_tiles_that_its_mesh_has_not(start: str, error: type[Exception], why: str) -> None:
    schedule = Schedule(Mesh.of("d=8"), {}, {}, {"x": DistType.of(start)}, {})
    with pytest.raises(error) as caught:
        rd.distribute(product, (X,), {"d": 8}, schedule=schedule)
    assert why in str(caught.value)
