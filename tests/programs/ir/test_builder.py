"""Programs made operation by operation, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import DtypeError, ProgramError
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.ops import REGISTER
from redistrib.programs.ir.program import Place, Value
from redistrib.programs.ir.spec import nest
from tests.messages import exactly
from tests.programs.time.mlp import on

ONE = Place(rd.Mesh(()))
TWO = Place(rd.Mesh.of("d=2"))
MATMUL = nest("ij,jk->ik", (8, 8, 8))


def test_summands_are_carried_without_being_asked_for() -> None:
    b = Builder()
    a, w = b.input("a", "[8, 4{d}8]", TWO), b.input("w", "[4{d}8, 8]", TWO)
    part = b.compute(MATMUL, a, w, cut={"j": "d"})
    v = b.input("v", "[8, 8]", TWO)
    made = b.compute(MATMUL, part, v)
    assert str(part.type) == str(made.type) == "[8, 8] sum{d}"
    assert [op.parts[0].carried for op in b.build(made).ops] == [(), (("d",), ())]


def test_results_get_names_of_their_own() -> None:
    b = Builder()
    a = b.input("a", "[8, 8]", on(0))
    made = [b.compute(MATMUL, a, a2) for a2 in (b.input("b", "[8, 8]", on(0)),) * 3]
    assert [value.name for value in made] == ["matmul", "matmul.1", "matmul.2"]


def test_a_value_moves_with_its_type_unless_told_otherwise() -> None:
    b = Builder()
    a = b.input("a", "[8, 4{d}8]", TWO)
    there = b.move(a, place=Place(TWO.mesh, (2, 3)))
    assert there.type == a.type and there.place.devices == (2, 3)
    plan = rd.synthesize("[8, 4{d}8]", "[4{d}8, 8]", "d=2")
    turned = b.move(a, plan=plan)
    assert turned.type == plan.target and turned.place.devices == (0, 1)
    assert b.build(there, turned).name == "main"


def test_a_program_is_called_twice() -> None:
    inner = Builder("product")
    x, y = (inner.input(name, "[8, 8]", on(0)) for name in "xy")
    product = inner.build(inner.compute(MATMUL, x, y))
    b = Builder()
    a = b.input("a", "[8, 8]", on(0))
    first = b.call(product, a, a)
    program = b.build(b.call(product, first, a, names=["z"]))
    assert program.outputs == ("z",) and [value.name for value in program.values.values()] == ["a", "product", "z"]


def wrong(what: str) -> Callable[[Builder, Value, Value], Any]:
    return {
        "shape": lambda b, a, v: b.compute(nest("ij->ij", (8, 4), name="copy"), a),
        "count": lambda b, a, v: b.compute(MATMUL, a),
        "nowhere": lambda b, a, v: b.compute(rd.nest("->i", {"i": 4}, name="zeros")),
        "dimension": lambda b, a, v: b.compute(MATMUL, a, a, cut={"z": "d"}),
        "division": lambda b, a, v: b.compute(nest("i->i", (7,), name="odd"), b.input("o", "[7]", TWO), cut={"i": "d"}),
        "place": lambda b, a, v: b.build(b.compute(MATMUL, a, v)),
        "name": lambda b, a, v: b.build(b.move(a, place=on(1), name="a")),
        "unplanned": lambda b, a, v: b.build(b.move(b.input("t", "[4{d}8, 8]", TWO), "[8, 8]")),
        "donated": lambda b, a, v: (b.donate(v, v), b.build(a)),
        "reshaped": lambda b, a, v: b.build(b.move(a, "[4, 16]", on(1))),
    }[what]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("shape", "operation 'copy', array 'a': it reads an array of shape (8, 4), and value 'a' has shape (8, 8)"),
        ("count", "operation 'matmul': it reads 2 arrays and 1 values are given"),
        ("nowhere", "operation 'zeros': it reads nothing, so nothing says where it runs; give place="),
        ("dimension", "operation 'matmul': no iteration dimension 'z'; it has i, j, k"),
        ("division", "operation 'odd': the cut {'i': ['d']} over {d:2} does not divide"),
        ("place", "operation 'matmul', array 'b': it needs [8, 8] on {}@0, and value 'v' is [8, 8] on {}@1"),
        ("name", "operation 'move a', array 'a': the value is defined a second time"),
        ("unplanned", "operation 'move t', array 't.1': no plan is given from [4{d}8, 8] to [8, 8]"),
        ("donated", "array 'v': it is donated twice, or is no input; donate a, v, once"),
        ("reshaped", "operation 'move a', array 'a.1': [8, 8] of float32 cannot become [4, 16] of float32"),
    ],
)
def test_what_is_wrong_is_said_with_the_operation(what: str, message: str) -> None:
    b = Builder()
    a, v = b.input("a", "[8, 8]", on(0)), b.input("v", "[8, 8]", on(1))
    with pytest.raises(ProgramError) as caught:
        wrong(what)(b, a, v)
    assert message in str(caught.value)


# ---------------------------------------------------------------------------------------- element types


def add(size: int = 4) -> Nest:
    return nest("i,i->i", (size,), fn=np.add, name="add")


def test_values_of_one_operation_have_one_element_type_or_the_result_is_given_one() -> None:
    b = Builder()
    one, other = b.input("x", "[4]", ONE, "int8"), b.input("y", "[4]", ONE, "float64")
    message = (
        "operation 'add': it reads 'x' of int8, 'y' of float64, and nothing says of which element type its result is; "
        "give dtype=, or make the values alike first"
    )
    with pytest.raises(ProgramError, match=exactly(message)):
        b.compute(add(), one, other)
    assert b.compute(add(), one, other, dtype="float64").dtype == "float64"
    assert b.compute(add(), one, one).dtype == "int8"
    with pytest.raises(DtypeError, match="float33"):
        b.compute(add(), one, one, dtype="float33")
    with pytest.raises(DtypeError, match="float33"):
        b.input("z", "[4]", one.place, "float33")


def test_an_array_beside_a_value_takes_its_element_type_where_that_has_its_elements() -> None:
    for dtype, array, kept in (
        ("float32", np.array([1, 2]), True),
        ("int32", np.array([1, 2**40]), False),
        ("int8", np.array([1.0, 2.5]), False),
        ("float32", np.array([np.nan, -np.inf]), True),
        ("uint8", np.array([-1, 1]), False),
        ("bfloat16", np.array([1.0, 2.0], np.float32), True),
        ("bfloat16", np.array([1.0, 2.001], np.float32), False),
    ):
        b = Builder()
        x = b.input("x", "[2]", ONE, dtype)
        if kept:
            assert REGISTER.apply(b, "add", x, array).dtype == dtype
        else:
            with pytest.raises(ProgramError, match="nothing says of which element type"):
                REGISTER.apply(b, "add", x, array)
