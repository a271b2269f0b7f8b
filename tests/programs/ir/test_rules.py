"""The five rules, over every cut on three meshes: types against points, and values against NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from redistrib.errors import CutError, CutInnerFactorError, NoCombinerError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.check import check
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.nest import Access, Nest, reached
from redistrib.programs.ir.pullback import DERIVATION_RULES, ScheduledNest
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.ir.spec import nest
from redistrib.programs.schedule.propagate import Propagation
from redistrib.theory.placement import placement_of
from tests.messages import exactly
from tests.programs.ir.nests import CASES, MESHES, Case, arrays_for, cuts, program_of, touched

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.nest.name)
by_mesh = pytest.mark.parametrize("mesh", MESHES, ids=str)


def results(found: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


@by_mesh
@by_case
def test_types_are_what_the_points_touch(case: Case, mesh: Mesh) -> None:
    """An array's tile holds exactly the elements that the device's points touch; where these are no tile, no type."""
    seen = 0
    for cut in cuts(case.nest, mesh):
        seen += 1
        accesses = (*case.nest.reads, *case.nest.writes)
        sets = {(k, d): touched(case.nest, a, cut, mesh, d) for k, a in enumerate(accesses) for d in range(mesh.size)}
        tiles = all(max(s) - min(s) + 1 == len(s) for dims in sets.values() for s in dims)
        if not tiles:
            with pytest.raises(CutInnerFactorError):
                ScheduledNest(case.nest, cut).signature(mesh)
            continue
        signature = ScheduledNest(case.nest, cut).signature(mesh)
        for (k, d), dims in sets.items():
            placement = placement_of(DistType((*signature.ins, *signature.outs)[k].dims), mesh)
            starts, tile = placement.start[d].tolist(), reached(placement.tile, accesses[k].windows)
            assert dims == [set(range(s, s + t)) for s, t in zip(starts, tile, strict=True)]
    assert seen >= 2


@by_mesh
@by_case
def test_ranks_and_whole_agree_with_numpy(case: Case, mesh: Mesh) -> None:
    arrays = arrays_for(case.nest)
    expected = results(case.numpy(*arrays))
    ran = 0
    for cut in cuts(case.nest, mesh):
        try:
            program = check(program_of(ScheduledNest(case.nest, cut), mesh))
        except CutInnerFactorError:
            continue
        ran += 1
        for found in (run_whole(program, arrays), run_by_rank(program, arrays)):
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), str(cut)
    assert ran >= 2


@by_mesh
@pytest.mark.parametrize("case", [case for case in CASES if case.nest.linear], ids=lambda case: case.nest.name)
def test_summands_pass_through_linear_groups(case: Case, mesh: Mesh) -> None:
    """Every group carries any axes that do not cut the work; the result carries them all."""
    arrays = arrays_for(case.nest)
    expected = results(case.numpy(*arrays))
    ran = 0
    for cut in cuts(case.nest, mesh):
        free = [axis for axis in mesh.names if axis not in cut.axes]
        for choice in product(range(len(case.nest.linear) + 1), repeat=len(free)):
            carried = tuple(
                tuple(axis for axis, k in zip(free, choice, strict=True) if k == group)
                for group in range(len(case.nest.linear))
            )
            part = ScheduledNest(case.nest, cut, carried)
            try:
                program = check(program_of(part, mesh))
            except CutInnerFactorError:
                continue
            signature = part.signature(mesh)
            assert {axis for group in carried for axis in group} <= set(signature.outs[0].partial)
            ran += 1
            (found,) = run_by_rank(program, arrays)
            assert np.array_equal(found, expected[0]), (str(cut), carried)
    assert ran > 2


def test_a_table_of_five_rules() -> None:
    assert [rule.name for rule in DERIVATION_RULES] == ["Dim", "Whole", "Absent", "Combine", "Linear"]


@pytest.mark.parametrize(
    ("made", "cut", "types"),
    [
        (nest("ij,jk->ik", (8, 8, 8)), "[2{x}8, 8, 8]", ["[2{x}8, 8]", "[8, 8]", "[2{x}8, 8]"]),
        (nest("ij,jk->ik", (8, 8, 8)), "[8, 2{x}8, 8]", ["[8, 2{x}8]", "[2{x}8, 8]", "[8, 8] sum{x}"]),
        (nest("ij->i", (8, 8), combine="max"), "[4{y}8, 2{x}8]", ["[4{y}8, 2{x}8]", "[4{y}8] max{x}"]),
        (nest("ij->(ij)", (4, 8)), "[1{x}4, 4{y}8]", ["[1{x}4, 4{y}8]", "[4{y,x}32]"]),
        (nest("ij->(ij)", (4, 8)), "[1{x}4, 8]", ["[1{x}4, 8]", "[8{x}32]"]),
        (nest("i->i", (8,)), "[1{x,y}8]", ["[1{x,y}8]", "[1{x,y}8]"]),
    ],
)
def test_signatures(made: Nest, cut: str, types: list[str]) -> None:
    signature = ScheduledNest(made, DistType.of(cut)).signature(Mesh.of("x=4,y=2"))
    assert [str(form) for form in (*signature.ins, *signature.outs)] == types


# ------------------------------------------------------------------------------------------------- errors


def test_an_inner_factor_is_named() -> None:
    made = nest("bs(chd)->cbhsd", {"b": 2, "s": 4, "c": 3, "h": 16, "d": 8}, name="split", reads=["qkv"])
    with pytest.raises(CutInnerFactorError) as caught:
        ScheduledNest(made, DistType.of("[2, 4, 3, 4{x}16, 8]")).signature(Mesh.of("x=4"))
    assert str(caught.value) == (
        "operation 'split', array 'qkv': dimension 2 is made of 'c', 'h', 'd', major to minor, and 'h' is cut while "
        "'c' above it is not cut into single elements, so what a device works on is no tile; "
        "reshape to (2, 4, 3, 16, 8)"
    )
    assert caught.value.shape == (2, 4, 3, 16, 8)
    assert (caught.value.operation, caught.value.array, caught.value.rule) == ("split", "qkv", "Dim")


def test_no_combiner_is_named() -> None:
    made = nest("ij->i", (4, 4), combine=None, fn=lambda a: a, name="last")
    with pytest.raises(NoCombinerError) as caught:
        ScheduledNest(made, DistType.of("[4, 1{x}4]")).signature(Mesh.of("x=4"))
    assert str(caught.value) == (
        "operation 'last', array 'out': iteration dimension 'j' is cut over x and not written, and nothing says how "
        "its results combine; leave it whole, or give combine={'j': 'sum'}"
    )
    ScheduledNest(made, DistType.of("[1{x}4, 4]")).signature(Mesh.of("x=4"))


def test_an_axis_of_one_device_makes_no_summands() -> None:
    made = nest("ij->i", (4, 4), combine=None, fn=lambda a: a)
    assert str(ScheduledNest(made, DistType.of("[4, 4{x}4]")).signature(Mesh.of("x=1")).outs[0]) == "[4]"


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (
            "[4, 4]",
            ("operation 'sort': the cut [4, 4] is of [4, 4] points and the iteration space (i, j) has [8, 8]"),
        ),
        (
            "[3{x}8, 8]",
            (
                "operation 'sort': the cut of (i, j): dimension 0 of [3{x}8, 8]: 4 tiles of 3 make 12 "
                "elements, not 8; write 2{x}8"
            ),
        ),
        ("[2{z}8, 8]", "operation 'sort': the cut of (i, j): mesh {x:4} has no axis 'z'; its axes are 'x'"),
        ("[8, 2{x}8]", "operation 'sort': iteration dimension 'j' is cut as 2{x}8 and must stay whole"),
    ],
)
def test_cuts_that_cannot_be(cut: str, message: str) -> None:
    with pytest.raises(CutError, match=exactly(message)) as caught:
        ScheduledNest(nest("ij->i", (8, 8), whole="j", name="sort"), DistType.of(cut)).signature(Mesh.of("x=4"))
    assert caught.value.operation == "sort"
    assert caught.value.rule and caught.value.rule[0].isupper()  # a rule of docs/programs.md


def test_results_combine_in_one_way_at_a_time() -> None:
    made = Nest("odd", {"i": 4, "j": 4}, [], [Access("out", ())], combine={"i": "sum", "j": "max"})
    assert str(ScheduledNest(made, DistType.of("[2{x}4, 4]")).signature(Mesh.of("x=2,y=2")).outs[0]) == "[] sum{x}"
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'odd', array 'out': results would be combined in two ways at once, {'x': 'sum', "
            "'y': 'max'}; cut the dimensions of one reduction only"
        ),
    ):
        ScheduledNest(made, DistType.of("[2{x}4, 2{y}4]")).signature(Mesh.of("x=2,y=2"))


def test_a_summand_does_not_pass_where_the_work_is_cut_alike() -> None:
    made = nest("ij->ij", (4, 4), name="copy")
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'copy', array 'a': axis 'x' cuts the array and is a partial axis too in "
            "type [2{x}4, 4] sum{x}; an axis may do one of the two"
        ),
    ) as caught:
        ScheduledNest(made, DistType.of("[2{x}4, 4]"), (("x",),)).signature(Mesh.of("x=2"))
    assert caught.value.rule == "Linear"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"reads": [Access("a", (("z",),))]},
            "operation 'odd', array 'a': no iteration dimension 'z'; there are i, j",
        ),
        (
            {"reads": [Access("a", (("i",), ("i",)))]},
            "operation 'odd', array 'a': an iteration dimension is used twice; read one of them whole",
        ),
        (
            {"reads": [Access("a", ((),))]},
            ("operation 'odd', array 'a': 1 dimensions are read whole and 0 extents are given; give one for each"),
        ),
        ({"combine": {"i": "mean"}}, "operation 'odd': no reduction 'mean'; take one of sum, max, min"),
        ({"linear": [(0,)]}, "operation 'odd': groups ((0,),) do not name reads of 0, each at most once"),
        ({"ranges": {"i": 2.5}}, "operation 'odd': 2.5 is no size of 'i'; give an integer, or a range"),
        ({"ranges": {"i": -1}}, "operation 'odd': -1 is no size of 'i'; give an integer, or a range"),
        (
            {"ranges": {"i": 10**30}},
            "operation 'odd': the range of 'i' goes beyond 9223372036854775807; take a smaller one",
        ),
        ({"whole": {"z"}}, "operation 'odd': no iteration dimension 'z'; there are i, j"),
    ],
)
def test_nests_that_do_not_fit_together(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=exactly(message)):
        Nest(**{"name": "odd", "ranges": {"i": 4, "j": 4}, "reads": [], "writes": [], **fields})


@pytest.mark.parametrize("spec", ["ij", "ij->i->j", "i(j->i", "i1->i", "i()->i"])
def test_specs_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ProgramError, match="the notation is operands, '->', result"):
        nest(spec, (4, 4))


def test_specs_that_do_not_fit_their_sizes() -> None:
    with pytest.raises(
        ProgramError,
        match=exactly("operation 'ij->i': sizes (4,) are given for the iteration dimensions i, j"),
    ):
        nest("ij->i", (4,))
    with pytest.raises(ProgramError, match=exactly("operation 'i,i->i': 2 operands have 1 names")):
        nest("i,i->i", (4,), reads=["a"])


def test_a_body_must_give_what_its_nest_says() -> None:
    made = nest("ij->i", (4, 4), body=lambda at, a: a)
    program = program_of(ScheduledNest(made, DistType.of("[2{x}4, 4]")), Mesh.of("x=2"))
    with pytest.raises(
        ProgramError, match=exactly("operation 'ij->i', array 'out': the body gives shape (4, 4), not (4,)")
    ):
        run_whole(program, arrays_for(made))
    bare = Nest("bare", {"i": 4}, [], [Access("out", (("i",),))])
    with pytest.raises(ProgramError, match=exactly("operation 'bare': the nest has no body; give one to run it")):
        run_whole(program_of(ScheduledNest(bare, DistType.of("[2{x}4]")), Mesh.of("x=2")), [])


def test_a_dimension_that_is_used_twice_is_refused() -> None:
    with pytest.raises(ProgramError) as refused:
        Nest("trace", {"i": 4}, [Access("x", (("i",), ("i",)))], [Access("out", (("i",),))])
    assert str(refused.value) == (
        "operation 'trace', array 'x': an iteration dimension is used twice; read one of them whole"
    )


def test_an_axis_that_does_not_divide_an_operation_is_refused_as_a_cut() -> None:
    """With the name and the needs of the operation, and not as a type of no operation."""
    copy = nest("ij->ij", (10, 8), name="copy")
    arrays = Array("a", (10, 8), "float32"), Array("out", (10, 8), "float32")
    graph = Graph(arrays[:1], (Operation(copy, "copy", ("a",), arrays[1:]),), ("out",))
    with pytest.raises(
        CutError,
        match=exactly(
            "operation 'copy': axis 'x' cannot cut dimension 'i': 10 points make no 4 equal parts, as it needs; cut "
            "another, or pad the arrays"
        ),
    ):
        Propagation(graph, Mesh.of("x=4")).cut_operation(0, "x", "i")
