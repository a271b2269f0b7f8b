"""What programs with calls hold: what they would hold with every called program in the place of its call."""

from __future__ import annotations

from math import isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redistrib as rd
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import peak_bytes, scratch_bytes
from redistrib.programs.ir.program import Call, Compute, Move, Place, Program, Value
from redistrib.programs.ir.spec import nest
from redistrib.programs.time.kernels.allocation import allocate, intervals
from tests.programs.ir.nested import programs
from tests.programs.time.mlp import on
from tests.programs.time.test_laws import HOSTS


def counted(program: Program) -> dict[int, int]:
    """The peak of a program without calls, counted anew for every operation: names of one buffer are a set."""
    names: dict[str, set[str]] = {value.name: {value.name} for value in program.inputs}
    first = {value.name: -1 for value in program.inputs}
    uses: dict[str, list[int]] = {value.name: [] for value in program.inputs}
    for k, op in enumerate(program.ops):
        match op:
            case Compute():
                made, read = [value for _, value in op.outs], [name for _, name in op.ins]
            case Move():
                made, read = [op.out], [op.value]
                if op.plan is None and program.values[op.value].means(op.out):
                    names[op.value].add(op.out.name)
                    names[op.out.name] = names[op.value]
            case Call():
                raise AssertionError("the program has calls")
        for name in read:
            uses[name].append(k)
        for value in made:
            names.setdefault(value.name, {value.name})
            first[value.name] = k
            uses[value.name] = [k]
    end = len(program.ops)
    for value in program.inputs:
        if value.name not in program.donated or not any(uses[name] for name in names[value.name]):
            uses[value.name].append(end)
    for name in program.outputs:
        uses[name].append(end)

    def held(k: int, device: int) -> int:
        total = 0
        for buffer in {frozenset(one) for one in names.values()}:
            value = program.values[min(buffer, key=lambda name: first[name])]
            used = [at for name in buffer for at in uses[name]]
            if device in value.place.devices and first[value.name] <= k <= max(used):
                total += value.tile_bytes
        return total

    def scratch(k: int, device: int) -> int:
        op = program.ops[k]
        ends = [op.place] if isinstance(op, Compute) else []
        if isinstance(op, Move):
            ends = [program.values[op.value].place, op.out.place]
        return scratch_bytes(op) * any(device in end.devices for end in ends)

    return {
        device: max([held(-1, device), *(held(k, device) + scratch(k, device) for k in range(end))])
        for device in program.devices
    }


@settings(max_examples=150, deadline=None)
@given(programs())
def test_a_call_holds_what_its_operations_hold(program: Program) -> None:
    flat = inlined(program)
    peak = peak_bytes(program)
    assert peak == peak_bytes(flat) == counted(flat)
    assert peak == {device: allocate(intervals(program, device)).bound for device in program.devices}
    for streams in (None, lambda op: "all"):
        simulations = [rd.simulate(one, HOSTS, streams=streams) for one in (program, flat)]
        assert [one.peak_bytes for one in simulations] == [peak, peak]


@settings(max_examples=100, deadline=None)
@given(programs(), st.sampled_from([None, "moves"]))
def test_a_call_takes_as_long_as_its_operations(program: Program, streams: None) -> None:
    flat = inlined(program)
    called, plain = (rd.simulate(one, HOSTS, streams=streams) for one in (program, flat))
    assert isclose(called.seconds, plain.seconds, rel_tol=1e-9)
    assert all(isclose(seconds, called.busy[device], rel_tol=1e-9) for device, seconds in plain.busy.items())
    assert called.received_bytes == plain.received_bytes
    assert sum(called.received_bytes.values()) == program.received_bytes == flat.received_bytes
    assert called.height == plain.height
    assert called.peak_bytes == plain.peak_bytes


F = nest("i->i", (250,), name="f", fn=np.negative)


def two() -> Program:
    """a = f(u), b = f(v), and their sum."""
    b = Builder("two")
    u, v = (b.input(name, "[250]", on(0)) for name in "uv")
    left, right = b.compute(F, u), b.compute(F, v)
    return b.build(b.compute(nest("i,i->i", (250,), name="add", fn=np.add), left, right))


def caller(program: Program, *made: int, donate: bool = True) -> Program:
    """A program that makes the arguments of a call anew; number `k` twice passes one value twice."""
    b = Builder("caller")
    x = b.input("x", "[250]", on(0))
    values: dict[int, Value] = {}
    for k in made:
        values[k] = values.get(k) or b.compute(F, x)
    if donate:
        b.donate(x)
    out = b.call(program, *(values[k] for k in made))
    return b.build(*(out if isinstance(out, tuple) else (out,)))


