"""Programs made by hand: what is right, what is refused, and that both interpreters agree on places and calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from redistrib.errors import ProgramError, TilesError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.programs.ir.check import check
from redistrib.programs.ir.program import Call, Compute, Move, Place, Program, Value
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.reference import collect, distribute, run_by_rank, run_whole
from redistrib.programs.ir.spec import nest
from redistrib.synthesis.synthesize import synthesize
from tests.messages import exactly

LINE = Mesh.of("x=2")
LEFT, RIGHT = Place(LINE, (0, 1)), Place(LINE, (2, 3))
ROWS, COLUMNS = DistType.of("[2{x}4, 4]"), DistType.of("[4, 2{x}4]")
ADD_ONE = nest("ij->ij", (4, 4), name="add one", fn=lambda a: a + 1)
TRIPLE = nest("ij->ij", (4, 4), name="triple", fn=lambda a: 3 * a)
X = np.arange(16).reshape(4, 4)


def value(name: str, form: DistType = ROWS, place: Place = LEFT) -> Value:
    return Value(name, form, place, "int64")


def compute(made: Any, source: str, out: Value) -> Compute:
    return Compute(made.name, (ScheduledNest(made, out.type),), out.place, (("a", source),), (("out", out),))


def plan(source: DistType, target: DistType) -> Plan:
    return synthesize(source, LINE, target, LINE, dtype="int64")


def both(program: Program, *arrays: np.ndarray) -> list[np.ndarray]:
    whole, ranks = run_whole(program, arrays), run_by_rank(program, arrays)
    assert all(np.array_equal(a, b) for a, b in zip(whole, ranks, strict=True))
    return ranks


def test_two_stages_on_two_places() -> None:
    """Stage by stage on sub-meshes with numbers of the whole machine; what crosses is counted."""
    across = Move("h", value("g", COLUMNS, RIGHT), None)
    program = check(
        Program(
            (value("x"),),
            (
                compute(ADD_ONE, "x", value("h")),
                across,
                compute(TRIPLE, "g", value("y", COLUMNS, RIGHT)),
            ),
            ("y",),
        )
    )
    assert program.devices == (0, 1, 2, 3)
    assert program.received(across) == {0: 0, 1: 0, 2: 8, 3: 8}
    assert np.array_equal(both(program, X)[0], 3 * (X + 1))


def test_a_move_to_a_place_that_shares_a_device() -> None:
    across = Move("x", value("y", ROWS, Place(LINE, (1, 2))), None)
    program = check(Program((value("x"),), (across,), ("y",)))
    assert program.received(across) == {0: 0, 1: 8, 2: 8}  # device 1 held the second half and needs the first
    stays = Move("x", value("y", ROWS, Place(LINE, (0, 2))), None)
    assert Program((value("x"),), (stays,), ("y",)).received(stays) == {0: 0, 1: 0, 2: 8}
    assert np.array_equal(both(program, X)[0], X)


def test_calls_run_another_program() -> None:
    inner = Program((value("a"),), (compute(ADD_ONE, "a", value("b")),), ("b",), name="layer")
    program = check(
        Program((value("x"),), (Call(inner, ("x",), (value("h"),)), Call(inner, ("h",), (value("y"),))), ("y",))
    )
    assert np.array_equal(both(program, X)[0], X + 2)
    assert program.received_bytes == 0


def test_devices_in_another_order_hold_the_same() -> None:
    turned = Value("t", ROWS, Place(Mesh(LINE.axes, (1, 0)), (1, 0)), "int64")
    assert turned.means(value("x"))
    assert not Value("t", ROWS, Place(LINE, (1, 0)), "int64").means(value("x"))
    assert not value("x", ROWS, RIGHT).means(value("x"))


MOVED = (Move("x", value("y", COLUMNS), plan(ROWS, COLUMNS)),)


def test_a_planned_move() -> None:
    program = check(Program((value("x"),), MOVED, ("y",)))
    assert program.received(program.moves[0]) == {0: 4, 1: 4}
    assert program.received_bytes == 8 * 8
    assert np.array_equal(both(program, X)[0], X)


@pytest.mark.parametrize(
    ("ops", "outputs", "message"),
    [
        (
            (compute(ADD_ONE, "z", value("y")),),
            ("y",),
            (
                "operation 'add one', array 'z': the value is not defined before; order the operations so "
                "that it is there"
            ),
        ),
        (
            (compute(ADD_ONE, "x", value("x")),),
            ("x",),
            ("operation 'add one', array 'x': the value is defined a second time; give every result a new name"),
        ),
        ((), ("y",), "array 'y': the program ends with a value that it does not hold"),
        (
            (compute(ADD_ONE, "x", value("y", COLUMNS)),),
            ("y",),
            (
                "operation 'add one', array 'a': it needs [4, 2{x}4] on {x:2}@0,1, and value 'x' is "
                "[2{x}4, 4] on {x:2}@0,1; move the value first"
            ),
        ),
        (
            (replace(compute(ADD_ONE, "x", value("y")), outs=(("out", value("y", COLUMNS)),)),),
            ("y",),
            "operation 'add one', array 'out': it makes [2{x}4, 4], and value 'y' is [4, 2{x}4]",
        ),
        (
            (replace(compute(ADD_ONE, "x", value("y")), ins=()),),
            ("y",),
            "operation 'add one': it reads a, given []",
        ),
        (
            (replace(compute(ADD_ONE, "x", value("y")), outs=(("b", value("y")),)),),
            ("y",),
            "operation 'add one', array 'b': the operation does not write this array",
        ),
        (
            (Move("x", value("y", COLUMNS), None),),
            ("y",),
            "operation 'move x', array 'y': no plan is given from [2{x}4, 4] to [4, 2{x}4]",
        ),
        (
            (Move("x", value("y"), MOVED[0].plan),),
            ("y",),
            "operation 'move x', array 'y': the value is [2{x}4, 4], and its plan has [4, 2{x}4]",
        ),
        (
            (Move("x", value("y", COLUMNS, RIGHT), MOVED[0].plan),),
            ("y",),
            "operation 'move x', array 'y': a plan moves data between the same devices; leave the plan out",
        ),
        (
            (Move("x", replace(value("y"), dtype="int8"), None),),
            ("y",),
            "operation 'move x', array 'y': [2{x}4, 4] of int64 cannot become [2{x}4, 4] of int8",
        ),
        (
            (Call(Program((), (), ()), ("x",), ()),),
            ("x",),
            "operation 'main': values x: [2{x}4, 4] stand for none",
        ),
        (
            (compute(ADD_ONE, "x", value("y", DistType.of("[3{x}4, 4]"))),),
            ("y",),
            (
                "operation 'add one': the cut of (i, j): dimension 0 of [3{x}4, 4]: 2 tiles of 3 make 6 "
                "elements, not 4; write 2{x}4"
            ),
        ),
    ],
)
def test_programs_that_are_wrong(ops: tuple[Any, ...], outputs: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProgramError, match=exactly(message)):
        check(Program((value("x"),), ops, outputs))


def test_places_name_each_device_once() -> None:
    with pytest.raises(ProgramError, match=exactly("mesh {x:2} needs 2 different devices, got (0, 0)")):
        Place(LINE, (0, 0))
    with pytest.raises(ProgramError, match=exactly("mesh {x:2} needs 2 different devices, got (0, 1, 2)")):
        Place(LINE, (0, 1, 2))


def test_summands_are_split_and_reduced() -> None:
    for kind in ("sum", "max", "min"):
        summed = value("s", DistType.of(f"[4, 4] {kind}{{x}}"))
        tiles = distribute(X - 7, summed)
        assert not np.array_equal(tiles[0], tiles[1])
        assert np.array_equal(collect(tiles, summed), X - 7)


def test_replicas_that_differ_are_found() -> None:
    whole = value("w", DistType.of("[4, 4]"))
    with pytest.raises(
        TilesError, match=exactly("value 'w': devices 0 and 1 hold the same tile (0, 0) with different contents")
    ):
        collect({0: X, 1: X + 1}, whole)
