"""The floating-point operations of an operation are those that its algorithm needs, whatever is read whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from redistrib.lang.mesh import Mesh
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.prepared import prepare

N = 64
MATRIX, STACK, VECTOR = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((N, N), (8, N, N), (N,)))
GROUPS = jax.ShapeDtypeStruct((8,), "int32")
COMPLEX = jax.ShapeDtypeStruct((8, N), "complex64")


def work(function: Callable[..., Any], *args: Any) -> dict[str, int]:
    """Floating-point operations by kind of operation."""
    graph = prepare(function, args, Mesh.of({"d": 1}), None, None, None).traced.graph
    found: dict[str, int] = {}
    for operation in graph.operations:
        found[operation.kind] = found.get(operation.kind, 0) + operation.nest.work
    return found


@pytest.mark.parametrize(
    ("function", "args", "kind", "flops"),
    [
        (lambda x: jnp.cumsum(x, 0), (MATRIX,), "cumsum", N * N),
        (lambda x: jnp.cumsum(x, 1), (MATRIX,), "cumsum", N * N),
        (lambda x: lax.sort(x, dimension=0), (MATRIX,), "sort", N * N * 6),
        (lax.ragged_dot, (MATRIX, STACK, GROUPS), "ragged_dot_general", 2 * N**3),
        (jnp.fft.fft, (COMPLEX,), "fft", 8 * 5 * N * 6),
        (jnp.fft.fft2, (STACK,), "fft", 8 * 5 * N * N * 12),
        (lambda a: lax.linalg.cholesky(a, symmetrize_input=False), (STACK,), "cholesky", 8 * N**3 / 3),
        (lax.linalg.lu, (MATRIX,), "lu", 2 * N**3 / 3),
        (lambda a: lax.linalg.qr(a, full_matrices=False), (MATRIX,), "geqrf", 4 * N**3 / 3),
        (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True), (MATRIX, MATRIX), "triangular_solve", N**3),
        (lambda x: x**2, (VECTOR,), "square", N),
        (lambda x: lax.integer_pow(x, 7), (VECTOR,), "integer_pow", 4 * N),
        (lambda x: lax.integer_pow(x, -2), (VECTOR,), "integer_pow", 2 * N),
        (lambda x: lax.integer_pow(x, 0), (VECTOR,), "integer_pow", 0),
    ],
)
def test_rows_that_are_read_whole_are_worked_on_whole(
    function: Callable[..., Any], args: tuple[Any, ...], kind: str, flops: float
) -> None:
    found = work(function, *args)
    kind = kind if kind in found or kind != "square" else "integer_pow"  # as JAX writes it
    assert found.get(kind, found.get("qr")) == pytest.approx(flops, abs=8)


def test_a_scatter_of_sums_works_on_its_updates_and_not_on_every_row_for_each() -> None:
    rows, updates = 4096, 512
    args = (jax.ShapeDtypeStruct((updates,), "int32"), jax.ShapeDtypeStruct((updates,), "float32"))
    found = work(lambda row, value: jnp.zeros(rows).at[row].add(value), *args)
    assert found["scatter-add"] <= updates


@pytest.mark.parametrize("steps", [1, 100])
def test_a_while_in_a_branch_that_runs_whole_has_the_work_of_its_steps(steps: int) -> None:
    def until_small(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.while_loop(lambda c: jnp.abs(c).max() > 0.1, lambda c: jnp.tanh(c @ w), x)

    def branches(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.cond(x[0, 0] > 0, until_small, lambda x, w: x, x, w)

    made = prepare(
        branches, (MATRIX, MATRIX), Mesh.of({"d": 1}), None, None, TraceOptions(opens_loops=True, trip_count=steps)
    )
    (branch,) = (operation for operation in made.traced.graph.operations if operation.kind == "cond")
    assert branch.nest.work >= steps * 2 * N**3
    assert "cond" in branch.opaque