def test_inputs_that_end_inside_a_call_are_not_held_to_its_end() -> None:
    program = caller(two(), 0, 1)  # u, v and a; then v, a and b; then a, b and their sum
    assert peak_bytes(program) == peak_bytes(inlined(program)) == {0: 3000}
    assert rd.simulate(program, HOSTS).peak_bytes == {0: 3000}


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_inputs_end_inside_calls_of_calls(depth: int) -> None:
    program = two()
    for _ in range(depth):
        b = Builder("outer")
        u, v = (b.input(name, "[250]", on(0)) for name in "uv")
        program = b.build(b.call(program, u, v))
    program = caller(program, 0, 1)
    assert peak_bytes(program) == {0: 3000} == rd.simulate(program, HOSTS).peak_bytes


def test_a_value_passed_twice_ends_with_the_later_reader() -> None:
    program = caller(two(), 0, 0)  # u and a; then u, a and b; then a, b and their sum
    assert peak_bytes(program) == peak_bytes(inlined(program)) == {0: 3000}
    assert rd.simulate(program, HOSTS).peak_bytes == {0: 3000}


def test_an_input_that_nothing_reads_is_not_held_for_the_call() -> None:
    b = Builder("first")
    u, _ = (b.input(name, "[250]", on(0)) for name in "uv")
    program = caller(b.build(b.compute(F, u)), 0, 1)
    # x, u and v while the last of them is made; without v there would be u and its result alone
    assert peak_bytes(program) == peak_bytes(inlined(program)) == {0: 3000}
    program = caller(b.build(b.compute(F, b.compute(F, u))), 1, 1)
    assert peak_bytes(program) == {0: 2000} == rd.simulate(program, HOSTS).peak_bytes


def test_a_result_that_nothing_reads_ends_inside() -> None:
    b = Builder("both")
    u = b.input("u", "[250]", on(0))
    early = b.compute(F, u)
    late = b.compute(F, b.compute(F, early))
    program = b.build(early, late)
    b = Builder("caller")
    x = b.input("x", "[250]", on(0))
    _, late = b.call(program, x)
    program = b.build(b.compute(F, late))
    # x, and two of the chain at a time; the first of them is not held for the caller
    assert peak_bytes(program) == peak_bytes(inlined(program)) == {0: 3000}
    assert rd.simulate(program, HOSTS).peak_bytes == {0: 3000}


def test_a_called_program_donates_nothing_that_its_caller_reads_again() -> None:
    b = Builder("donates")
    u = b.input("u", "[250]", on(0))
    out = b.compute(F, u)
    b.donate(u)
    inner = b.build(b.compute(F, out))
    b = Builder("caller")
    x = b.input("x", "[250]", on(0))
    once = b.call(inner, x)
    program = b.build(b.call(inner, once), x)
    assert peak_bytes(program) == peak_bytes(inlined(program)) == {0: 3000}
    assert rd.simulate(program, HOSTS).peak_bytes == {0: 3000}


def test_a_donated_input_of_a_called_program_ends_inside() -> None:
    b = Builder("donates")
    u = b.input("u", "[250]", on(0))
    out = b.compute(F, b.compute(F, b.compute(F, u)))
    b.donate(u)
    program = caller(b.build(out), 0)
    # u and the first of the chain; u would be a third beside two of the chain
    assert peak_bytes(program) == peak_bytes(inlined(program)) == {0: 2000}
    assert rd.simulate(program, HOSTS).peak_bytes == {0: 2000}


def test_devices_do_not_wait_for_each_other_to_give_a_value_another_name() -> None:
    b = Builder("same")
    same = b.build(b.input("v", "[250]", Place(Mesh.of("x=2"))))
    b = Builder("caller")
    x, y = (b.input(name, "[250]", on(device)) for device, name in enumerate("xy"))
    v = b.input("v", "[250]", Place(Mesh.of("x=2")))
    first = b.compute(F, x)
    program = b.build(first, b.move(b.call(same, v)), b.compute(F, y))
    for one in (program, inlined(program)):
        for streams in (None, "moves"):
            assert [event.start for event in rd.simulate(one, HOSTS, streams=streams).events] == [0.0, 0.0]
