"""A sample of the steps in stages that `python -m bench fuzz --pipelines` draws, and faults that it must find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import pytest

import redistrib as rd
from tests.fuzz import pipelines
from tests.fuzz.guard import Failure
from tests.fuzz.kinds import KINDS, run

SEED, SAMPLE, LARGER, LARGEST = 1, 2, 9, 29
REFUSED = 0.1  # of the steps, at most: those whose layers mix examples, and few others


def test_nothing_fails() -> None:
    assert run(KINDS["pipelines"], SEED, range(SAMPLE)).failures == {}


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        pytest.param(SAMPLE, LARGER, marks=pytest.mark.long),
        pytest.param(LARGER, LARGEST, marks=pytest.mark.exhaustive),
    ],
)
def test_nothing_fails_in_a_larger_sample_and_little_is_refused(start: int, stop: int) -> None:
    tally = run(KINDS["pipelines"], SEED, range(start, stop))
    assert tally.failures == {}
    assert tally.outcomes["refused"] <= REFUSED * tally.cases


def test_every_kind_of_layer_stack_and_optimizer_is_drawn() -> None:
    steps = [pipelines.drawn(SEED, index) for index in range(400)]
    assert {kind for step in steps for kind in step.kinds} == {*pipelines.KINDS}
    assert {step.stack for step in steps} == {*pipelines.STACKS}
    assert {step.carry for step in steps} == {*pipelines.CARRIES}
    assert {step.loss for step in steps} == {*pipelines.LOSSES}
    assert {step.optimizer for step in steps} == {*pipelines.OPTIMIZERS}
    layouts = [pipelines.layout_of(SEED, index) for index in range(400)]
    assert {layout.zero for layout in layouts} == {0, 1, 2, 3}
    assert {layout.chunks for layout in layouts} == {1, 2}


@pytest.mark.parametrize("change", ["a number", "an integer", "a shape"])
def test_a_step_that_computes_something_else_is_seen(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = replace(pipelines.drawn(SEED, 0), kinds=("dense",), carry="count", optimizer="none", dtype="float64")
    monkeypatch.setattr(pipelines, "drawn", lambda seed, index: step)

    def piped(function: Any, args: Any, batch: Any, layout: Any) -> Any:
        def call(*args: Any) -> Any:
            out, extra, count, left = jax.jit(function)(*args)
            match change:
                case "a number":
                    out = out.at[3, 1, 0].add(1e-7)
                case "an integer":
                    count = count + 1
                case "a shape":
                    out = out[:, 1:]
            return out, extra, count, left

        return call

    monkeypatch.setattr(rd, "pipeline", piped)
    with pytest.raises(Failure, match="wrong: step 0: result"):
        pipelines.check(SEED, 0)
