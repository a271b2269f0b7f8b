"""Recomputation computes the same and holds less, alone and spread over devices."""

from __future__ import annotations

import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.program import Compute, Program
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.stages.layout import Layout
from redistrib.programs.stages.recompute import recomputed
from redistrib.programs.stages.spreading import spread
from tests.messages import exactly
from tests.programs.stages.models import transformer
from tests.programs.time.mlp import deep

BATCH = {"x": 0, "y": 0}


def made_by_name(program: Program, name: str) -> list[str]:
    return [op.outs[0][1].name for op in inlined(program).ops if isinstance(op, Compute) and op.name == name]


def test_it_is_figure_8_written_by_a_transform() -> None:
    """16 layers, every fourth activation kept: the peak of the program that has it written out, and its time."""
    plain, by_hand = deep(16, 4096, 1024), deep(16, 4096, 1024, every=4)
    found = recomputed(plain, BATCH, made_by_name(plain, "relu")[3::4])
    peaks = [rd.simulate(one, "v100").peak_bytes[0] for one in (plain, by_hand, found)]
    assert peaks == [201_326_592, 125_829_120, 125_829_120]


@pytest.mark.parametrize("model", ["mlp", "transformer"])
def test_values_are_the_same_and_peaks_lower(model: str) -> None:
    program = deep(8, 16, 8, dtype="int64") if model == "mlp" else transformer(4, 16, heads=8, d=1)
    cut = "relu" if model == "mlp" else "sum"
    kept = made_by_name(program, cut)
    kept = kept[1:-1:2] if model == "mlp" else kept[1:8:2]
    found = recomputed(program, BATCH, kept)
    arrays = [np.random.default_rng(0).integers(-1, 2, value.type.global_shape) for value in program.inputs]
    wanted = run_whole(program, arrays)
    for one, other in zip(run_whole(found, arrays), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    for layout in (Layout(), Layout(2, 2, 2, 4), Layout(1, 1, 4, 8)):
        plain, less = (spread(one, BATCH, layout) for one in (program, found))
        for one, other in zip(less.results(run_by_rank(less.program, less.arguments(arrays))), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        before, after = (rd.simulate(one.program, "v100") for one in (plain, less))
        assert sum(after.peak_bytes.values()) < sum(before.peak_bytes.values())
        assert after.seconds > before.seconds


def test_only_what_goes_forward_can_be_kept() -> None:
    with pytest.raises(ProgramError, match=exactly("array 'w0': nothing that goes forward makes this value")):
        recomputed(deep(2, 4, 4), BATCH, ["w0"])
