"""Programs as text: printed, read back, and refused where they cannot be read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import Place, Program
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.reference import run_whole
from redistrib.programs.ir.text import bodies_of, to_text
from tests.messages import exactly
from tests.programs.ir.nests import CASES, MESHES, cuts, program_of
from tests.programs.time.drawn import arrays_for, programs
from tests.programs.time.mlp import data_parallel, pipelined


def round_trip(program: Program) -> None:
    text = to_text(program)
    assert parse(text, bodies_of(program)) == program
    assert to_text(parse(text, bodies_of(program))) == text


@settings(max_examples=100, deadline=None)
@given(programs())
def test_what_is_printed_is_read_back(program: Program) -> None:
    round_trip(program)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.nest.name)
def test_every_kind_of_nest(case: object) -> None:
    one = case.nest  # type: ignore[attr-defined]
    for mesh in MESHES:
        cut = list(cuts(one, mesh))[-1]
        try:
            program = program_of(ScheduledNest(one, cut), mesh)
        except ProgramError:  # a cut that is refused makes no program
            continue
        round_trip(program)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@settings(max_examples=200, deadline=None)
@given(st.lists(names, min_size=8, max_size=8, unique=True))
def test_every_name(given_names: list[str]) -> None:
    one, read, written, value, made, i, axis, program = given_names
    b = Builder(program)
    a = b.input(value, rd.DistType((rd.DimType(2, (axis,), 4),)), Place(Mesh((rd.Axis(axis, 2),))))
    touched = [Access(read, ((i,),))], [Access(written, ((i,),))]
    own = Nest(one, {i: range(3, 11, 2)}, *touched, combine={}, fills="max", body=abs)  # type: ignore[arg-type]
    round_trip(b.build(b.compute(own, a, cut={i: (axis,)}, names=[made])))


def test_meshes_in_another_order_and_summands() -> None:
    mesh = Mesh.of("x=2,y=2")
    turned = replace(mesh, devices=(0, 2, 1, 3))
    b = Builder()
    a = b.input("a", "[4{x}8, 4{y}8]", Place(turned, (5, 3, 1, 7)))
    round_trip(b.build(b.compute(rd.nest("ij->i", (8, 8)), a, cut={"i": "x", "j": "y"})))
    round_trip(rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": (2, 2, 2)}))


def test_what_operations_carry_is_printed_and_read_back() -> None:
    """Summands of the reads of each linear group, along axes whose names need quotes or do not."""
    for axis, said in (("d", "(d)"), ("an axis", '("an axis")')):
        two = Place(Mesh((rd.Axis(axis, 2),)))
        product = rd.nest("ij,jk->ik", (8, 8, 8))
        b = Builder()
        rows, columns = (rd.DimType(4, (axis,), 8), rd.DimType(8, (), 8))
        a, w = (
            b.input(*each, two) for each in (("a", rd.DistType((columns, rows))), ("w", rd.DistType((rows, columns))))
        )
        v = b.input("v", "[8, 8]", two)
        part = b.compute(product, a, w, cut={"j": (axis,)})
        program = b.build(b.compute(product, part, v))
        assert f"carried {said} ()" in to_text(program)
        round_trip(program)


@pytest.mark.parametrize("program", [pipelined(), data_parallel(zero=True)], ids=lambda one: one.name)
def test_the_programs_of_the_figures(program: Program) -> None:
    round_trip(program)
    text = to_text(program)
    assert text.count("program ") == len({id(op.program) for op in program.ops if hasattr(op, "program")}) + 1
    again = parse(text, bodies_of(program))
    arrays = arrays_for(program)
    for one, other in zip(run_whole(program, arrays), run_whole(again, arrays), strict=True):
        assert (one == other).all()


def test_without_bodies_a_program_can_be_planned_but_not_run() -> None:
    program = parse(to_text(pipelined()))
    assert rd.simulate(program, "v100").seconds == rd.simulate(pipelined(), "v100").seconds
    with pytest.raises(ProgramError, match=exactly("operation 'split': the nest has no body; give one to run it")):
        run_whole(program, arrays_for(program))


SMALL = """place p0 = {x:2} @ 0, 1
nest n0 = sum[i: 8, j: 8](a[i, j]) -> (out[i]) {combine: j sum; linear: (0)}
program f0 = main(%a: [4{x}8, 8] float32 @p0) {
  compute sum @p0 n0 cut [4{x}8, 8] (a = %a) -> (out = %b: [4{x}8] float32 @p0)
  return %b
}
"""


def test_the_small_text_is_right() -> None:
    assert [value.name for value in parse(SMALL).values.values()] == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SMALL, "", "line 1: expected a program, found the end"),
        ("place p0", "plaice p0", "line 1: expected 'place', 'nest', 'program' or 'plan', found 'plaice p0"),
        ("@ 0, 1", "@ 0", "mesh {x:2} needs 2 different devices, got (0,)"),
        ("{x:2} @", "{x:two} @", "line 1: "),
        ("{x:2} @", "{x:2, @", "line 1: expected an axis name after ',', found '@'"),
        ("{x:2} @", "(x:2) @", "line 1: expected a mesh, found '(x:2) @"),
        ("cut [4{x}8, 8]", "cut 4{x}8", "line 4: expected a type, found '4{x}8"),
        ("cut [4{x}8, 8]", "cut [4{x}8 8]", "line 4: expected ',' or ']' after a dimension, found '8'"),
        ("cut [4{x}8, 8]", "cut [4{x}8, 8] sum{x", "line 4: expected ',' or '}' after an axis name, found '('"),
        ("sum @p0 n0", "sum @p1 n0", "line 4: expected a place that is defined above, found 'p1 n0 cut"),
        ("p0 n0 cut", "p0 n7 cut", "line 4: expected a nest that is defined above, found 'n7 cut"),
        ("cut [4{x}8, 8]", "cut [4{x}8, 8", "line 4: "),
        ("cut [4{x}8, 8]", "cut [4{z}8, 8]", "operation 'sum': the cut of (i, j): mesh {x:2} has no axis 'z'"),
        ("cut [4{x}8, 8]", "cut [8, 4{x}8]", "operation 'sum', array 'a': it needs [8, 4{x}8] on {x:2}@0,1, and value"),
        ("-> (out =", "=> (out =", "line 4: expected '->', found '=> (out = %b"),
        ("  return %b\n", "", "line 5: expected an operation, or 'return', found '}'"),
        ("return %b", "return %c", "array 'c': the program ends with a value that it does not hold"),
        ("[i: 8, j: 8]", "[i: 8, j: 1..8 by 0]", "line 2: expected a step other than 0"),
        ("combine: j sum", "combine: j mean", "operation 'sum': no reduction 'mean'"),
        ("linear: (0)", "curved: (0)", "line 2: expected an option of a nest, found 'curved: (0)}'"),
        ("(a[i, j])", "(a[i, k])", "operation 'sum', array 'a': no iteration dimension 'k'; there are i, j"),
        ("place p0", "plan q0 = {}\nplace p0", "line 1: "),
    ],
)  # fmt: skip
def test_a_text_that_cannot_be_read_is_refused(old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ProgramError) as caught:
        parse(SMALL.replace(old, new, 1))
    assert message in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_text_with_a_hole_is_read_or_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(SMALL)))
    end = data.draw(st.integers(start, min(len(SMALL), start + 12)))
    text = SMALL[:start] + data.draw(st.sampled_from(["", "(", '"', "%", "9" * 30, "}"])) + SMALL[end:]
    with suppress(rd.RedistribError):
        parse(text)


def test_names_of_any_length_are_cut_in_messages() -> None:
    name = "n" * 10_000
    error = ProgramError(name, "a", "Nest", "it has no body")
    assert str(error) == f"operation '{'n' * 196}..., array 'a': it has no body"
    assert error.operation == name
    assert str(ProgramError("", "", "Nest", "x" * 5000)) == f"{'x' * 3997}..."


def test_the_kind_of_an_operation_is_printed_where_its_name_says_another() -> None:
    b = Builder()
    x = b.input("x", "[8]", Place(Mesh(())))
    b.compute(rd.nest("i->i", (8,), name="div_3"), x)
    program = b.build(x)
    (op,) = program.ops
    program = replace(program, ops=(replace(op, kind="div"),))
    assert "compute div_3 kind div @" in to_text(program) and "kind" not in to_text(replace(program, ops=(op,)))
    assert [one.kind for one in parse(to_text(program)).ops] == ["div"]
