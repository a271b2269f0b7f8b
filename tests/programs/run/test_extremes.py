"""Functions of maxima and minima, cut in every way: NaNs stay NaNs, zeros keep their sign."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.program import Move, Program
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.rules.inline import trace
from redistrib.programs.run.arguments import leaf_names
from redistrib.programs.run.jax.program import mapped, shardings
from tests.plans.test_extremes import same
from tests.programs.ir.nests import cuts
from tests.programs.rules.test_rules import programs

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max of rows": lambda a: a.max(1),
    "min of columns": lambda a: a.min(0),
    "max of all": lambda a: a.max(),
    "min of all": lambda a: a.min(),
    "max of bfloat16": lambda a: a.astype(jnp.bfloat16).max(1).astype(jnp.float32),
    "max of absolute values": lambda a: jnp.abs(a).max(0),
    "any": lambda a: (a > 1).any(1),
    "argmax": lambda a: jnp.argmax(a, 1),
    "argmin": lambda a: jnp.argmin(a, 0),
    "cummax": lambda a: lax.cummax(a, 1),
    "cummin": lambda a: lax.cummin(a, 0),
    "softmax": lambda a: jax.nn.softmax(a, -1),
    "relu": lambda a: jnp.maximum(a, 0),
    "clip": lambda a: jnp.clip(a, -1, 1),
}


def values(rows: int, columns: int) -> np.ndarray:
    """Every row and every column of the upper left corner has something that others have not."""
    result = (np.arange(rows * columns).reshape(rows, columns) * 5 % 7 - 9).astype(np.float32)
    result[0, 3], result[1, 0], result[2, :], result[3, 3] = np.nan, -np.nan, -0.0, np.inf
    result[2, 1], result[4, 2], result[5, :] = 0.0, -np.inf, -np.inf
    return result


def agree(name: str, result: np.ndarray, wanted: np.ndarray) -> bool:
    """Sums of a softmax are rounded otherwise in another order."""
    if name == "softmax":
        return np.allclose(result, wanted, rtol=1e-6, atol=0, equal_nan=True)
    return same(result, wanted)


def by_every_cut(function: Callable[..., Any], array: np.ndarray, mesh: Mesh) -> Iterator[tuple[str, Program]]:
    graph = trace(function, (array,), leaf_names(function, (array,))).graph
    every = [(graph, k, cut) for k, op in enumerate(graph.operations) for cut in cuts(op.nest, mesh)]
    return programs(every, mesh)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_numpy_under_every_cut(name: str) -> None:
    function, array = FUNCTIONS[name], values(8, 12)
    wanted = np.asarray(jax.jit(function)(array))
    ran = 0
    for cut, program in by_every_cut(function, array, Mesh.of("x=2,y=2")):
        for run in (run_whole, run_by_rank):
            (result,) = run(program, [array])
            assert agree(name, result, wanted), (cut, run.__name__)
        ran += 1
    assert ran


@pytest.mark.parametrize("name", ["max of rows", "min of columns", "max of all", "max of bfloat16", "softmax"])
def test_on_devices(name: str) -> None:
    """Programs that reduce across devices; the sizes of some divide by nothing."""
    function = FUNCTIONS[name]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
    seen: set[str] = set()
    for array in (values(8, 12), values(7, 5)):
        wanted = np.asarray(jax.jit(function)(array))
        for cut, program in by_every_cut(function, array, Mesh.of("x=2,y=2")):
            kinds = {step.kind for op in program.ops if isinstance(op, Move) and op.plan for step in op.plan.steps}
            form = str([(value.name, str(value.type)) for value in program.values.values()])
            if form in seen or not kinds & {"all_reduce", "reduce_scatter", "reduce_exchange"}:
                continue
            seen.add(form)
            arrays = [jax.device_put(array, sharding) for sharding in shardings(program.inputs, mesh)]
            (result,) = jax.jit(mapped(program, mesh))(*arrays)
            assert agree(name, np.asarray(result), wanted), cut
    assert seen
