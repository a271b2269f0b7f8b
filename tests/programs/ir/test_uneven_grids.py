"""Grids that do not divide a range: arrays keep their shapes, and every point is worked on once."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.errors import CutError, ProgramError
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.ir.text import bodies_of, to_text
from tests.messages import exactly

SIZES = (1, 3, 4)
PARTS = (1, 2, 5)


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(math.prod(shape)).integers(-9, 9, shape)


def equal(program: Any, arrays: list[Any], *expected: Any) -> None:
    for run in (run_whole, run_by_rank):
        for result, whole in zip(run(program, arrays), expected, strict=True):
            np.testing.assert_array_equal(result, whole)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("sizes", [*itertools.product((1, 3), (3, 4), (1, 4))])
def test_products_under_all_grids(sizes: tuple[int, int, int], root: bool) -> None:
    a, b = drawn(*sizes[:2]), drawn(*sizes[1:])
    for grid in itertools.product((1, 2), PARTS, PARTS):
        program = rd.partition(rd.nest("ij,jk->ik", sizes), {"matmul": grid}, root=root, dtype="int64")
        equal(program, [a, b], a @ b)


def test_every_point_is_worked_on_once_and_no_other() -> None:
    for size, parts, start, step in itertools.product((1, 5, 7), (2, 3, 8), (0, 3), (1, 4)):
        over, worked = range(start, start + step * size, step), Counter[int]()

        def body(at: Any, x: Any, worked: Counter[int] = worked) -> Any:
            worked.update(at["i"])
            assert len(x) == len(at["i"])
            return x * np.array(at["i"])

        counted = Nest(
            "counted", {"i": over}, [Access("x", (("i",),))], [Access("y", (("i",),))], indexed={"i"}, body=body
        )
        program = rd.partition(counted, {"counted": (parts,)}, dtype="int64")
        (result,) = run_by_rank(program, [np.arange(size)])
        assert result.tolist() == [k * i for k, i in enumerate(over)]
        idle = sum(-(-size // parts) * device >= size for device in range(parts))
        worked.subtract({over[0]: idle})  # a device without points runs one for the element type
        assert worked == Counter(over)


def test_heads_of_attention_are_cut_and_their_elements_stay_together() -> None:
    """6 heads over 4: a device has 2 of them, or none, of 8 elements each."""
    out = rd.nest("s(hd),(hd)k->sk", (4, 6, 8, 5), name="out")
    x, w = drawn(4, 48), drawn(48, 5)
    program = rd.partition(out, {"out": {"h": 4}}, dtype="int64")
    assert [value.form for value in program.inputs] == ["[4, 16{r1}48+16]", "[16{r1}48+16, 5]"]
    assert program.inputs[0].subset == "a[0 : 4, 16*r1 : min(16*r1+16, 48)]"
    equal(program, [x, w], x @ w)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize(
    ("spec", "sizes", "grid"), [("ij->j", (0, 5), (4, 1)), ("ij->j", (0, 5), (1, 4)), ("(ij)->", (0, 5), (1, 4))]
)
def test_arrays_without_elements(spec: str, sizes: tuple[int, int], grid: tuple[int, int], root: bool) -> None:
    nest = rd.nest(spec, sizes, name="empty")
    program = rd.partition(nest, {"empty": grid}, root=root, dtype="int64")
    equal(program, [np.zeros(nest.shape(nest.reads[0]), int)], np.zeros(nest.shape(nest.writes[0]), int))


def test_vocabulary() -> None:
    """50,257 rows over 8: 6,283 for each, the last has 7 fewer."""
    one = rd.nest("vd,d->v", (50257, 2), name="logits")
    program = rd.partition(one, {"logits": {"v": 8}}, dtype="int64")
    assert [value.form for value in program.inputs] == ["[6283{r0}50257+7, 2]", "[2]"]
    a, b = drawn(50257, 2), drawn(2)
    equal(program, [a, b], a @ b)


def test_text_has_the_padding() -> None:
    program = rd.partition(rd.nest("ij,jk->ik", (7, 4, 5)), {"matmul": (2, 1, 2)}, root=True)
    text = to_text(program)
    assert "%a: [8{}7+1, 4] float32" in text and "[4{r0}7+1, 4]" in text
    assert to_text(parse(text, bodies_of(program))) == text


def test_types_of_inputs_and_outputs_have_the_shapes_of_the_arrays() -> None:
    a, b = drawn(7, 4), drawn(4, 5)
    product = rd.nest("ij,jk->ik", (7, 4, 5))
    for inputs in ({"a": "[7, 4]"}, {"a": "[7, 2{r0}4]"}, {"a": "[4{r0}7+1, 4]"}, {"a": "[8{}7+1, 4]"}):
        for outputs in ({"out": "[7, 5]"}, {"out": "[4{r0}7+1, 5]"}, ["out"]):
            program = rd.partition(product, {"matmul": (2, 1, 1)}, inputs=inputs, outputs=outputs, dtype="int64")
            assert [value.array_shape for value in program.inputs] == [(7, 4), (4, 5)]
            equal(program, [a, b], a @ b)
    for form in ("[4{r0}8, 4]", "[5{r0}7+3, 4]", "[6, 4]"):
        message = (
            f"array 'a': it is to be {form}, and its shape is [7, 4], with padding of [1, 0] elements where it is cut, "
            f"as in [4{{r0}}7+1, 4]; take grids that divide it, or a type with this padding"
        )
        with pytest.raises(ProgramError, match=exactly(message)):
            rd.partition(product, {"matmul": (2, 1, 1)}, inputs={"a": form})


def test_what_is_read_in_windows_is_cut_by_grids_that_divide_it_alone() -> None:
    rows = Nest("rows", {"i": 9}, [Access("p", (("i",),), windows=(2,))], [Access("q", (("i",),))])
    longer = Nest("longer", {"k": 10}, [], [Access("p", (("k",),))])
    for nests, grids in (([rows], {"rows": (2,)}), ([longer, rows], {"longer": (4,), "rows": (3,)})):
        with pytest.raises(CutError, match="'rows', array 'p': it is read in windows; take grids that divide them"):
            rd.partition(nests, grids)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_chains(data: st.DataObject) -> None:
    """Two products and a map between them, under grids that neither divide nor fit one another."""
    sizes = data.draw(st.tuples(*[st.integers(1, 9)] * 4))
    ranks = data.draw(st.sampled_from([1, 2, 4, 6]))

    def grid(rank: int) -> tuple[int, ...]:
        return data.draw(
            st.sampled_from(
                [g for g in itertools.product(range(1, ranks + 1), repeat=rank) if ranks % math.prod(g) == 0]
            )
        )

    i, j, k, m = sizes
    nests = [
        rd.nest("ij,jk->ik", (i, j, k), name="up", reads=["x", "w"], writes="h"),
        rd.nest("ik->ki", (i, k), name="act", reads=["h"], writes="g", fn=lambda h: h * (h > 0) + 1),
        rd.nest("ki,km->im", (k, i, m), name="down", reads=["g", "v"], writes="y"),
    ]
    schedule = {"up": grid(3), "act": grid(2), "down": grid(3)}
    root = data.draw(st.booleans())
    program = rd.partition(nests, schedule, ranks=ranks, root=root, outputs=["g", "y"], dtype="int64")
    x, w, v = drawn(i, j), drawn(j, k), drawn(k, m)
    h = x @ w
    g = (h * (h > 0) + 1).T
    equal(program, [x, w, v], g, g.T @ v)
