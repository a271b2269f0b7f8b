"""Numerical programs without training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import redistrib as rd
from bench.programs.case import Case, P, case, constrained, f32, i32

MESH = {"d": 8}


def clusters(point: Any, centre: Any) -> Any:
    """Three iterations of k-means."""
    for _ in range(3):
        away = jnp.sum(centre**2, -1) - 2 * point @ centre.T
        nearest = jax.nn.one_hot(jnp.argmin(away, -1), centre.shape[0])
        centre = (nearest.T @ point) / jnp.maximum(jnp.sum(nearest, 0), 1)[:, None]
    return centre


def _clusters(size: int) -> Case:
    points, count, width = ((1024, 16, 8), (16384, 64, 32), (262144, 256, 64))[size]
    args = {"point": f32(points, width), "centre": f32(count, width)}
    return case("k-means", clusters, args, MESH, [("d", {"point": 0})], P())


def gradients(matrix: Any, b: Any) -> Any:
    """Four steps of conjugate gradients on `matrix.T @ matrix + 1`."""

    def apply(p: Any) -> Any:
        return matrix.T @ (matrix @ p) + p

    def step(_: Any, state: Any) -> Any:
        x, r, p, rr = state
        q = apply(p)
        alpha = rr / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        new = r @ r
        return x, r, r + (new / rr) * p, new

    return jax.lax.fori_loop(0, 4, step, (jnp.zeros_like(b), b, b, b @ b))[0]


def _gradients(size: int) -> Case:
    rows = (128, 1024, 8192)[size]
    args = {"matrix": f32(rows, rows), "b": f32(rows)}
    return case("conjugate gradients", gradients, args, MESH, [("d", {"matrix": 0, "b": 0})], P("d"), tolerance=1e-4)


def filtered(x: Any, weight: Any) -> Any:
    """A filter in two dimensions: Fourier transforms of rows and columns, weights, and the inverse transforms."""
    columns = constrained(jnp.fft.fft(x, axis=1).T, MESH, P("d"))
    rows = constrained(jnp.fft.ifft(jnp.fft.fft(columns, axis=1) * weight, axis=1).T, MESH, P("d"))
    return jnp.fft.ifft(rows, axis=1)


def _filtered(size: int) -> Case:
    rows = (64, 1024, 4096)[size]
    form = jax.ShapeDtypeStruct((rows, rows), np.complex64)
    return case(
        "FFT by transposes", filtered, {"x": form, "weight": form}, MESH, [("d", {"x": 0, "weight": 0})], P("d")
    )


def sparse(row: Any, column: Any, value: Any, x: Any) -> Any:
    """A sparse matrix in coordinate form times a vector."""
    return jnp.zeros_like(x).at[row].add(value * x[column])


def _sparse(size: int) -> Case:
    entries, rows = ((4096, 256), (262144, 65536), (4194304, 262144))[size]
    args = {"row": i32(entries), "column": i32(entries), "value": f32(entries), "x": f32(rows)}
    stages = [("d", {"row": 0, "column": 0, "value": 0}), ("d", {"x": 0})]
    return case("SpMV", sparse, args, MESH, stages, P("d"), below=rows)


def monte_carlo(key: Any, spot: Any) -> Any:
    """The price of an option by Monte Carlo."""
    count = _SAMPLES[spot.shape[0]]
    normal = jax.random.normal(jax.random.wrap_key_data(key), (count,))
    normal = constrained(normal, MESH, P("d"))
    end = spot[:, None] * jnp.exp(0.2 * normal - 0.02)
    return jnp.mean(jnp.maximum(end - 1, 0), 1)


_SAMPLES = {4: 4096, 8: 65536, 16: 1048576}


def _monte_carlo(size: int) -> Case:
    args = {"key": jax.ShapeDtypeStruct((2,), np.uint32), "spot": f32((4, 8, 16)[size])}
    return case("Monte Carlo", monte_carlo, args, MESH, [], P(), more=[rd.work("d", {"random_bits": "d0"})])


def cases(size: int) -> list[Case]:
    """The five programs at a size."""
    return [maker(size) for maker in (_clusters, _gradients, _filtered, _sparse, _monte_carlo)]
