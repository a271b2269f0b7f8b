"""Solvers of diffrax, lineax and optimistix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.zoo.layers import normal
from bench.zoo.program import Program


def programs() -> Iterator[Program]:
    import diffrax
    import lineax as lx
    import optimistix as optx

    def decayed(rates: Any, y: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, args: -args * y)
        return diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, args=rates, saveat=diffrax.SaveAt(t1=True),
            stepsize_controller=diffrax.ConstantStepSize(), adjoint=diffrax.DirectAdjoint(),
        ).ys[0]  # fmt: skip

    args = np.abs(normal(64, 8)), normal(64, 8, seed=1)
    yield Program("Tsit5 with fixed steps, states", "diffrax", decayed, args, (("d", {"rates": 0, "y": 0}),))

    def adapted(rates: Any, y: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, args: -args * y)
        return diffrax.diffeqsolve(
            term, diffrax.Dopri5(), 0.0, 1.0, 0.1, y, args=rates,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5), max_steps=64,
        ).ys[0]  # fmt: skip

    yield Program("Dopri5 with adaptive steps, states", "diffrax", adapted, args, (("d", {"rates": 0, "y": 0}),))

    matrices = normal(16, 6, 6) + 6 * np.eye(6, dtype=np.float32)

    def solved(matrix: Any, b: Any) -> Any:
        solve = lambda a, b: lx.linear_solve(lx.MatrixLinearOperator(a), b, lx.LU()).value  # noqa: E731
        return jax.vmap(solve)(matrix, b)

    cut = (("d", {"matrix": 0, "b": 0}),)
    yield Program("LU, batch", "lineax", solved, (matrices, normal(16, 6, seed=1)), cut)

    def conjugate(matrix: Any, b: Any) -> Any:
        operator = lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag)
        return lx.linear_solve(operator, b, lx.CG(rtol=1e-5, atol=1e-5)).value

    whole = normal(64, 64) / 16
    symmetric = whole @ whole.T + np.eye(64, dtype=np.float32)
    yield Program(
        "CG, rows", "lineax", conjugate, (symmetric, normal(64, seed=1)), (("d", {"matrix": 0}),), tolerance=1e-3
    )

    def least(x: Any, y: Any) -> Any:
        return optx.least_squares(
            lambda w, args: args[0] @ w - args[1], optx.GaussNewton(1e-5, 1e-5), jnp.zeros(4), (x, y), max_steps=8
        ).value

    rows = normal(64, 4), normal(64, seed=1)
    yield Program("Gauss-Newton, rows", "optimistix", least, rows, (("d", {"x": 0, "y": 0}),), tolerance=1e-3)
