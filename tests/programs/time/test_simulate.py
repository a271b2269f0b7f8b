"""The simulator on programs small enough to time by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import redistrib as rd
from redistrib.cost.chips import V100_BANDWIDTH, V100_LAUNCH, V100_LINK
from redistrib.cost.presets import PRESETS
from redistrib.errors import ChoiceError, ProfileError, ProgramError
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Compute, Op, Place, Program
from redistrib.programs.ir.spec import nest
from redistrib.programs.time.constants import MACHINES, V100_FLOPS, V100_MEMORY
from redistrib.programs.time.fit import OperationSample, fit_rates
from redistrib.programs.time.machine import Machine, Rates
from redistrib.programs.time.prices import prices_between
from tests.messages import exactly
from tests.programs.time.mlp import gpipe, on

FOUR = Place(rd.Mesh.of("x=4"))
LINKS = MACHINES["v100"].links


def product(size: int, form: str = "[{0}, {0}]", place: Place | None = None) -> Program:
    b = Builder("product")
    a, w = (b.input(name, f"[{size}, {size}]", place or on(0), "float16") for name in "aw")
    return b.build(b.compute(nest("ij,jk->ik", (size,) * 3), a, w))


def test_the_constants_are_those_written_down_beforehand() -> None:
    assert (V100_FLOPS, V100_BANDWIDTH, V100_LINK, V100_LAUNCH) == (90e12, 900e9, 50e9, 10e-6)
    assert V100_MEMORY == 32e9


@pytest.mark.parametrize(
    ("name", "launch", "bandwidth", "flops", "memory"),
    [
        ("v100", 10e-6, 900e9, 90e12, 32 * 10**9),
        ("gpu", 5e-6, 3.35e12, 989e12, 80 * 10**9),  # "989 TFLOPS in bfloat16 without sparsity, 3.35 TB/s, 80 GB"
        ("tpu", 2e-6, 819e9, 197e12, 16 * 2**30),  # "197 TFLOPS in bfloat16, 819 GB/s, 16 GiB"
        ("cpu", 20e-6, 2e9, 10e9, None),
    ],
)
def test_a_machine_by_name_has_the_figures_of_its_source(
    name: str, launch: float, bandwidth: float, flops: float, memory: int | None
) -> None:
    found = MACHINES[name]
    assert (found.name, found.links.name) == (name, name)
    assert found.rates == Rates(launch, bandwidth, flops)
    assert found.memory == memory


def test_d13_computing_is_priced_by_the_roofline_and_by_the_sum() -> None:
    size, flops = 3 * 4096**2 * 2, 2 * 4096**3
    memory, arithmetic = size / V100_BANDWIDTH, flops / V100_FLOPS
    assert arithmetic > memory
    assert rd.simulate(product(4096), "v100").seconds == V100_LAUNCH + arithmetic
    rates = Rates(V100_LAUNCH, V100_BANDWIDTH, V100_FLOPS, "sum")
    summed = rd.simulate(product(4096), Machine("sum", rates, LINKS)).seconds
    assert summed == V100_LAUNCH + (memory + arithmetic)
    small = rd.simulate(product(16), "v100").seconds
    assert small == V100_LAUNCH + 3 * 16**2 * 2 / V100_BANDWIDTH


def test_an_operation_may_have_rates_of_its_own() -> None:
    own = Machine("own", Rates(1.0, 1e30, 1e30), LINKS, operations={"matmul": Rates(2.0, 1e30, 1e30)})
    assert math.isclose(rd.simulate(product(16), own).seconds, 2.0)


@pytest.mark.parametrize("form", ["sum", "roofline"])
def test_d13_rates_are_fitted(form: str) -> None:
    true = Rates(2e-5, 8e11, 6e13, form)  # type: ignore[arg-type]
    sizes = [(10**k, 10**j) for k in range(4, 10) for j in range(5, 13)]
    noise = np.random.default_rng(0).normal(1, 0.01, len(sizes))
    samples = [OperationSample(b, f, true.seconds(b, f) * float(n)) for (b, f), n in zip(sizes, noise, strict=True)]
    found = fit_rates(samples, form)  # type: ignore[arg-type]
    for field in ("launch", "bandwidth", "flops"):
        assert math.isclose(getattr(found, field), getattr(true, field), rel_tol=0.03), field


def test_a_fit_of_a_roofline_ends_whatever_was_measured() -> None:
    """Turns may repeat without end where no roofline tells the samples; without noise it is found."""
    random = np.random.default_rng(1)
    for _ in range(300):
        rows = [(int(b), int(f)) for b, f in 10 ** random.uniform(3, 10, (random.integers(3, 9), 2))]
        samples = [OperationSample(b, f, float(10 ** random.uniform(-6, -2))) for b, f in rows]
        found = fit_rates(samples, "roofline")
        assert found.launch >= 0 and found.bandwidth > 0 and found.flops > 0
    true = Rates(1e-5, 1e11, 1e13, "roofline")
    sizes = [(10**6, 10**6), (10**8, 10**7), (10**9, 10**8), (10**6, 10**10), (10**7, 10**12), (10**5, 10**11)]
    found = fit_rates([OperationSample(b, f, true.seconds(b, f)) for b, f in sizes], "roofline")
    for field in ("launch", "bandwidth", "flops"):
        assert math.isclose(getattr(found, field), getattr(true, field), rel_tol=1e-6), field


def test_a_fit_gives_no_negative_rate() -> None:
    """More bytes took less time: plain least squares would have a negative price."""
    found = fit_rates([OperationSample(10**k, 10**6, 1e-3 / k) for k in range(1, 8)])
    assert found.launch >= 0 and found.bandwidth > 0 and found.flops > 0


def test_a_fit_of_operations_without_arithmetic() -> None:
    """Nothing tells how fast it is: then it takes no time, and the rest is found as it is."""
    found = fit_rates([OperationSample(10**k, 0, 1e-5 + 10**k / 1e12) for k in range(5, 9)])
    assert math.isclose(found.launch, 1e-5, rel_tol=1e-6) and math.isclose(found.bandwidth, 1e12, rel_tol=1e-6)
    assert math.isclose(found.flops, 1e18)


@pytest.mark.parametrize("samples", [[], [OperationSample(1, 1, 0.0)] * 3])
def test_a_fit_needs_samples(samples: list[OperationSample]) -> None:
    with pytest.raises(
        ProfileError, match=exactly(f"rates need three samples or more that took some time, got {len(samples)}")
    ):
        fit_rates(samples)


def test_a_send_is_a_launch_the_link_and_a_copy() -> None:
    b = Builder()
    sent = b.build(b.move(b.input("a", "[1000]", on(0)), place=on(1)))
    found = rd.simulate(sent, "v100")
    assert math.isclose(found.seconds, V100_LAUNCH + 4000 / V100_LINK + 4000 / V100_BANDWIDTH)
    assert found.received_bytes == {0: 0, 1: 4000} and found.peak_bytes == {0: 4000, 1: 4000}


def test_sends_between_different_devices_go_on_at_once() -> None:
    one = V100_LAUNCH + 4000 / V100_LINK + 4000 / V100_BANDWIDTH
    b = Builder()
    to_all = b.build(b.move(b.input("a", "[1000]", on(0)), place=FOUR))  # to one, then from both to another
    assert math.isclose(rd.simulate(to_all, "v100").seconds, 2 * one)
    b = Builder()
    pairs = b.build(b.move(b.input("a", "[1000{d}2000]", on(0, 1)), place=on(2, 3)))
    assert math.isclose(rd.simulate(pairs, "v100").seconds, one)
    b = Builder()
    copies = b.build(b.move(b.input("a", "[1000]", on(0, 1)), place=on(2, 3)))  # each from a holder of its own
    assert math.isclose(rd.simulate(copies, "v100").seconds, one)


def test_an_all_reduce_is_a_reduce_scatter_and_a_gather() -> None:
    """Of four parts three cross a link each way; four are packed, unpacked and added up, and four put together."""
    nest = rd.nest("ij,jk->ik", (64, 64, 64))
    (move,) = rd.partition(nest, {"matmul": {"j": 4}}).moves
    (step,) = move.plan.steps
    assert step.kind == "all_reduce"
    part = 64 * 64 // 4 * 4
    one_way = V100_LAUNCH + 3 * part / V100_LINK
    found = prices_between(move.out.place, 4, MACHINES["v100"]).step(step)
    assert math.isclose(found, 2 * one_way + 16 * part / V100_BANDWIDTH)
    scattered = rd.partition(nest, {"matmul": {"j": 4}}, outputs={"out": "[16{r1}64, 64]"})
    (step,) = scattered.moves[0].plan.steps
    assert step.kind == "reduce_scatter"
    found = prices_between(scattered.values["out"].place, 4, MACHINES["v100"]).step(step)
    assert math.isclose(found, one_way + 12 * part / V100_BANDWIDTH)


def test_a_plan_on_devices_of_two_hosts_crosses_between_them() -> None:
    plan = rd.synthesize("[2{x}4, 4096]", "[4, 4096]", "x=2", machine="gpu")
    times = []
    for devices in ((0, 1), (7, 8), (8, 9)):  # hosts are of eight devices
        b = Builder()
        a = b.input("a", "[2{x}4, 4096]", Place(rd.Mesh.of("x=2"), devices))
        times.append(rd.simulate(b.build(b.move(a, plan=plan)), "gpu").seconds)
    assert times[0] == times[2] == plan.cost
    links = PRESETS["gpu"]
    assert links.slow_bandwidth is not None
    share = 2 * 4096 * 4
    assert math.isclose(times[1] - times[0], share / links.slow_bandwidth - share / links.bandwidth)


def test_computations_of_one_operation_start_as_their_devices_are_free() -> None:
    b = Builder()
    alone, both = b.input("a", "[64, 64]", on(0)), b.input("b", "[32{d}64, 64]", on(0, 1))
    b.compute(nest("ij->ij", (64, 64), name="first", fn=np.negative), alone)
    found = rd.simulate(
        b.build(b.compute(nest("ij->ij", (64, 64), name="second", fn=np.negative), both, cut={"i": "d"}))
    )
    starts = {event.clock: event.start for event in found.events if event.name == "second"}
    assert starts[1] == 0 < starts[0]


def test_d12_a_stream_for_moves_lets_a_device_send_and_compute_at_once() -> None:
    b = Builder()
    a, w = b.input("a", "[1024, 1024]", on(0)), b.input("w", "[1024, 1024]", on(0))
    sent = b.move(a, place=on(1))
    made = b.compute(nest("ij,jk->ik", (1024,) * 3), a, w)
    program = b.build(sent, made)
    one, two = (rd.simulate(program, "v100", streams=streams) for streams in (None, "moves"))
    longest = max(event.end - event.start for event in two.events)
    assert math.isclose(one.seconds, sum(e.end - e.start for e in one.events if e.clock == 0))
    assert math.isclose(two.seconds, longest)


def test_a_stream_waits_for_what_it_reads() -> None:
    b = Builder()
    a = b.input("a", "[1024, 1024]", on(0))
    made = b.compute(nest("ij->ij", (1024, 1024), name="negate", fn=np.negative), a)
    program = b.build(b.move(made, place=on(1)))
    one, two = (rd.simulate(program, "v100", streams=streams) for streams in (None, "moves"))
    assert one.seconds == two.seconds

    def own(op: Op) -> str:
        return op.name if isinstance(op, Compute) else "rest"

    assert rd.simulate(program, "v100", streams=own).seconds == one.seconds


def test_what_is_sent_ahead_is_held_from_then_on() -> None:
    """Four inputs on device 0 are wanted one after the other on device 1. Most is held there during the second sum; on
    one stream its own copy is there then, on a stream of their own the third and the fourth wait beside it."""
    b = Builder()
    big = b.input("big", "[2048, 2048]", on(1))
    for k in range(4):
        sent = b.move(b.input(f"a{k}", "[2048]", on(0)), place=on(1))
        big = b.compute(nest("ij,j->ij", (2048, 2048), name="add", fn=np.add), big, sent)
    program = b.build(big)
    one, two = (rd.simulate(program, "v100", streams=streams).peak_bytes[1] for streams in (None, "moves"))
    assert two - one == 2 * 2048 * 4


def test_devices_that_do_the_same_share_a_clock() -> None:
    found = rd.simulate(rd.partition(rd.nest("ij,jk->ik", (64,) * 3), {"matmul": (4, 2, 2)}), "v100")
    assert set(found.run.clock_of.values()) == {0} and len(found.run.clock_of) == 16
    assert set(rd.simulate(gpipe(4, stages=3), "v100").run.clock_of.values()) == {0, 1, 2}


def test_d10_a_value_is_alive_from_its_making_to_its_last_use() -> None:
    """Inputs of 400 bytes stay. b is dead after c is made, c after d; at the worst moment two values are alive."""
    b = Builder()
    value = b.input("a", "[100]", on(0))
    for name in "bcd":
        value = b.compute(nest("i->i", (100,), name=name, fn=np.negative), value)
    found = rd.simulate(b.build(value), "v100")
    assert [(event.during, event.after) for event in found.events] == [(800, 800), (1200, 800), (1200, 800)]


def test_a_donated_input_ends_with_its_last_reader() -> None:
    b = Builder()
    a = b.input("a", "[100]", on(0))
    made = b.compute(nest("i->i", (100,), name="b", fn=np.negative), a)
    b.donate(a)
    made = b.compute(nest("i->i", (100,), name="c", fn=np.negative), made)
    assert rd.simulate(b.build(made), "v100").peak_bytes == {0: 800}


def test_d29_an_operation_has_temporary_memory() -> None:
    """A fused softmax needs what its nests hand on, 2 x 64 + 64 x 64 elements, beside what it reads and makes."""
    sizes = {"i": 64, "j": 64}
    exponent = lambda x, m: np.exp(x - m)  # noqa: E731
    maps = [
        rd.nest("ij->i", sizes, name="rowmax", reads=["inp"], writes="rowmax", combine="max"),
        rd.nest("ij,i->ij", sizes, name="exp", reads=["inp", "rowmax"], writes="exp_arr", fn=exponent),
        rd.nest("ij->i", sizes, name="rowsum", reads=["exp_arr"], writes="rowsum"),
        rd.nest("ij,i->ij", sizes, name="div", reads=["exp_arr", "rowsum"], writes="out", fn=np.divide),
    ]
    names = [one.name for one in maps]
    fused = rd.partition(maps, {one.name: {"i": 1} for one in maps}, groups={"softmax": names})
    assert rd.simulate(fused, "v100").peak_bytes == {0: 4 * (2 * 64 * 64 + 2 * 64 + 64 * 64)}


def test_a_name_for_the_same_bytes_takes_neither_time_nor_memory() -> None:
    b = Builder()
    found = rd.simulate(b.build(b.move(b.input("a", "[100]", on(0)))), "v100")
    assert (found.seconds, found.peak_bytes, found.events) == (0, {0: 400}, ())


def test_what_does_not_fit_is_said() -> None:
    tight = Machine("tight", Rates(0, 1, 1), LINKS, memory=3 * 16 * 16 * 2 - 1)
    assert not rd.simulate(product(16), tight).fits
    assert rd.simulate(product(16), "v100").fits


def test_a_table() -> None:
    found = rd.simulate(rd.partition(rd.nest("ij,jk->ik", (64,) * 3), {"matmul": {"j": 4}}), "v100")
    text = str(found)
    assert text.startswith("main on v100: 30.6 us\n")
    assert "0-3" in text and "compute matmul" in text and "move out" in text
    peak, received = max(found.peak_bytes.values()), found.received_bytes[0]
    assert f"{peak:,}" in text and f"{received:,}" in text


def test_the_table_has_the_operations_that_take_longest_first() -> None:
    b = Builder()
    small, large = b.input("small", "[16]", on(0)), b.input("large", "[4096, 4096]", on(0))
    few = b.compute(nest("i->i", (16,), name="few", fn=np.negative), small)
    many = b.compute(nest("ij->ij", (4096, 4096), name="many", fn=np.negative), large)
    lines = str(rd.simulate(b.build(few, many), "v100")).splitlines()
    order = [line.split()[1] for line in lines if line.startswith(" compute ")]
    assert order == ["many", "few"]


@pytest.mark.parametrize("machine", ["nowhere", None, ["v100"]])
def test_no_such_machine(machine: object) -> None:
    with pytest.raises(ChoiceError, match=f"^no machine {re.escape(repr(machine))}; give a CostModel, the path of a "):
        rd.simulate(product(16), machine)  # type: ignore[arg-type]


def test_what_counts_elements_is_no_machine_to_simulate() -> None:
    with pytest.raises(ProfileError, match=r"^machine=.exact. counts elements, and"):
        rd.simulate(product(16), "exact")


def test_no_such_streams() -> None:
    with pytest.raises(ProfileError, match=exactly("streams are None, 'moves', or a function of an operation; got 2")):
        rd.simulate(product(16), "v100", streams=2)  # type: ignore[arg-type]


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(ProgramError, match=exactly("a program or a plan is simulated, not a str")):
        rd.simulate("[4]", "v100")  # type: ignore[arg-type]


def test_a_model_that_counts_elements_is_refused() -> None:
    from redistrib.cost.exact import ExactCost

    with pytest.raises(
        ProfileError,
        match=exactly(
            "machine='exact' counts elements, and a simulation needs seconds; take a "
            "machine with seconds, such as 'tpu' or 'gpu'"
        ),
    ):
        rd.simulate(product(16), ExactCost())


def test_a_model_of_moves_prices_no_computation() -> None:
    with pytest.raises(
        ProfileError, match=exactly("'v100' has no rates for operation 'matmul': it prices moves only; give a Machine")
    ):
        rd.simulate(product(16), LINKS)


@pytest.mark.parametrize("rates", [(-1, 1, 1), (0, 0, 1), (0, 1, 0), (0, 1, 1, "both")])
def test_rates_are_checked(rates: tuple[object, ...]) -> None:
    with pytest.raises(ProfileError, match="rates are"):
        Rates(*rates)  # type: ignore[arg-type]
