"""Fused kernels and attention of the thesis (sections 4.6, 8.1.3, 8.1.4), and the size of the rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import CutInnerFactorError, InconsistentGroupError, ProgramError
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Compute, Program
from redistrib.programs.ir.reference import run_by_rank, run_whole
from tests.messages import exactly
from tests.programs.ir.transformer import SOFTMAX, attention, megatron, softmax, whole_divide, whole_exponent

# Figure 4.3: np.add.reduce(x, axis=1) of x[16, 8], as two maps that share a buffer
INIT = Nest(
    "INIT_MAP",
    {"j": 16},
    [],
    [Access("_out", (("j",),))],
    fills="sum",
    body=lambda at: np.zeros(len(at["j"]), dtype=np.int64),
)
REDUCE = rd.nest("oi->o", {"o": 16, "i": 8}, name="REDUCE_MAP", reads=["x"], writes="_out")
CALL = {"call_25": ["INIT_MAP", "REDUCE_MAP"]}
REDUCTION_INSIDE = (
    "operation 'call_25', array '_out': nest 'INIT_MAP' has '_out' as [8{r0}16] and nest 'REDUCE_MAP' needs [8{r0}16] "
    "sum{r1}, which a reduction would have to come between; a group may not communicate inside, so cut both alike, or "
    "take the nests out of the group"
)


def test_t7_nested_maps_that_agree() -> None:
    """Figure 4.3c: REDUCE_MAP on (2, 4) and INIT_MAP on (2,) are consistent up to renaming."""
    program = rd.partition([INIT, REDUCE], {"REDUCE_MAP": (2, 4), "INIT_MAP": (2,)}, groups=CALL)
    (kernel,) = (op for op in program.ops if isinstance(op, Compute))
    assert kernel.name == "call_25"
    assert [str(part.cut) for part in kernel.parts] == ["[8{r0}16]", "[8{r0}16, 2{r1}8]"]
    assert [(value.name, str(value.type)) for value in program.inputs] == [("x", "[8{r0}16, 2{r1}8]")]
    assert str(kernel.outs[0][1].type) == "[8{r0}16] sum{r1}"
    x = np.arange(128).reshape(16, 8)
    for found in (run_by_rank(program, [x]), run_whole(program, [x])):
        assert np.array_equal(found[0], x.sum(1))


def test_t7_nested_maps_that_disagree() -> None:
    """INIT_MAP on (4,) would zero on some processes what others need."""
    with pytest.raises(InconsistentGroupError) as caught:
        rd.partition([INIT, REDUCE], {"REDUCE_MAP": (2, 4), "INIT_MAP": (4,)}, groups=CALL)
    assert str(caught.value) == (
        "operation 'call_25', array '_out': nest 'INIT_MAP' has '_out' as [4{r1}16] and nest 'REDUCE_MAP' needs "
        "[8{r0}16] sum{r1}, which are other tiles; a group may not communicate inside, so cut both alike, or take the "
        "nests out of the group"
    )
    assert caught.value.nests == ("INIT_MAP", "REDUCE_MAP")
    assert caught.value.types == ("[4{r1}16]", "[8{r0}16] sum{r1}")


def test_t7_only_identities_may_stand_for_summands() -> None:
    ones = replace(INIT, fills=None)
    grids = {"REDUCE_MAP": (2, 4), "INIT_MAP": (2,)}
    with pytest.raises(InconsistentGroupError, match=exactly(REDUCTION_INSIDE)):
        rd.partition([ones, REDUCE], grids, groups=CALL)
    with pytest.raises(InconsistentGroupError, match=exactly(REDUCTION_INSIDE)):
        rd.partition([replace(INIT, fills="max"), REDUCE], grids, groups=CALL)
    whole = rd.partition([ones, REDUCE], {"REDUCE_MAP": (2, 1), "INIT_MAP": (2,)}, groups=CALL)
    assert not whole.moves


def test_t7_what_nothing_combines_is_written_once() -> None:
    twice = [INIT, Nest("AGAIN", {"j": 16}, [], [Access("_out", (("j",),))])]
    with pytest.raises(
        ProgramError,
        match=exactly("operation 'g', array '_out': the array is written twice and nothing combines the two"),
    ):
        rd.partition(twice, {"INIT_MAP": (2,), "AGAIN": (2,)}, groups={"g": ["INIT_MAP", "AGAIN"]})


def exact_softmax(b: int, h: int, s: int) -> list[Nest]:
    return softmax(b, h, s, whole_exponent, whole_divide)


def test_t19_fused_softmax_is_cut_along_three_dimensions() -> None:
    """Section 8.1.3, on [8, 16, 512, 512]: nothing moves, inside or out."""
    for grid in ({"b": 8}, {"h": 16}, {"i": 512}, {"b": 2, "h": 2, "i": 2}):
        program = rd.partition(exact_softmax(8, 16, 512), dict.fromkeys(SOFTMAX, grid), groups={"softmax": SOFTMAX})
        assert len(program.ops) == 1
        assert not program.moves
        (kernel,) = program.ops
        assert kernel.ins == (("inp", "inp"),)
        assert [array for array, _ in kernel.outs] == ["out"]


def cut_along(nests: list[Nest], name: str, parts: int) -> dict[str, dict[str, int]]:
    return {one.name: {name: parts} for one in nests}


def test_t19_the_reduction_dimension_is_refused_fused() -> None:
    nests = exact_softmax(8, 16, 512)
    with pytest.raises(InconsistentGroupError) as caught:
        rd.partition(nests, cut_along(nests, "j", 4), groups={"softmax": SOFTMAX})
    assert (caught.value.operation, caught.value.array, caught.value.nests) == ("softmax", "rowmax", ("rowmax", "exp"))
    assert caught.value.types == ("[8, 16, 512] max{r3}", "[8, 16, 512]")


def test_t19_the_reduction_dimension_works_unfused() -> None:
    """Two all-reduces of the row statistics, one of maxima and one of sums, and nothing else."""
    nests = exact_softmax(8, 16, 512)
    program = rd.partition(nests, cut_along(nests, "j", 4))
    assert [(move.value, str(program.values[move.value].type)) for move in program.moves] == [
        ("rowmax", "[8, 16, 512] max{r3}"),
        ("rowsum", "[8, 16, 512] sum{r3}"),
    ]
    rows = 8 * 16 * 512
    assert [max(program.received(move).values()) for move in program.moves] == [2 * 3 * rows // 4] * 2


@pytest.mark.parametrize(("name", "fused"), [*product("bhi", [True, False]), ("j", False)])
def test_t19_values(name: str, fused: bool) -> None:
    nests = exact_softmax(2, 4, 8)
    program = rd.partition(nests, cut_along(nests, name, 2), groups={"softmax": SOFTMAX} if fused else None)
    inp = np.random.default_rng(0).integers(-99, 99, (2, 4, 8, 8))
    exp = whole_exponent(inp, inp.max(-1, keepdims=True))
    expected = whole_divide(exp, exp.sum(-1, keepdims=True))
    assert np.array_equal(run_by_rank(program, [inp])[0], expected)
    assert np.array_equal(run_whole(program, [inp])[0], expected)


def megatron_program(nests: list[Nest]) -> Program:
    return rd.partition(nests, megatron(nests, 4), groups={"softmax": SOFTMAX})


def test_t20_one_move_before_the_output_projection() -> None:
    """Section 8.1.4, B=8, S=512, E=1024, H=16 on 4 devices: 12.58 MB in all, and nothing else."""
    program = megatron_program(attention(8, 512, 1024, 16))
    (move,) = program.moves
    assert (str(program.values[move.value].type), str(move.out.type)) == (
        "[8, 512, 256{r3}1024]",
        "[2{r3}8, 512, 1024]",
    )
    assert [step.kind for step in move.plan.steps] == ["alltoall"]
    assert program.received_bytes == 12_582_912
    following = program.ops[program.ops.index(move) + 1]
    assert (move.value, following.name) == ("merged", "output")
    assert {value.name: str(value.type) for value in program.inputs} == {
        "x": "[8, 512, 1024]",
        "W_Q": "[1024, 4{r3}16, 64]",
        "W_K": "[1024, 4{r3}16, 64]",
        "W_V": "[1024, 4{r3}16, 64]",
        "W_O": "[1024, 1024]",
    }


def test_t20_an_allreduce_would_be_eight_times_as_much() -> None:
    """The thesis names an Allreduce: the projection cut by its rows instead, whose summands are reduced everywhere."""
    nests = attention(8, 512, 1024, 16)
    program = rd.partition(nests, megatron(nests, 4) | {"output": {"k": 4}}, groups={"softmax": SOFTMAX})
    (move,) = program.moves
    assert str(program.values[move.value].type) == "[8, 512, 1024] sum{r3}"
    assert program.received_bytes == 100_663_296


def test_t20_values() -> None:
    b, s, e, h = 4, 4, 8, 4
    nests = attention(b, s, e, h, whole_exponent, whole_divide)
    rng = np.random.default_rng(1)
    arrays = {"x": rng.integers(-4, 4, (b, s, e)), "W_O": rng.integers(-4, 4, (e, e))}
    arrays |= {f"W_{k}": rng.integers(-4, 4, (e, h, e // h)) for k in "QKV"}
    q, k, v = (np.einsum("bik,khj->bhij", arrays["x"], arrays[f"W_{name}"]) for name in "QKV")
    scores = np.einsum("bhik,bhjk->bhij", q, k)
    exp = whole_exponent(scores, scores.max(-1, keepdims=True))
    norm = whole_divide(exp, exp.sum(-1, keepdims=True))
    values = np.einsum("bhik,bhkj->bhij", norm, v)
    expected = np.einsum("bhse->bshe", values).reshape(b, s, e) @ arrays["W_O"]
    program = megatron_program(nests)
    given = [arrays[value.name] for value in program.inputs]
    assert np.array_equal(run_by_rank(program, given)[0], expected)
    assert np.array_equal(run_whole(program, given)[0], expected)


def test_t20_a_fused_projection_hides_the_heads() -> None:
    """Q, K and V of one weight (E, 3 H D): the head is an inner factor; the way out is to reshape to (E, 3, H, D)."""
    e, h, d = 1024, 16, 64
    sizes = {"b": 8, "s": 512, "e": e, "c": 3, "h": h, "d": d}
    fused = rd.nest("bse,e(chd)->cbhsd", sizes, name="qkv", reads=["x", "W_QKV"], writes="QKV")
    with pytest.raises(
        CutInnerFactorError,
        match=exactly(
            "operation 'qkv', array 'W_QKV': dimension 1 is made of 'c', 'h', 'd', major to minor, "
            "and 'h' is cut while 'c' above it is not cut into single elements, so what a device "
            "works on is no tile; reshape to (1024, 3, 16, 64)"
        ),
    ) as caught:
        rd.partition(fused, {"qkv": {"h": 4}})
    assert caught.value.shape == (e, 3, h, d)
    apart = rd.nest("bse,echd->cbhsd", sizes, name="qkv", reads=["x", "W_QKV"], writes="QKV")
    assert not rd.partition(apart, {"qkv": {"h": 4}}).moves


def test_t29_the_rules_of_derivation_are_short() -> None:
    """Section 2.5: GSPMD enumerates its algorithms in over 5k lines; these, with all checks and docs, are below 800."""
    rules = [*(f"programs/ir/{name}" for name in ("nest", "pullback", "groups", "check")), "programs/schedule/grids"]
    lines = {name: len((Path(rd.__file__).parent / f"{name}.py").read_text().splitlines()) for name in rules}
    assert sum(lines.values()) < 800, lines
