"""Orders of a pipeline: every task once, bubbles as the textbooks have them, and refusals."""

from __future__ import annotations

from fractions import Fraction
from math import isclose

import pytest

import redistrib as rd
from redistrib.cost.latency import KINDS, Latency, LatencyBandwidth
from redistrib.errors import ProgramError
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.spec import nest
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.orders import Order, PipelineTask, gpipe, interleaved, one_f_one_b
from redistrib.programs.stages.spreading import spread
from redistrib.programs.time.machine import Machine, Rates
from tests.messages import exactly
from tests.programs.time.mlp import on

FREE = Rates(0.0, 1e300, 1e300)
UNIT = Rates(1.0, 1e300, 1e300)
# A forward pass takes one second, a backward pass two, and all else, moves among it, nothing.
SECONDS = Machine(
    "seconds",
    FREE,
    LatencyBandwidth("free", {kind: Latency(0.0) for kind in KINDS}, bandwidth=1e30, memory_bandwidth=1e30),
    operations={"forward": UNIT, "backward": UNIT, "weights": UNIT},
)


def chain(layers: int, batch: int) -> Program:
    """Layers of one product each, with their gradients."""
    b = Builder("chain")
    n = 256
    w = [b.input(f"w{k}", f"[{n}, {n}]", on(0)) for k in range(layers)]
    x, y = b.input("x", f"[{batch}, {n}]", on(0)), b.input("y", f"[{batch}, {n}]", on(0))
    forward = nest("bn,nm->bm", (batch, n, n), name="forward")
    acts = [x]
    for k in range(layers):
        acts.append(b.compute(forward, acts[-1], w[k]))
    grad = b.compute(nest("bm,bm->bm", (batch, n), name="loss", fn=lambda p, y: p - y, linear=[(0, 1)]), acts[-1], y)
    made = []
    for k in reversed(range(layers)):
        made.append(b.compute(nest("bn,bm->nm", (batch, n, n), name="weights"), acts[k], grad))
        grad = b.compute(nest("bm,nm->bn", {"b": batch, "n": n, "m": n}, name="backward"), grad, w[k])
    return b.build(*made)


def bubble(order: Order, stages: int, microbatches: int, chunks: int, streams: str | None) -> Fraction:
    """Idle time over the whole, on the device that is busy longest."""
    layout = Layout(pipeline=stages, microbatches=microbatches, chunks=chunks, order=order)
    made = spread(chain(stages * chunks, microbatches), {"x": 0, "y": 0}, layout)
    found = rd.simulate(made.program, SECONDS, streams=streams)  # type: ignore[arg-type]
    seconds, busy = round(found.seconds), 3 * microbatches * chunks
    assert isclose(seconds, found.seconds) and all(isclose(own, busy) for own in found.busy.values())
    return 1 - Fraction(busy, seconds)


@pytest.mark.parametrize("streams", [None, "moves"])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 1), (2, 4), (4, 4), (4, 8), (8, 16), (3, 5)])
def test_the_bubble_of_gpipe_and_of_1f1b(stages: int, microbatches: int, streams: str | None) -> None:
    """(S - 1) / (M + S - 1) of the time, to the last digit; a send that takes no time still waits for both ends."""
    wanted = Fraction(stages - 1, microbatches + stages - 1)
    for order in (gpipe, one_f_one_b):
        assert bubble(order, stages, microbatches, 1, streams) == wanted


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(2, 4, 2), (4, 4, 2), (4, 8, 2), (2, 6, 3), (4, 8, 4)])
def test_the_bubble_of_the_interleaved_order(stages: int, microbatches: int, chunks: int) -> None:
    """Idle time over work is (S - 1) / M of the pipeline without chunks, and 1 / v of that with v."""
    found = bubble(interleaved, stages, microbatches, chunks, "moves")
    assert found / (1 - found) == Fraction(stages - 1, chunks * microbatches)


def test_1f1b_holds_fewer_activations_than_gpipe() -> None:
    """At most as many microbatches as stages are on their way, however many there are."""
    peaks = {}
    for order in (gpipe, one_f_one_b):
        for microbatches in (8, 32):
            layout = Layout(pipeline=4, microbatches=microbatches, order=order)
            program = spread(chain(4, 1024 * microbatches), {"x": 0, "y": 0}, layout).program
            inputs = sum(value.tile_bytes for value in program.inputs if value.place.devices == (1,))
            peaks[order, microbatches] = rd.simulate(program, "v100").peak_bytes[1] - inputs
    assert peaks[one_f_one_b, 8] == peaks[one_f_one_b, 32] < peaks[gpipe, 8] < peaks[gpipe, 32]


@pytest.mark.parametrize("order", [gpipe, one_f_one_b, interleaved])
@pytest.mark.parametrize(("devices", "microbatches", "chunks"), [(1, 3, 1), (2, 4, 1), (4, 8, 2), (3, 3, 3)])
def test_every_unit_runs_once(order: Order, devices: int, microbatches: int, chunks: int) -> None:
    rows = order(devices, microbatches, chunks)
    tasks = [one for row in rows for one in row]
    stages = devices * chunks
    wanted = {PipelineTask(s, m, back) for s in range(stages) for m in range(microbatches) for back in (False, True)}
    assert len(tasks) == len(wanted) and set(tasks) == wanted
    assert all(one.stage % devices == device for device, row in enumerate(rows) for one in row)


def backwards(devices: int, microbatches: int, chunks: int) -> list[list[PipelineTask]]:
    return [row[::-1] for row in gpipe(devices, microbatches, chunks)]


def last_in_first_out(devices: int, microbatches: int, chunks: int) -> list[list[PipelineTask]]:
    """GPipe with the microbatches backward in the other order."""

    def turned(one: PipelineTask) -> PipelineTask:
        return one._replace(microbatch=microbatches - 1 - one.microbatch) if one.backward else one

    return [list(map(turned, row)) for row in gpipe(devices, microbatches, chunks)]


def test_orders_are_functions_that_a_user_may_write() -> None:
    assert bubble(last_in_first_out, 2, 4, 1, "moves") == Fraction(1, 5)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (
            backwards,
            (
                "PipelineTask(stage=0, microbatch=3, backward=True) waits for tasks that come after it, or that no "
                "device runs; change the order"
            ),
        ),
        (lambda p, m, v: gpipe(p, m, v)[::-1], "stage 1 is not on group 0 of devices"),
        (
            lambda p, m, v: [row[1:] for row in gpipe(p, m, v)],
            "the order has 14 tasks, and every stage runs each of 4 microbatches once, 16 tasks in all",
        ),
        (
            lambda p, m, v: interleaved(p, m + 1, v),
            ("2 devices take 5 microbatches in turns only if they divide them; take a multiple of 2, or another order"),
        ),
    ],
)
def test_orders_that_cannot_run_are_refused(order: Order, why: str) -> None:
    with pytest.raises(ProgramError, match=exactly(why)):
        spread(chain(2, 8), {"x": 0, "y": 0}, Layout(pipeline=2, microbatches=4, order=order))
