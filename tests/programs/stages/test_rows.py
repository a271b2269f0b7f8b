"""DistIR's claims about its language, its transform and its search, one by one, each with its section."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import redistrib as rd
from bench.distir import MLP, TABLE_2
from redistrib.errors import ProgramError
from redistrib.programs.ir.abstract import Mixed
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.interpret import interpret
from redistrib.programs.ir.ops import REGISTER
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import Call, Compute, Program, Value
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.ir.text import to_text
from redistrib.programs.stages.examples import batch_of
from redistrib.programs.stages.grid import SimulatedLayout, grid, layouts, of_microbatches
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.models import gpt2, mlp
from redistrib.programs.stages.orders import PipelineTask, gpipe, one_f_one_b
from redistrib.programs.stages.spreading import spread
from redistrib.programs.stages.staging import Staging, cutter_of
from redistrib.programs.stages.transform import spread_over
from redistrib.programs.time.constants import machine
from tests.messages import exactly
from tests.programs.stages.test_orders import bubble
from tests.programs.stages.test_spread import numbered
from tests.programs.time.drawn import arrays_for
from tests.programs.time.mlp import on, pipelined, sequential

BATCH = {"x": 0, "y": 0}


def test_d1_programs_are_in_single_assignment_and_in_order_and_call_each_other() -> None:
    """Section 2: functions of operations in order; Figure 2 calls `@dense`, `@lossGrad` and `@denseGrad`."""
    program = pipelined()
    called = [op.program.name for op in program.ops if isinstance(op, Call)]
    assert called.count("dense") == 4
    assert called.count("lossGrad") == 2 and called.count("denseGrad") == 4
    assert len(program.values) == len(program.inputs) + sum(
        len(op.outs) if isinstance(op, Call | Compute) else 1 for op in program.ops
    )
    text = to_text(program).splitlines()
    twice = [line for line in text if line.startswith("  call")]
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'dense', array 'as_1': the value is defined a second time; give every result a new name"
        ),
    ):
        parse("\n".join([*text[: text.index(twice[0]) + 1], *text[text.index(twice[0]) :]]))


def test_d2_types_name_devices_and_operations_are_in_a_register() -> None:
    """Section 2.1: `Tensor[Float32, (64, 64), 1]`; a type says element type, shape and devices, and prints so."""
    printed = to_text(pipelined())
    assert "%w1: [6, 8] int64 @p0" in printed and "%w2: [8, 2] int64 @p1" in printed
    assert {"shape", "gather", "concat", "reshape", "add", "relu", "gemm"} <= set(REGISTER.table)
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'softmax': no such operation; there are shape, gather, unsqueeze, concat, "
            "reshape, add, relu, gemm"
        ),
    ):
        REGISTER.apply(Builder(), "softmax", Builder().input("x", "[4]", on(0)))


def test_d5_one_interpreter_for_types_and_arrays_mixed() -> None:
    """Algorithm 1: the same walk with arrays for the first input alone computes what depends on it alone."""
    b = Builder()
    x, y = b.input("x", "[4]", on(0)), b.input("y", "[4]", on(0))
    double = b.compute(rd.nest("i->i", (4,), fn=lambda a: a * 2), x)
    total = b.compute(rd.nest("i,i->i", (4,), fn=np.add), double, y)
    state = interpret(b.build(total), [np.arange(4), y], Mixed())
    assert isinstance(state[double.name], np.ndarray) and state[double.name].tolist() == [0, 2, 4, 6]
    assert isinstance(state[total.name], Value) and str(state[total.name].type) == "[4]"


def test_d6_errors_of_type_and_shape_name_the_operation() -> None:
    """Section 3: the implementation of each operation checks that its inputs are of the expected types."""
    b = Builder()
    x, w = b.input("x", "[4, 6]", on(0)), b.input("w", "[8, 2]", on(0))
    with pytest.raises(ProgramError) as caught:
        b.compute(rd.nest("bn,nm->bm", (4, 8, 2), name="gemm"), x, w)
    assert caught.value.operation == "gemm" and "shape (4, 8)" in str(caught.value) and "(4, 6)" in str(caught.value)
    far = b.input("far", "[6, 2]", on(1))
    b.compute(rd.nest("bn,nm->bm", (4, 6, 2), name="gemm"), x, far)
    with pytest.raises(
        ProgramError,
        match=exactly(
            "operation 'gemm', array 'b': it needs [6, 2] on {}@0, and value 'far' is [6, 2] on "
            "{}@1; move the value first"
        ),
    ):
        b.build(x)


def test_d7_the_reference_executor_runs_what_is_distributed_on_one_processor() -> None:
    """Section 3.1: used to check that a distributed program computes what the sequential one does."""
    arrays = arrays_for(sequential())
    for one, other in zip(run_whole(pipelined(), arrays), run_whole(sequential(), arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_d14_the_transform_takes_a_program_and_four_numbers_and_its_order_is_pluggable() -> None:
    """Section 4: D, T, P and K, stages of equal size, 1F1B, and easily another order or uneven stages."""
    program = mlp(4, 8, 16, dtype="int64")
    arrays = [array % 3 - 1 for array in arrays_for(program)]
    wanted = run_whole(program, arrays)

    def one_at_a_time(devices: int, microbatches: int, chunks: int) -> list[list[PipelineTask]]:
        return [
            [PipelineTask(p, m, back) for m in range(microbatches) for back in (False, True)] for p in range(devices)
        ]

    seconds = []
    for order in (one_f_one_b, gpipe, one_at_a_time):
        made = spread(program, BATCH, Layout(2, 2, 2, 4, order=order))
        for one, other in zip(made.results(run_by_rank(made.program, made.arguments(arrays))), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        seconds.append(rd.simulate(made.program, "v100").seconds)
    assert seconds[2] > max(seconds[:2])
    # Stages of equal size: two layers each.
    made = spread(program, BATCH, Layout(pipeline=2))
    assert [value.place.devices for value in made.program.inputs] == [(0,), (0,), (1,), (1,), (0,), (1,)]


def test_d15_layouts_are_75_and_1035() -> None:
    """Table 1, N_grid: all batch sizes of powers of two from 128 to 1048576 for inference."""
    assert len(list(layouts(16, 1 << 20))) == 75
    assert sum(len(list(layouts(16, 1 << k))) for k in range(7, 21)) == 1035


@pytest.mark.parametrize(("model", "name"), [("mlp", "v100"), ("gpt2", "v100"), ("mlp", "v5e")])
def test_layouts_of_equal_microbatches_are_what_each_is_alone(model: str, name: str) -> None:
    """The search makes the programs of tasks once for all of them; nothing about any layout may change by it."""

    def made(examples: int) -> tuple[Program, dict[str, int]]:
        if model == "mlp":
            return mlp(5, 64, examples), BATCH
        return gpt2(4, 64, examples, s=3, head=8, vocabulary=24), {"x": 0}

    sizes = (16, 32)
    found: dict[int, list[SimulatedLayout]] = {size: [] for size in sizes}
    for examples in (1, 2, 4, 8, 16, 32):
        for size, several in of_microbatches(*made(examples), machine(name), sizes, 4).items():
            found[size] += several
    for size in sizes:
        wanted = {str(one.layout): one[1:] for one in grid(*made(size), machine(name), 4)}
        assert {str(one.layout): one[1:] for one in found[size]} == wanted
        assert len(found[size]) == len(wanted) == len(list(layouts(4, size)))


def test_layouts_share_the_calls_of_microbatches_that_both_have() -> None:
    seen, few, many = batch_of(mlp(4, 64, 8), BATCH), Layout(2, 1, 2, 2), Layout(2, 1, 2, 4)
    staging = Staging(cutter_of(seen, few, 1), few, "exact")
    calls = [
        [op for op in spread_over(seen, layout, "exact", staging).ops if isinstance(op, Call)] for layout in (few, many)
    ]
    both = {id(call) for call in calls[0]} & {id(call) for call in calls[1]}
    assert len(calls[0]) == 8 and len(both) == 8 and len(calls[1]) == 16


def test_layouts_of_equal_microbatches_may_not_ask_which_they_are() -> None:
    with pytest.raises(
        ProgramError, match=exactly("an operation asks for the number of an example; simulate each layout")
    ):
        of_microbatches(numbered(8), {"x": 0}, machine("v100"), (16,), 2)


def test_d18_winners_without_stages_receive_the_least() -> None:
    """Table 2: without stages a device receives d (D - 1) of gradients and B (T - 1) of activations, to a factor."""
    rows = [(MLP[model][1], batch, row[0]) for model, table in TABLE_2.items() for batch, row in table.items()]
    least = 0
    for width, batch, winner in rows:
        replicas, parts, stages, _ = map(int, winner.split("/"))
        costs = {d: width * (d - 1) + batch * (16 // d - 1) for d in (1, 2, 4, 8, 16)}
        least += stages == 1 and parts == 16 // replicas and costs[replicas] == min(costs.values())
    assert (least, len(rows)) == (24, 27)


def test_d19_small_batches_are_cut_by_tensor_and_large_ones_by_data() -> None:
    """Table 2: the best D grows with the batch, from 1/16 at 128 to 16/1 at 262144; so on four devices."""
    best = [grid(mlp(2, 8192, batch), BATCH, machine("v100"), 4)[0].layout for batch in (128, 4096, 262144)]
    assert [str(one) for one in (best[0], best[-1])] == ["1/4/1/1", "4/1/1/1"]
    assert best[0].data <= best[1].data <= best[2].data


def test_d22_work_is_linear_in_microbatches_and_in_layers() -> None:
    """Figure 7: operations met, counted and not timed; a called program is met once for each call."""

    def met(layers: int, k: int) -> int:
        made = spread(mlp(layers, 8, 64), BATCH, Layout(1, 1, 2, k))
        return rd.simulate(made.program, "v100").run.met

    assert met(4, 32) - met(4, 16) == 2 * (met(4, 16) - met(4, 8))
    assert met(16, 8) - met(8, 8) == 2 * (met(8, 8) - met(4, 8))


@pytest.mark.parametrize(("layers", "width", "gigabytes"), [(40, 5120, 25.7), (96, 12288, 349.1)])
def test_d24_gpt_2_is_a_program(layers: int, width: int, gigabytes: float) -> None:
    """Table 1: 25.8 GB for GPT-2 13B, of width 5120 and not 5140; GPT-2 175B is 349 GB by its own sizes and not 394.4.
    The program leaves out biases and positions."""

    def size_of(program: Program) -> int:
        return sum(value.tile_bytes for value in program.inputs if value.name != "x")

    one, two = (gpt2(count, width, 128) for count in (1, 2))
    size = size_of(one) + (layers - 1) * (size_of(two) - size_of(one))
    assert size == 2 * (12 * layers * width**2 + (2 * layers + 1) * width + 50304 * width)
    assert round(size / 1e9, 1) == gigabytes
    assert len(two.ops) - len(one.ops) == 21


def test_d27_the_pure_pipeline_has_eight_microbatches_a_stage() -> None:
    """Section 5.2: K = 8 P keeps the bubble below a ninth; 15/143 for 16 stages and 128 microbatches."""
    assert Layout(pipeline=16, microbatches=128) in set(layouts(16, 2048))
    assert Fraction(16 - 1, 128 + 16 - 1) == Fraction(15, 143) < Fraction(1, 9)
    for stages in (2, 4):
        assert bubble(one_f_one_b, stages, 8 * stages, 1, None) == Fraction(stages - 1, 9 * stages - 1) < Fraction(1, 9)


def test_d28_sequences_are_of_length_eight() -> None:
    """Figure 4: (256, 8, 768) is reshaped to (2048, 768), so a sequence has eight tokens."""
    program = gpt2(1, 768, 256)
    assert program.inputs[0].type.global_shape == (256, 8, 768)
    assert 256 * 8 == 2048
