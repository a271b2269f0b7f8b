"""Gathers of tiles of rank 1 where the compiler would make them sums: in rows, and the same elements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.backends.jax import execute
from redistrib.backends.jax.context import LoweringContext, context_of
from redistrib.explain.profiling.inspect import inspect


@pytest.mark.parametrize("tile", [3, 8, 40])
@pytest.mark.parametrize("chunk", [None, 64])
def test_lines_are_gathered_in_rows(tile: int, chunk: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once and in slices; the compiler may not see that they are one line after all."""
    changed = {"adds_up_lines": True, "copies_results": True, "chunk": chunk}

    def changed_context(*args: Any) -> LoweringContext:
        context = context_of(*args)
        return replace(context, quirks=replace(context.quirks, **changed))

    monkeypatch.setattr(execute, "context_of", changed_context)
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    plan = rd.synthesize(f"[{tile}{{x,y}}{4 * tile}]", f"[{2 * tile}{{y}}{4 * tile}]", "x=2,y=2", machine="tpu")
    assert [step.kind for step in plan.steps] == ["allgather"]
    run = jax.jit(rd.to_jax(plan, mesh))
    held = np.arange(4 * tile, dtype=np.float32)
    x = jax.device_put(held, NamedSharding(mesh, PartitionSpec(("y", "x"))))
    y = run(x)
    assert np.array_equal(y, held)
    assert y.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec("y")), 1)
    found = inspect(run.lower(x).compile())
    assert {each.kind for each in found.collectives} == {"all-gather"}
    assert all(len(each.operands[0].shape) == 3 for each in found.collectives)
