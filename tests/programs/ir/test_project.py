"""Projection: every rank on its own, with nothing but its messages, makes what the program makes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.check import check
from redistrib.programs.ir.direct import direct_transfers
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.program import Call, Move, Program
from redistrib.programs.ir.project import CollectivePlan, RankProgram, Receive, Send, TileWork, project, run_ranks
from redistrib.programs.ir.reference import collect, distribute, run_by_rank, run_whole
from tests.messages import exactly
from tests.programs.time.drawn import arrays_for, programs
from tests.programs.time.mlp import on, pipelined


def by_ranks(program: Program, arrays: list[np.ndarray]) -> list[np.ndarray]:
    tiles = {value.name: distribute(array, value) for array, value in zip(arrays, program.inputs, strict=True)}
    made = run_ranks(project(program), tiles)
    return [collect(made[name], program.values[name]) for name in program.outputs]


@settings(max_examples=150, deadline=None)
@given(programs(most=12))
def test_ranks_on_their_own_equal_the_reference(program: Program) -> None:
    arrays = arrays_for(program)
    found = by_ranks(program, arrays)
    for run in (run_whole, run_by_rank):
        for one, wanted in zip(found, run(program, arrays), strict=True):
            np.testing.assert_array_equal(one, wanted)


@settings(max_examples=100, deadline=None)
@given(programs(most=12))
def test_without_calls_a_program_is_right_and_the_same(program: Program) -> None:
    flat = check(inlined(program))
    assert not any(isinstance(op, Call) for op in flat.ops)
    arrays = arrays_for(program)
    for one, wanted in zip(run_by_rank(flat, arrays), run_whole(program, arrays), strict=True):
        np.testing.assert_array_equal(one, wanted)


@settings(max_examples=100, deadline=None)
@given(programs(most=12))
def test_what_ranks_send_is_what_the_program_counts(program: Program) -> None:
    flat, ranks = inlined(program), project(program)
    for tag, op in enumerate(flat.ops):
        if not isinstance(op, Move) or op.plan is not None:
            continue
        got = dict.fromkeys(flat.received(op), 0)
        for rank in ranks.values():
            for one in rank.ops:
                if isinstance(one, Send) and one.tag == tag:
                    got[one.to] += int(np.prod(one.size))
        assert got == flat.received(op)
        table = direct_transfers(flat.values[op.value], op.out).travelling
        assert got == {
            device: sum(box.volume for _, box in table.receives(device)) for device in got
        }  # fmt: skip


def test_summands_pass_through_ranks() -> None:
    program = rd.partition(rd.nest("ij,jk->ik", (8, 8, 8)), {"matmul": (2, 2, 2)}, dtype="int64")
    a, b = arrays_for(program)
    np.testing.assert_array_equal(by_ranks(program, [a, b])[0], a @ b)
    kinds = [[type(op) for op in rank.ops] for rank in project(program).values()]
    assert kinds == [[TileWork, CollectivePlan]] * 8


def test_the_ranks_of_figure_2() -> None:
    """Operations without inputs or outputs on a device are left out of its program."""
    first, second = project(pipelined()).values()
    assert (first.inputs, first.outputs) == (("w1", "x"), ("w1_new",))
    assert (second.inputs, second.outputs) == (("w2", "y"), ("w2_new",))
    sends = [[op.to for op in rank.ops if isinstance(op, Send)] for rank in (first, second)]
    receives = [[op.boxes[0][0] for op in rank.ops if isinstance(op, Receive)] for rank in (first, second)]
    assert sends == [[1, 1], [0, 0]] and receives == [[1, 1], [0, 0]]
    work = [[op.name for op in rank.ops if isinstance(op, TileWork)] for rank in (first, second)]
    assert work[0][:5] == ["split", "gemm", "relu", "gemm", "relu"] and "subtract" not in work[0]
    assert work[1].count("subtract") == 2


def test_ranks_that_wait_for_what_nobody_sends_are_named() -> None:
    b = Builder()
    ranks = project(b.build(b.move(b.input("a", "[4]", on(0)), place=on(1))))
    silent = {0: RankProgram(0, ("a",), (), ()), 1: ranks[1]}
    with pytest.raises(ProgramError, match=exactly("devices [1] wait for messages that none of them sends")):
        run_ranks(silent, {"a": {0: np.zeros(4)}})
