"""What holds of every simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isclose
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.cost.latency import KINDS, Latency, LatencyBandwidth
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import peak_bytes
from redistrib.programs.ir.program import Call, Compute, Move, Op, Place, Program, Value, used_by
from redistrib.programs.time.clocks import run
from redistrib.programs.time.constants import machine
from redistrib.programs.time.machine import Machine, Rates
from redistrib.programs.time.prices import compute_stages, move_stages
from redistrib.synthesis.synthesize import synthesize
from tests.programs.time.drawn import SHAPES, programs
from tests.programs.time.mlp import on

V100 = machine("v100")
# Two hosts of two devices, and rates at which neither launch nor bytes are lost.
HOSTS = Machine(
    "hosts",
    Rates(1e-6, 1e9, 1e9),
    LatencyBandwidth(
        "hosts",
        {kind: Latency(1e-6, 1e-7) for kind in KINDS},
        bandwidth=1e9,
        memory_bandwidth=1e10,
        slow_bandwidth=1e8,
        devices_per_host=2,
    ),
)
few = settings(max_examples=60, deadline=None)


def seconds_of(op: Op, program: Program, on: Machine) -> float:
    if isinstance(op, Compute):
        return sum(stage.seconds for stage in compute_stages(op, program, on))
    return sum(stage.seconds for stage in move_stages(op, program, on)) if isinstance(op, Move) else 0.0


def critical_path(program: Program, on: Machine) -> float:
    """Seconds of the longest chain of operations in which each reads what the one before it makes."""
    flat, done = inlined(program), {}
    for op in flat.ops:
        assert not isinstance(op, Call)
        end = max((done.get(name, 0.0) for name in used_by(op)), default=0.0) + seconds_of(op, flat, on)
        made = [value for _, value in op.outs] if isinstance(op, Compute) else [op.out]
        done |= {value.name: end for value in made}
    return max(done.values(), default=0.0)


@few
@given(programs())
def test_time_is_never_below_the_critical_path_nor_what_a_device_is_busy(program: Program) -> None:
    flat = inlined(program)
    for streams in (None, "moves"):
        found = rd.simulate(program, HOSTS, streams=streams)
        assert found.seconds >= critical_path(program, HOSTS) * (1 - 1e-12)
        assert all(found.seconds >= busy * (1 - 1e-12) for busy in found.busy.values())
    # On one stream a device is busy with all the operations that it takes part in.
    found = rd.simulate(program, HOSTS)
    for device in program.devices:
        own = 0.0
        for op in flat.ops:
            if isinstance(op, Compute) and device in op.place.devices:
                own += seconds_of(op, flat, HOSTS)
            elif isinstance(op, Move):
                ends = (flat.values[op.value], op.out)
                own += seconds_of(op, flat, HOSTS) * any(device in end.place.devices for end in ends)
        assert isclose(found.busy[device], own, rel_tol=1e-9, abs_tol=1e-15)


@few
@given(programs(), st.integers(0, 2**32))
def test_another_stream_never_slows(program: Program, seed: int) -> None:
    def stream(op: Op, many: int) -> str:
        name = op.name if isinstance(op, Compute) else op.out.name if isinstance(op, Move) else ""
        return str(crc32(f"{name} {seed}".encode()) % 12 % many)

    times = [rd.simulate(program, HOSTS, streams=lambda op, k=k: stream(op, k)).seconds for k in (1, 2, 4, 12)]
    one = rd.simulate(program, HOSTS).seconds
    # Operations that share one of 12 streams share one of 4, of 2 and of 1.
    assert isclose(times[0], one, rel_tol=1e-9)
    assert all(finer <= coarser * (1 + 1e-12) for coarser, finer in pairwise(times))


@few
@given(programs())
def test_one_stream_by_name_is_one_stream(program: Program) -> None:
    """With streams bytes are counted by time, without in the order of the program: two ways to one answer."""
    plain, named = (rd.simulate(program, HOSTS, streams=streams) for streams in (None, lambda op: "own"))
    assert plain.peak_bytes == named.peak_bytes
    for one, other in zip(sorted(plain.busy.items()), sorted(named.busy.items()), strict=True):
        assert isclose(one[1], other[1], rel_tol=1e-9)


@few
@given(programs())
def test_devices_with_equal_histories_may_share_a_clock(program: Program) -> None:
    shared, apart = (run(program, HOSTS, shared=shared) for shared in (True, False))
    assert apart.clock_of == {device: device for device in program.devices}
    for device, clock in shared.clock_of.items():
        assert isclose(shared.now.get((clock, ""), 0.0), apart.now.get((device, ""), 0.0), rel_tol=1e-9)
        assert shared.peak[clock] == apart.peak[device]
        assert isclose(shared.busy.get((clock, ""), 0.0), apart.busy.get((device, ""), 0.0), rel_tol=1e-9)
    assert shared.met <= apart.met and shared.height == apart.height


def renumbered(program: Program, number: dict[int, int]) -> Program:
    """The program with its devices called by other numbers."""

    def place(one: Place) -> Place:
        return Place(one.mesh, tuple(number[device] for device in one.devices))

    def value(one: Value) -> Value:
        return replace(one, place=place(one.place))

    ops: list[Op] = []
    for op in program.ops:
        match op:
            case Compute():
                outs = tuple((array, value(out)) for array, out in op.outs)
                ops.append(replace(op, place=place(op.place), outs=outs))
            case Move():
                ops.append(replace(op, out=value(op.out)))
            case Call():
                ops.append(Call(renumbered(op.program, number), op.ins, tuple(map(value, op.outs))))
    return Program(tuple(map(value, program.inputs)), tuple(ops), program.outputs, program.name, program.donated)


@few
@given(programs(), st.sampled_from([{0: 1, 1: 0, 2: 2, 3: 3}, {0: 2, 1: 3, 2: 0, 3: 1}, {0: 3, 1: 2, 2: 1, 3: 0}]))
def test_devices_that_the_links_do_not_tell_apart_may_change_places(program: Program, number: dict[int, int]) -> None:
    first, second = (rd.simulate(one, HOSTS) for one in (program, renumbered(program, number)))
    assert isclose(first.seconds, second.seconds, rel_tol=1e-9)
    assert {number[device]: held for device, held in first.peak_bytes.items()} == second.peak_bytes
    assert {number[device]: count for device, count in first.received_bytes.items()} == second.received_bytes


def test_devices_of_different_hosts_may_not() -> None:
    """The law above would hold of a simulator that took no notice of hosts; this one does."""

    times = []
    for target in (1, 2):
        b = Builder()
        times.append(rd.simulate(b.build(b.move(b.input("a", "[1000]", on(0)), place=on(target))), HOSTS).seconds)
    assert isclose(times[1] - times[0], 4000 / 1e8 - 4000 / 1e9, rel_tol=1e-9)


@few
@given(programs())
def test_peaks_are_those_of_the_program(program: Program) -> None:
    found, flat = rd.simulate(program, HOSTS).peak_bytes, inlined(program)
    assert found == peak_bytes(program) == peak_bytes(flat) == rd.simulate(flat, HOSTS).peak_bytes


@few
@given(st.sampled_from(SHAPES["xy"] + ["[8, 2{y,x}8]"]), st.sampled_from(SHAPES["xy"] + ["[4{y}8, 8]"]))
def test_a_plan_is_simulated_as_it_says_of_itself(source: str, target: str) -> None:
    forms = [rd.DistType.of(text) for text in (source, target)]
    mesh = rd.Mesh.of("x=2,y=2")
    plan = synthesize(forms[0], mesh, forms[1], mesh, dtype="float32", model=HOSTS.links)
    found = rd.simulate(plan, HOSTS.links)
    assert isclose(found.seconds, plan.cost, rel_tol=1e-12)
    assert found.height == plan.height
    assert set(found.peak_bytes.values()) == {plan.peak_bytes}
    assert list(found.received_bytes.values()) == [4 * count for count in plan.received]


@few
@given(programs())
def test_without_a_record_nothing_else_changes(program: Program) -> None:
    kept, left = (rd.simulate(program, HOSTS, record=record) for record in (True, False))
    assert (kept.seconds, kept.peak_bytes, kept.busy, kept.height) == (
        left.seconds, left.peak_bytes, left.busy, left.height,
    )  # fmt: skip
    assert not left.events
