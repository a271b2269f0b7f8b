"""Programs spread over devices compute what they did on one, to the last integer."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.project import project, run_ranks
from redistrib.programs.ir.reference import collect, distribute, run_by_rank, run_whole
from redistrib.programs.ir.spec import nest
from redistrib.programs.ir.text import bodies_of, to_text
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.models import gpt2
from redistrib.programs.stages.orders import gpipe, interleaved
from redistrib.programs.stages.spreading import spread
from tests.messages import exactly
from tests.programs.stages.models import transformer
from tests.programs.time.mlp import deep, on

BATCH = {"x": 0, "y": 0}
EIGHT = [
    Layout(data=8),
    Layout(tensor=8, tensor_dims={}),
    Layout(pipeline=8, microbatches=4),
    Layout(data=2, pipeline=4, microbatches=2, order=gpipe),
    Layout(2, 2, 2, 2),
    Layout(1, 2, 4, 4),
    Layout(2, 1, 4, 4, chunks=2, order=interleaved),
    Layout(2, 2, 2, 4, chunks=2),
    Layout(4, 2, zero=1),
    Layout(4, 1, 2, 2, zero=2),
    Layout(2, 2, 2, 4, zero=3),
]


@cache
def case(name: str) -> tuple[Program, list[np.ndarray], list[np.ndarray]]:
    """A program, arrays for it, and what it makes of them."""
    program = deep(8, 16, 8, dtype="int64") if name == "mlp" else transformer(4, 16, heads=8, d=1)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-1, 2, value.type.global_shape) for value in program.inputs]
    return program, arrays, run_whole(program, arrays)


@pytest.mark.parametrize("name", ["mlp", "transformer"])
@pytest.mark.parametrize("layout", EIGHT, ids=lambda one: f"{one} zero {one.zero} chunks {one.chunks}")
def test_eight_devices_compute_what_one_does(name: str, layout: Layout) -> None:
    program, arrays, wanted = case(name)
    made = spread(program, BATCH, layout)
    assert layout.devices == 8 and made.program.devices == tuple(range(8))
    found = made.results(run_by_rank(made.program, made.arguments(arrays)))
    changed = 0
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        changed += np.count_nonzero(other)
    assert changed > 100


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_every_rank_on_its_own_computes_it_too(name: str) -> None:
    program, arrays, wanted = case(name)
    made = spread(program, BATCH, Layout(2, 2, 2, 4))
    inputs = made.program.inputs
    tiles = {v.name: distribute(array, v) for v, array in zip(inputs, made.arguments(arrays), strict=True)}
    ended = run_ranks(project(made.program), tiles)
    found = made.results([collect(ended[name], made.program.values[name]) for name in made.program.outputs])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_text_of_a_spread_program_is_read_back() -> None:
    program, arrays, wanted = case("mlp")
    made = spread(program, BATCH, Layout(2, 2, 2, 2, zero=1))
    again = parse(to_text(made.program), bodies_of(made.program))
    for one, other in zip(made.results(run_by_rank(again, made.arguments(arrays))), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def numbered(batch: int) -> Program:
    """Examples times their number in the whole batch, as a mask or a position would be: the body asks where it is."""
    b = Builder("numbered")
    x, w = b.input("x", f"[{batch}, 4]", on(0), "int64"), b.input("w", "[4, 4]", on(0), "int64")
    over = nest(
        "bn->bn", (batch, 4), name="number", body=lambda at, a: a * np.arange(at["b"].start, at["b"].stop)[:, None]
    )
    made = b.compute(replace(over, indexed=frozenset("b")), x)
    return b.build(b.compute(nest("bn,nm->bm", (batch, 4, 4), name="product"), made, w))


@pytest.mark.parametrize("layout", [Layout(microbatches=4), Layout(2, 1, 2, 2)], ids=str)
def test_an_operation_that_asks_where_it_is_knows_its_microbatch(layout: Layout) -> None:
    program = numbered(16)
    arrays = [np.arange(64).reshape(16, 4), np.arange(16).reshape(4, 4)]
    (wanted,) = run_whole(program, arrays)
    np.testing.assert_array_equal(wanted, arrays[0] * np.arange(16)[:, None] @ arrays[1])
    made = spread(program, {"x": 0}, layout)
    (found,) = made.results(run_by_rank(made.program, made.arguments(arrays)))
    np.testing.assert_array_equal(found, wanted)


def test_inference_comes_out_microbatch_by_microbatch() -> None:
    program = gpt2(4, 16, 8, s=3, head=4, vocabulary=12, dtype="float64")
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=value.type.global_shape) for value in program.inputs]
    (wanted,) = run_whole(program, arrays)
    for layout in (Layout(2, 2, 2, 4), Layout(1, 4, 2, 2), Layout(8), Layout(1, 1, 4, 8)):
        made = spread(program, {"x": 0}, layout)
        (found,) = made.results(run_by_rank(made.program, made.arguments(arrays)))
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_tensor_parts_are_those_of_megatron() -> None:
    """Heads and columns first, then rows: one all-reduce forward and one backward for each half of a layer."""
    made = spread(transformer(1, 16, heads=8, d=1), BATCH, Layout(tensor=4))
    forms = {value.name: str(value.type) for value in made.program.inputs}
    assert forms["wq0"] == forms["wk0"] == forms["wv0"] == "[8, 2{t}8, 1]"
    assert (forms["wo0"], forms["w10"], forms["w20"]) == ("[2{t}8, 1, 8]", "[8, 2{t}8]", "[2{t}8, 8]")
    calls = [op.program for op in made.program.ops if hasattr(op, "program")]
    counts = {call.name: [step.kind for move in call.moves for step in move.plan.steps] for call in calls}
    assert counts["forward0"] == ["all_reduce"] * 2
    # Backward of the attention the three gradients are summed after they are reduced.
    assert counts["backward0"] == ["all_reduce"] * 4


def test_bytes_of_data_parallel_training_are_two_gradients_less_a_share() -> None:
    """2 (D - 1) / D of every gradient, ZeRO 1 the same in two halves; ZeRO 3 gathers weights for every pass."""
    program, size = deep(4, 64, 32, dtype="float32"), 4 * 32 * 32 * 4
    received = {}
    for zero in range(4):
        made = spread(program, BATCH, Layout(data=8, zero=zero))
        received[zero] = rd.simulate(made.program, "v100").received_bytes[0]
    share = size * 7 // 8
    assert received[0] == received[1] == received[2] == 2 * share
    assert received[3] == 3 * share  # forward, backward, and the gradients
    for microbatches in (2, 4):
        layouts = [Layout(data=8, microbatches=microbatches, zero=zero) for zero in range(4)]
        found = [rd.simulate(spread(program, BATCH, one).program, "v100").received_bytes[0] for one in layouts]
        assert found == [2 * share, 2 * share, (microbatches + 1) * share, 3 * microbatches * share]


def test_zero_lowers_the_peak_at_every_stage() -> None:
    program = deep(4, 64, 512, dtype="float32")
    peaks = []
    for zero in (0, 1, 2, 3):
        made = spread(program, BATCH, Layout(data=8, microbatches=2, zero=zero))
        peaks.append(rd.simulate(made.program, "v100").peak_bytes[0])
        assert peaks[-1] == rd.simulate(inlined(made.program), "v100").peak_bytes[0]
    assert peaks == [10_543_104, 10_543_104, 7_004_160, 4_382_720]  # no state of an optimizer that stage 1 could share


def test_stages_begin_where_a_user_says() -> None:
    program = transformer(4, 16, heads=8, d=1)
    names = [op.outs[0][1].name for op in program.ops if hasattr(op, "outs") and op.name == "relu"]
    made = spread(program, BATCH, Layout(pipeline=2, starts=(names[0],)))
    homes = {value.name: value.place.devices for value in made.program.inputs}
    assert homes["w10"] == (0,) and homes["w20"] == homes["wq1"] == (1,)
    with pytest.raises(ProgramError, match=exactly("array 'loss': no operation that goes forward makes this value")):
        spread(program, BATCH, Layout(pipeline=2, starts=("loss",)))
    with pytest.raises(ProgramError, match=exactly("3 stages begin at 2 values in order, got ['relu']")):
        spread(program, BATCH, Layout(pipeline=3, starts=(names[0],)))


def test_there_are_as_many_stages_as_operations_at_the_most() -> None:
    """Three products go forward: one of them on each device, and a fourth device has none."""
    b = Builder("products")
    value = b.input("x", "[8, 4]", on(0))
    for k in range(3):
        value = b.compute(nest("bn,nm->bm", (8, 4, 4), name="product"), value, b.input(f"w{k}", "[4, 4]", on(0)))
    program = b.build(value)
    made = spread(program, {"x": 0}, Layout(pipeline=3)).program
    homes = {value.name: value.place.devices for value in made.inputs}
    assert homes == {"x": (0,), "w0": (0,), "w1": (1,), "w2": (2,)}
    with pytest.raises(ProgramError, match=exactly("3 operations go forward, and there are 4 stages; take fewer")):
        spread(program, {"x": 0}, Layout(pipeline=4))


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        (lambda: Layout(data=3), "array 'x': 16 examples are not 1 microbatches of 3 parts"),
        (lambda: Layout(microbatches=32), "array 'x': 16 examples are not 32 microbatches of 1 parts"),
        (lambda: Layout(pipeline=64), "17 operations go forward, and there are 64 stages; take fewer"),
        (lambda: Layout(chunks=2), "one group of devices has no use for several chunks; give chunks=1"),
        (lambda: Layout(data=0), "data is 0; give an integer from 1 on, 1 for none"),
        (lambda: Layout(zero=4), "zero is 4; give 0, 1, 2 or 3"),
        (
            lambda: Layout(tensor=3, tensor_dims={"w0": 1}),
            "array 'w0': dimension 1 of (8, 8) has no 3 equal parts",
        ),
    ],
)
def test_layouts_that_do_not_fit_are_refused(layout: object, why: str) -> None:
    with pytest.raises(ProgramError, match=exactly(why)):
        spread(case("mlp")[0], BATCH, layout())  # type: ignore[operator]


def test_examples_that_meet_are_refused() -> None:
    program = gpt2(1, 16, 8, s=3, head=4, vocabulary=12)
    for batch, why in (
        ({}, "no input has examples; name those that do, each with its dimension"),
        (
            {"z": 0},
            (
                "array 'z': there is no such input; there are x, wg0, wq0, wk0, wv0, wo0, w10, w20, wn0, "
                "gain, vocabulary"
            ),
        ),
        ({"x": 3}, "array 'x': 3 is no dimension of an array of shape (8, 3, 16)"),
        ({"x": 1}, "operation 'product': examples run along s, t, so each meets all others"),
        (
            {"x": 2},
            (
                "operation 'norm': it reads a sum over all examples beside examples, so microbatches would "
                "wait for each other; combine the finished sums and gradients at the end (the gradient of a sum, "
                "over the count), or compute this sum before the call and pass it as an argument without examples"
            ),
        ),
    ):
        with pytest.raises(ProgramError, match=exactly(why)):
            spread(program, batch, Layout())
