"""Programs as launches: what one place runs by itself, and what is sent in between."""

from __future__ import annotations

import numpy as np
import pytest

import redistrib as rd
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.launches import Launch, TransferLaunch, launches
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.reference import Tiles, collect, distribute, run_tiles, run_whole
from redistrib.programs.stages.models import mlp
from redistrib.programs.stages.spreading import spread
from tests.programs.time.drawn import arrays_for
from tests.programs.time.mlp import pipelined


def run_launches(program: Program, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Launch by launch, every value given up as soon as it is said to be dropped."""
    held: dict[str, Tiles] = {}
    for value, array in zip(program.inputs, arrays, strict=True):
        held[value.name] = distribute(array, value)
    for item in launches(program):
        ins = [held[name] for name in item.ins]
        if isinstance(item, Launch):
            assert all(value.place == item.place for value in inlined(item.program).values.values())
            made = run_tiles(item.program, ins)
        else:
            ends = [program.values[name] for name in item.ins]
            made = [
                distribute(collect(*one), out) for one, out in zip(zip(ins, ends, strict=True), item.outs, strict=True)
            ]
        held |= {value.name: tiles for value, tiles in zip(item.outs, made, strict=True)}
        for name in item.drops:
            del held[name]
    assert set(held) == set(program.outputs)
    return [collect(held[name], program.values[name]) for name in program.outputs]


@pytest.mark.parametrize(
    "layout", [rd.Layout(2, 2, 2, 2), rd.Layout(1, 1, 4, 8), rd.Layout(4, 1, 2, 2, zero=2)], ids=str
)
def test_launches_compute_what_the_program_does(layout: rd.Layout) -> None:
    program = mlp(4, 8, 16, dtype="int64")
    arrays = [array % 3 - 1 for array in arrays_for(program)]
    made = spread(program, {"x": 0, "y": 0}, layout)
    found = made.results(run_launches(made.program, made.arguments(arrays)))
    for one, other in zip(found, run_whole(program, arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_program_by_hand_is_launched_too() -> None:
    arrays = arrays_for(pipelined())
    for one, other in zip(run_launches(pipelined(), arrays), run_whole(pipelined(), arrays), strict=True):
        np.testing.assert_array_equal(one, other)


def test_units_and_updates_are_one_launch_each() -> None:
    made = spread(mlp(4, 8, 16), {"x": 0, "y": 0}, rd.Layout(1, 1, 2, 4))
    items = launches(made.program)
    programs = [item.program for item in items if isinstance(item, Launch)]
    # For each of 4 microbatches forward and backward on both groups, and the update of each group.
    assert len(programs) == 4 * 2 * 2 + 2
    assert len({id(program) for program in programs}) == 8  # backward with and without a sum so far
    assert sum(isinstance(item, TransferLaunch) for item in items) == 2 * 4
