"""Subsets with rank variables, evaluated for every device beside its tile of numbered elements."""

from __future__ import annotations

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import TypeFormError, UnevenTypeError
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Place, Value
from redistrib.programs.ir.windows import Reach

CASES = [
    ("[2{i}4, 4{j}8, 5{k}5]", "i=2,j=2,k=1", "x[2*i : 2*i+2, 4*j : 4*j+4, 0 : 5]"),
    ("[1{i}4, 3]", "i=4", "x[i : i+1, 0 : 3]"),
    ("[3{x}12, 2]", "x=4,y=3", "x[3*x : 3*x+3, 0 : 2]"),
    ("[3{y,x}18, 2]", "x=3,y=2", "x[6*x+3*y : 6*x+3*y+3, 0 : 2]"),
    ("[3{x,y}18, 2]", "x=3,y=2", "x[9*y+3*x : 9*y+3*x+3, 0 : 2]"),
    ("[4~{x}11, 3]", "x=3", "x[3*x+min(x, 2) : 3*(x+1)+min(x+1, 2), 0 : 3]"),
    ("[1~{x}2]", "x=3", "x[min(x, 2) : min(x+1, 2)]"),
    ("[4~{x}12, 3]", "x=3", "x[4*x : 4*x+4, 0 : 3]"),
    ("[4^{x}10, 3]", "x=3", "x[4*x : min(4*x+4, 10), 0 : 3]"),
    ("[2^{x}5]", "x=4", "x[min(2*x, 5) : min(2*x+2, 5)]"),
    ("[4{x}11+1]", "x=3", "x[4*x : min(4*x+4, 11)]"),
    ("[4{x}8] sum{y}", "x=2,y=2", "x[4*x : 4*x+4] sum{y}"),
    ("[]", "x=2", "x[]"),
]


def evaluated(text: str, numbers: np.ndarray, coordinates: dict[str, int]) -> np.ndarray:
    """The part of an array that the text stands for on a device."""
    bounds = text.partition("[")[2].rpartition("]")[0]
    index = eval(f"np.s_[{bounds or '()'}]", {"np": np, "min": min, "max": max}, coordinates)
    return np.asarray(numbers[index])


@pytest.mark.parametrize(("form", "mesh", "text"), CASES)
def test_the_text_stands_for_the_tile_of_every_device(form: str, mesh: str, text: str) -> None:
    assert rd.subset(form, mesh) == text
    over, shape = rd.Mesh.of(mesh), rd.DistType.parse(form).global_shape
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    for device in over.devices:
        coordinates = dict(zip(over.names, over.coordinates[device].tolist(), strict=True))
        tile = rd.tile_of(numbers, form.partition(" sum")[0], mesh, device)
        if "+1]" in form:  # elements of no array are no part of it
            tile = tile[: len(evaluated(text, numbers, coordinates))]
        np.testing.assert_array_equal(evaluated(text, numbers, coordinates), tile)


def test_the_constraints_of_a_schedule() -> None:
    """Section 4.3 of the work partitioning thesis: x[4, 8, 16] + y[8, 16] on the grid (2, 2, 1)."""
    add = rd.nest("ijk,jk->ijk", (4, 8, 16), reads=["x", "y"], fn=lambda x, y: x + y, name="ADD_MAP")
    program = rd.partition(add, {"ADD_MAP": (2, 2, 1)})
    assert [value.subset for value in program.values.values()] == [
        "x[2*r0 : 2*r0+2, 4*r1 : 4*r1+4, 0 : 16]",
        "y[4*r1 : 4*r1+4, 0 : 16]",
        "out[2*r0 : 2*r0+2, 4*r1 : 4*r1+4, 0 : 16]",
    ]


def test_windows_overlap() -> None:
    """A device reads one element more than it has points: the row pointers of a sparse matrix."""
    lengths = Nest(
        "lengths", {"i": 8}, [Access("p", (("i",),), windows=(2,))], [Access("n", (("i",),))],
        body=lambda at, p: p[1:] - p[:-1],
    )  # fmt: skip
    rows = rd.partition(lengths, {"lengths": (2,)}, root=True).moves[0].out
    assert rows.subset.partition("[")[2] == "4*r0 : 4*r0+5]"


@pytest.mark.parametrize("reach", [Reach(4, -1, 6), Reach(4, 0, 5), Reach(4, -9, 6), Reach(4, 3, 2)])
def test_halos_are_clipped_at_the_ends_of_the_array(reach: Reach) -> None:
    value = Value("x", rd.DistType.parse("[4{d}16]"), Place(rd.Mesh.of("d=4")), windows=(reach,))
    numbers = np.arange(16)
    for device, box in enumerate(value.boxes.rows()):
        expected = numbers[box.start[0] : box.start[0] + box.size[0]]
        np.testing.assert_array_equal(evaluated(value.subset, numbers, {"d": device}), expected)


def test_refusals() -> None:
    why = r"a subset with several rank variables in one dimension takes tiles of one size, and those of \[2~"
    with pytest.raises(UnevenTypeError, match=why):
        rd.subset("[2~{x,y}7]", "x=2,y=2")
    with pytest.raises(TypeFormError, match="2 tiles of 3"):
        rd.subset("[3{x}8]", "x=2")
