"""An order of stages of a user: a function that makes the tasks of every device, wherever orders are taken."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import redistrib as rd
from redistrib import ir
from redistrib.errors import ProgramError


def last_first(devices: int, microbatches: int, chunks: int = 1) -> list[list[ir.PipelineTask]]:
    """All microbatches forward, then backward from the last to the first."""
    forward = [(m, False) for m in range(microbatches)]
    backward = [(m, True) for m in reversed(range(microbatches))]
    return [[ir.PipelineTask(device, m, back) for m, back in forward + backward] for device in range(devices)]


def step(w: Any, x: Any) -> Any:
    return jax.value_and_grad(lambda w: jnp.sum((jnp.tanh(x @ w["up"]) @ w["down"]) ** 2))(w)


WEIGHTS, X = {"up": jnp.arange(32.0).reshape(4, 8) / 32, "down": jnp.ones((8, 2))}, jnp.arange(16.0).reshape(4, 4) / 16


def backward_tasks(f: Any) -> list[str]:
    return [line for line in ir.to_text(f.program).splitlines() if line.lstrip().startswith("call")]


def test_a_pipeline_runs_in_it_and_a_search_weighs_it() -> None:
    own, gpipe = (
        rd.pipeline(step, (WEIGHTS, X), {"x": 0}, rd.Layout(pipeline=2, microbatches=4, order=order))
        for order in (last_first, "gpipe")
    )
    jax.tree.map(
        lambda ours, whole: np.testing.assert_allclose(ours, whole, rtol=1e-5), own(WEIGHTS, X), step(WEIGHTS, X)
    )
    calls, others = backward_tasks(own), backward_tasks(gpipe)
    assert len(calls) == len(others) and calls != others
    found = rd.search(
        step, (WEIGHTS, X), devices=2, batch={"x": 0}, microbatches=(2, 2), limit=60,
        pipeline=lambda devices, examples, most: [rd.Layout(pipeline=2, microbatches=2, order=last_first)],
    )  # fmt: skip
    assert "1/1/2/2 last_first" in [str(one.layout) for one in found if hasattr(one, "layout")]


def test_it_has_a_name_once_it_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ir.ORDERS, "_entries", dict(ir.ORDERS))  # gone after the test
    ir.register_order("last first")(last_first)
    f = rd.pipeline(step, (WEIGHTS, X), {"x": 0}, rd.Layout(pipeline=2, microbatches=2, order="last first"))
    assert "pipeline 2, microbatches 2 last first" in repr(f)


def test_an_order_that_cannot_run_is_refused() -> None:
    def too_early(devices: int, microbatches: int, chunks: int = 1) -> list[list[ir.PipelineTask]]:
        return [row[::-1] for row in last_first(devices, microbatches, chunks)]

    with pytest.raises(ProgramError, match="waits for tasks that come after it, or that no device runs"):
        rd.pipeline(step, (WEIGHTS, X), {"x": 0}, rd.Layout(pipeline=2, microbatches=2, order=too_early))
