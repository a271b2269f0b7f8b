"""The multilayer perceptron of DistIR (Figures 2, 3, 8, 9; Table 1), figure by figure."""

from __future__ import annotations

import math

import numpy as np
import pytest

import redistrib as rd
from redistrib.cost.chips import V100_BANDWIDTH, V100_LAUNCH, V100_LINK
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.project import project, run_ranks
from redistrib.programs.ir.reference import distribute, run_by_rank, run_whole
from redistrib.programs.ir.text import to_text
from redistrib.programs.time.constants import V100_FLOPS
from tests.programs.time.drawn import arrays_for
from tests.programs.time.mlp import (
    MODELS,
    SMALL,
    Sizes,
    configurations,
    data_parallel,
    deep,
    gpipe,
    inference_configurations,
    on,
    pipelined,
    sequential,
)

WIDE = Sizes(4096, 2048, 2048, 2048)


def step(w1: np.ndarray, w2: np.ndarray, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """One step of training in NumPy."""
    a = np.maximum(x @ w1, 0)
    h = a @ w2
    g = (np.maximum(h, 0) - y) * (h > 0)
    return [w1 - x.T @ ((g @ w2.T) * (x @ w1 > 0)), w2 - a.T @ g]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_sequential_program_trains(checkpoint: bool) -> None:
    arrays = arrays_for(sequential())
    for made, wanted in zip(run_whole(sequential(checkpoint=checkpoint), arrays), step(*arrays), strict=True):
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("swapped", [False, True])
def test_d4_the_pipelined_program_of_figure_2_equals_the_sequential_one(swapped: bool) -> None:
    program = pipelined(swapped=swapped)
    arrays = arrays_for(program)
    for made, wanted in zip(run_by_rank(program, arrays), run_whole(sequential(), arrays), strict=True):
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("zero", [False, True])
def test_the_data_parallel_programs_equal_the_sequential_one(zero: bool) -> None:
    program = data_parallel(zero=zero)
    w1, w2, x, y = arrays_for(sequential())
    given = {"w1": w1, "w2": w2, "x_1": x[:2], "x_2": x[2:], "y_1": y[:2], "y_2": y[2:]}
    arrays = [given.get(value.name, given.get(value.name[:2])) for value in program.inputs]
    wanted = step(w1, w2, x, y)
    made = run_by_rank(program, arrays)
    for k, one in enumerate(made):
        np.testing.assert_array_equal(one, wanted[k if zero else k // 2])


def execute(program: Program, arrays: list[np.ndarray]) -> dict[str, dict[int, np.ndarray]]:
    tiles = {value.name: distribute(array, value) for array, value in zip(arrays, program.inputs, strict=True)}
    return run_ranks(project(program), tiles)


def test_d8_every_rank_of_the_pipeline_on_its_own_makes_the_sequential_program() -> None:
    program = pipelined()
    arrays = arrays_for(program)
    made = execute(program, arrays)
    for (name, tiles), wanted in zip(made.items(), step(*arrays), strict=True):
        assert len(tiles) == 1, name  # each layer's weight is on one device
        np.testing.assert_array_equal(next(iter(tiles.values())), wanted)


def test_d3_the_swapped_order_of_figure_3_is_slower() -> None:
    """Top: `as_2` on device 1 and `p_1` on device 2 run side by side. Bottom: `p_1` waits for the send of `as_2`."""
    top, bottom = (rd.simulate(pipelined(WIDE, swapped=swapped, dtype="float16"), "v100") for swapped in (False, True))
    layer = [V100_LAUNCH + 2 * 2048**3 / V100_FLOPS, V100_LAUNCH + 2 * 2048**2 * 2 / V100_BANDWIDTH]
    send = V100_LAUNCH + 2 * 2048**2 / V100_LINK + 2 * 2048**2 / V100_BANDWIDTH
    # What was done during as_2, p_1, is done after it instead.
    assert math.isclose(bottom.seconds - top.seconds, sum(layer), rel_tol=1e-9)

    def times(found: object, name: str, device: int) -> list[tuple[float, float]]:
        return [(e.start, e.end) for e in found.events if e.name == name and e.clock == device]  # type: ignore[attr-defined]

    as_2, p_1 = times(top, "gemm", 0)[1], times(top, "gemm", 1)[0]
    assert as_2 == p_1
    sent = times(bottom, "move as_2", 1)[0]
    assert math.isclose(sent[1] - sent[0], send, rel_tol=1e-9)
    assert times(bottom, "gemm", 1)[0][0] == sent[1]


def test_d3_operations_on_disjoint_devices_overlap() -> None:
    """Section 2.1: the two splits, of device 1 and of device 2, run at once."""
    found = rd.simulate(pipelined(WIDE, dtype="float16"), "v100")
    first, second = found.events[:2]
    assert (first.name, first.clock, second.name, second.clock) == ("split", 0, "split", 1)
    assert first.start == second.start == 0


def test_d11_the_activation_of_figure_8_is_given_up_and_made_again() -> None:
    held = []
    for checkpoint in (False, True):
        found = rd.simulate(sequential(WIDE, checkpoint=checkpoint, dtype="float16"), "v100")
        (loss,) = (event for event in found.events if event.name == "subtract")
        held.append(loss.during)
    activation = WIDE.batch * WIDE.m * 2
    assert held[0] - held[1] == activation


def test_d11_checkpointing_lowers_the_peak() -> None:
    """16 layers of 1024 features and 4096 examples: 201.3 MB, and 125.8 MB where each fourth activation is kept."""
    plain, kept = (rd.simulate(deep(16, 4096, 1024, every=every), "v100") for every in (None, 4))
    assert plain.peak_bytes == {0: 201_326_592}
    assert kept.peak_bytes == {0: 125_829_120}
    assert kept.seconds > plain.seconds  # it computes twelve layers twice


def test_checkpointing_computes_the_same() -> None:
    plain, kept = (deep(4, 2, 3, every=every, dtype="int64") for every in (None, 2))
    arrays = [array % 3 - 1 for array in arrays_for(plain)]
    for one, other in zip(run_whole(plain, arrays), run_whole(kept, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_d11_zero_of_figure_9_lowers_the_peak_and_sends_more() -> None:
    """Two layers of 2048 features and 64 examples: 50.6 MB on each device, against 42.2 and 34.1 MB."""
    sizes = Sizes(64, 2048, 2048, 2048)
    plain, zero = (rd.simulate(data_parallel(sizes, zero=zero, dtype="float16"), "v100") for zero in (False, True))
    assert plain.peak_bytes == {0: 50_593_792, 1: 50_593_792}
    assert zero.peak_bytes == {0: 42_205_184, 1: 34_078_720}
    # A gradient for each layer; with ZeRO a gradient, and the other's weight twice.
    weight = 2048 * 2048 * 2
    assert plain.received_bytes == {0: 2 * weight, 1: 2 * weight}
    assert zero.received_bytes == {0: 3 * weight, 1: 3 * weight}


def test_d15_grids_have_75_and_1035_configurations() -> None:
    """Table 1: D T P = 16 with 2 to 128 microbatches; 14 batch sizes, less the 15 with B/(DK) < 1."""
    assert len(list(configurations())) == 75
    assert len(inference_configurations()) == 1035
    assert 14 * 75 - 15 == 1035


@pytest.mark.parametrize(("model", "gigabytes"), [("MLP 1B", 2.2), ("MLP 17B", 34.4), ("MLP 103B", 206.2)])
def test_d16_model_sizes_in_16_bits(model: str, gigabytes: float) -> None:
    """Table 1, in GB; the first is 2.147, which is 2.2 only if rounded up, as the two others then are too."""
    layers, width = MODELS[model]
    program = deep(layers, 128, width)
    size = sum(value.tile_bytes for value in program.inputs if value.name.startswith("w"))
    assert size == layers * width**2 * 2
    assert math.ceil(size / 1e8) / 10 == gigabytes


@pytest.mark.parametrize(
    ("configs", "trial", "real", "simulated", "total"),
    [
        (75, 2, 150, 0, 20),  # "<1" minute of simulation
        (75, 6, 450, 1, 61),
        (75, 19, 1425, 2, 192),
        (1035, 3, 3105, 35, 65),
        (1035, 6, 6210, 58, 118),
        (1035, 19, 19665, 138, 328),
    ],
)
def test_d17_the_arithmetic_of_table_1(configs: int, trial: int, real: int, simulated: int, total: int) -> None:
    """Minutes: trying all of them, and simulating all and trying the ten best."""
    found = {75: list(configurations()), 1035: inference_configurations()}[configs]
    assert len(found) * trial == real
    assert simulated + 10 * trial == total


def test_d22_work_is_linear_in_the_operations() -> None:
    """Figure 7: events are counted, not seconds. Sixteen times the microbatches, sixteen times the work."""
    met = {k: rd.simulate(gpipe(k), "v100").run.met for k in (4, 8, 64)}
    each = (met[8] - met[4]) // 4  # of one microbatch, called programs met again only as wholes
    assert met[64] - met[4] == 60 * each
    ops = len(gpipe(5).ops) - len(gpipe(4).ops)
    assert each == ops + 2  # every operation once, and each of the two sends on both its devices


def test_called_programs_are_looked_at_once() -> None:
    """Twenty-five programs, each of which calls the one before twice: 2 ** 25 operations are neither checked, read nor
    timed one by one."""
    b = Builder("p0")
    x = b.input("x", "[4]", on(0))
    program = b.build(b.compute(rd.nest("i->i", (4,), name="negate", fn=np.negative), x))
    for k in range(25):
        b = Builder(f"p{k + 1}")
        x = b.input("x", "[4]", on(0))
        program = b.build(b.call(program, b.call(program, x)))
    found = rd.simulate(parse(to_text(program)), "v100", record=False)
    seconds, met, peak = found.seconds, found.run.met, found.peak_bytes
    assert math.isclose(seconds, 2**25 * (V100_LAUNCH + 32 / V100_BANDWIDTH))
    assert met == 2
    assert peak == {0: 16 * 3}  # the input, what the innermost call reads, and what it makes


def test_the_small_sizes_are_those_that_the_figures_have() -> None:
    assert [str(value.type) for value in pipelined().inputs] == ["[6, 8]", "[8, 2]", "[4, 6]", "[4, 2]"]
    assert [value.place.devices for value in pipelined().inputs] == [(0,), (1,), (0,), (1,)]
    assert SMALL.batch == 4
