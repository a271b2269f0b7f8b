"""Plans that no synthesis makes: one error each, in time and memory that grow no faster than the text."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redistrib import errors
from redistrib.plans._exact_cover import first_not_filled_once, overlapping, times_covered, wrong_cell
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.plan import Plan
from redistrib.plans.steps import Exchange, ReduceExchange
from redistrib.plans.verify import verify
from tests.hostile import soon
from tests.messages import exactly
from tests.plans.edits import edited, sealed
from tests.plans.hand import GOOD, place, plan, shares
from tests.plans.hand_partial import PARTIAL


def refusal(text: str) -> str:
    with pytest.raises(errors.PlanJsonError) as caught, soon():
        Plan.from_json(text)
    return str(caught.value)


def test_a_repeated_key_among_many_is_found() -> None:
    keys = [f'"k{k}":0' for k in range(60_000)]
    assert refusal("{" + ",".join([*keys, keys[-1]]) + "}") == "k59999 is given twice"


@pytest.mark.parametrize("depth", [100, 400, 990, 100_000])
def test_nested_json_is_refused(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "0" + "}" * depth):
        refusal(text)
        refusal(f'{{"format":{text}}}')
        refusal(f'{{"format":"redistrib-plan","version":{text}}}')
    try:
        form = {**json.loads(GOOD["slice"]().to_json()), "dtype": json.loads("[" * depth + "]" * depth)}
        refusal(sealed(form))
    except RecursionError:  # nothing to read: Python cannot write it either
        assert depth > 900


def test_what_is_nested_too_deep_says_so() -> None:
    assert refusal("[" * 100_000) == "the text is not a plan: it is nested too deep to be read, where a plan is 6 deep"


def test_many_placements_are_refused_before_they_are_made() -> None:
    form = json.loads(GOOD["slice"]().to_json())
    text = json.dumps({**form, "placements": ["HERE"]})
    many = ",".join(['{"grid":[1],"index":[[0],[0]]}'] * 100_000)
    tracemalloc.start()
    try:
        message = refusal(text.replace('"HERE"', many))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message == "the text is not a plan: it has more than 4096 objects"
    assert peak < 64 << 20


@pytest.mark.parametrize("cost", [10**4000, 10**301])
def test_a_price_that_no_float_holds_is_refused(cost: int) -> None:
    assert refusal(edited("slice", "cost", value=cost)) == (
        f"cost is 1{'0' * 76}..., which is not a cost from 0 to 1e+300"
    )


def test_every_plan_that_is_read_can_be_printed() -> None:
    for cost in (10**300, 1e300, 0):
        read = Plan.from_json(edited("slice", "cost", value=cost))
        assert str(read)
    large = "[" + ", ".join(["4611686018427387904"] * 8) + "]"
    assert "received" in str(plan(large, large, "x=2"))


def test_a_memory_limit_is_of_64_bits() -> None:
    assert refusal(edited("slice", "memory_limit", value=2**63)) == (
        "memory_limit is 9223372036854775808, a limit is a number of bytes from 1 to 9223372036854775807 or null"
    )


def test_a_grid_is_of_64_bits() -> None:
    """Without elements any count of tiles divides the dimension."""
    form = json.loads(plan("[0{x}0, 4]", "[0, 4]", "x=2").to_json())
    form["placements"] = [{"grid": [2**63, 1], "index": [[0, 0], [1, 0]]}]
    assert refusal(sealed(form)) == "placements[0].grid has a number that does not fit 64 bits"


@pytest.mark.parametrize(
    "dtype",
    ["float8_e99m99fn", "float8_e4m3fnu", "float6_e4m3", "bfloat8", "M8[ns]", "m8", "V8", "void64", "S3", "<U3", "a5",
     "f4\n", " f4", "f" * 100_000, "float32,float32", "(2,)f4", "O", "f4" * 50_000],
    ids=str.__len__,
)  # fmt: skip
def test_what_holds_no_numbers_is_no_element_type(dtype: str) -> None:
    with pytest.raises(errors.DtypeError) as caught, soon():
        itemsize_of(dtype)
    assert len(str(caught.value)) < 200


def test_every_type_of_ml_dtypes_is_an_element_type() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kinds = {name: kind for name, kind in vars(ml_dtypes).items() if isinstance(kind, type)}
    found = [name for name, kind in kinds.items() if issubclass(kind, np.generic)] or [
        name for name in kinds if name.startswith(("bfloat", "float", "int", "uint"))
    ]
    assert "float8_e4m3fn" in found
    for name in found:
        assert itemsize_of(name) == np.dtype(kinds[name]).itemsize


# ----------------------------------------------------------------------------------------------- exchanges


def pulled_in_rows(rows: int, without: int | None = None, moved: int | None = None) -> Plan:
    """Two devices swap halves of an array, one row a share; one share may be left out or sent in place of another."""
    source, target, mesh = f"[{rows}{{x}}{2 * rows}]", f"[{rows}{{x}}{2 * rows}]", "x=2"
    before = place(source, mesh)
    after = replace(before, index=before.index[::-1])
    table = [(1 - d, d, k, [(1 - d) * rows + k], [1]) for d in (0, 1) for k in range(rows)]
    if moved is not None:
        table[moved] = (*table[moved][:3], [table[moved][3][0] - 1], [1])
    if without is not None:
        del table[without]
    back = [(1 - d, d, k, [d * rows + k], [1]) for d in (0, 1) for k in range(rows)]
    there = Exchange(before, after, shares(*table))
    return plan(source, target, mesh, there, Exchange(after, before, shares(*back)))


def test_a_hole_among_many_shares_is_found_soon() -> None:
    assert verify(pulled_in_rows(40))
    with pytest.raises(errors.VerificationError) as caught, soon():
        verify(pulled_in_rows(4000, without=3999))
    assert caught.value.rule == "uncovered tile"
    assert str(caught.value) == (
        "step 1 (exchange) fills only 3999 of the 4000 elements [4000:8000] of device 0; what it keeps and what it "
        "receives must fill its tile"
    )


def test_an_overlap_among_many_shares_is_found_soon() -> None:
    with pytest.raises(errors.VerificationError) as caught, soon():
        verify(pulled_in_rows(4000, moved=2000))
    assert caught.value.rule == "overlapping shares"
    assert str(caught.value) == (
        "step 1 (exchange) fills [5999:6000] of device 0 twice: device 1 sends [5999:6000] and device 1 sends "
        "[5999:6000]"
    )


def test_boxes_cut_along_many_dimensions_are_refused() -> None:
    """A box has two corners for each dimension it is cut along."""
    rank = 30
    source = "[2{x}4" + ", 2" * (rank - 1) + "]"
    target = "[4" + ", 2" * (rank - 1) + "]"
    before, after = place(source, "x=2"), place(target, "x=2")
    corner = shares((1, 0, 0, [2] + [0] * (rank - 1), [1] * rank))
    with pytest.raises(errors.VerificationError) as caught, soon():
        verify(plan(source, target, "x=2", Exchange(before, after, corner)))
    assert caught.value.rule == "share rank"
    assert str(caught.value) == (
        "step 1 (exchange) has boxes that are parts of tiles along 30 dimensions, which can be checked along at most "
        "10; send larger boxes"
    )


@given(st.data())
def test_boxes_that_fill_a_tile_once_and_boxes_that_do_not(data: st.DataObject) -> None:
    """Against counting how often each element is filled."""
    tile = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))

    def cut(low: list[int], high: list[int], depth: int) -> list[tuple[list[int], list[int]]]:
        i = data.draw(st.integers(0, len(tile) - 1))
        if depth == 0 or high[i] - low[i] < 2:
            return [(low, high)]
        at = data.draw(st.integers(low[i] + 1, high[i] - 1))
        left, right = [*high[:i], at, *high[i + 1 :]], [*low[:i], at, *low[i + 1 :]]
        return cut(low, left, depth - 1) + cut(right, high, depth - 1)

    boxes = cut([0] * len(tile), tile, 3)
    for _ in range(data.draw(st.integers(0, 2))):
        boxes[data.draw(st.integers(0, len(boxes) - 1))] = data.draw(st.sampled_from(boxes))
    if data.draw(st.booleans()):
        boxes.append(data.draw(st.sampled_from(boxes)))
    low, high = (np.array([box[k] for box in boxes], dtype=np.int64) for k in (0, 1))
    times: Any = np.zeros(tile, dtype=int)
    for one, other in boxes:
        times[tuple(slice(a, b) for a, b in zip(one, other, strict=True))] += 1
    extent = np.array(tile, dtype=np.int64)
    fault = first_not_filled_once(low, high, np.zeros(len(boxes), dtype=np.int64), extent[None])
    assert (fault is None) == bool((times == 1).all())
    if fault is not None:
        start, stop, count = wrong_cell(low, high, 0 * extent, extent)
        cell = times[tuple(map(slice, start.tolist(), stop.tolist()))]
        assert cell.size
        assert (cell == count).all()
        assert count != 1
    borders = [np.arange(n + 1) for n in tile]
    assert (times_covered(low, high, borders) == times).all()
    if fault is not None and times.sum() >= extent.prod():
        i, j = overlapping(low, high, 0 * extent, extent)
        assert i < j
        assert (np.maximum(low[i], low[j]) < np.minimum(high[i], high[j])).all()


# ------------------------------------------------------------------------------------------------ summands


def edited_sum(name: str, *path: str | int, value: Any) -> str:
    form = json.loads(PARTIAL[name]().to_json())
    here = form
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return sealed(form)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("reduce-exchange", ("steps", 0, "splits"), [0] * 100_000),
        ("reduce-exchange", ("steps", 0, "splits"), [10**4000, 10**4000]),
        ("reduce-exchange", ("placements", 0, "summands"), 10**4000),
        ("reduce-exchange", ("placements", 0, "summand"), [2**63] * 8),
        ("reduce-exchange", ("placements", 0, "reduction"), "sum" * 100_000),
        ("reduce-exchange", ("placements", 0, "reduction"), [["sum"]]),
        ("reduce-exchange", ("accumulate",), "f4" * 50_000),
        ("reduce-exchange", ("order",), "fixed" * 50_000),
        ("reduce-exchange", ("source", "type"), "[16, 8] sum{" + ",".join(["x"] * 65) + "}"),
        ("cut to partial", ("steps", 0, "keeps"), [10**4000]),
    ],
)
def test_values_of_summands_are_refused(name: str, path: tuple[str | int, ...], value: object) -> None:
    assert len(refusal(edited_sum(name, *path, value=value))) < 500


def test_devices_that_keep_their_tile_are_not_listed_at_length() -> None:
    with pytest.raises(errors.VerificationError) as caught, soon():
        Plan.from_json(edited_sum("cut to partial", "steps", 0, "keeps", value=[0] * 100_000))
    assert len(str(caught.value)) < 500


def added(kind: str, extent: list[int], boxes: list[tuple[list[int], list[int]]]) -> Plan:
    """Two summands on two devices: device 1 sends its own as these boxes, device 0 as one."""
    whole = f"[{', '.join(map(str, extent))}]"
    before, after = place(f"{whole} {kind}{{x}}", "x=2"), place(whole, "x=2")
    rows = [(1, 0, k, start, size) for k, (start, size) in enumerate(boxes)]
    step = ReduceExchange(before, after, shares((0, 1, 0, [0] * len(extent), extent), *rows), "ragged")
    return plan(f"{whole} {kind}{{x}}", whole, "x=2", step)


def in_four(count: int) -> list[tuple[list[int], list[int]]]:
    """Layers of a cube, each cut into four at a place of its own."""
    n = count + 2
    cuts = [((0, k + 1), (k + 1, n)) for k in range(n - 1)]
    return [
        ([k, a, c], [1, b - a, d - c]) for k, parts in enumerate([*cuts, cuts[0]]) for a, b in parts for c, d in parts
    ]


def test_the_place_of_a_missing_summand_is_found_soon() -> None:
    boxes = in_four(2000)
    with soon():
        verify(added("sum", [2002] * 3, boxes))
    with pytest.raises(errors.VerificationError) as caught, soon():
        verify(added("sum", [2002] * 3, boxes[:4001] + boxes[4002:]))
    assert str(caught.value) == (
        "step 1 (reduce_exchange) has device 0 add partial sum 1 of [1000:1001, 0:1001, 1001:2002] 0 times; "
        "a sum has each once"
    )


def test_a_maximum_over_too_many_cells_is_refused() -> None:
    with (
        pytest.raises(
            errors.VerificationError,
            match=exactly(
                "step 1 (reduce_exchange) cuts tiles into more than 16777216 cells, which are too many "
                "to be checked; send fewer or larger boxes"
            ),
        ),
        soon(),
    ):
        verify(added("max", [2002] * 3, in_four(2000)))
    verify(added("max", [42] * 3, in_four(40)))


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_summands_in_parts_along_many_dimensions_are_refused(kind: str) -> None:
    boxes = [([0] * i + [1] + [0] * (39 - i), [1] * i + [1] + [2] * (39 - i)) for i in range(40)]
    with (
        pytest.raises(
            errors.VerificationError,
            match=exactly(
                "step 1 (reduce_exchange) has boxes that are parts of tiles along 40 dimensions, which "
                "can be checked along at most 10; send larger boxes"
            ),
        ),
        soon(),
    ):
        verify(added(kind, [2] * 40, [*boxes, ([0] * 40, [1] * 40)]))
