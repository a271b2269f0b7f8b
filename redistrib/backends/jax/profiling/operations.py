"""Measurement of operations on one JAX device: products, which are arithmetic, and sums of arrays, which are memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

PRODUCTS = (64, 128, 256, 512, 1024)  # rows and columns
SUMS = (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)  # elements
WARM_UP = 2
REPEATS = 7


class TimedOperation(NamedTuple):
    """One operation, timed.

    Attributes:
        bytes: read and written.
        flops: floating-point operations.
        seconds: the median of the repeats.
        name: of the operation.
    """

    bytes: int
    flops: int
    seconds: float
    name: str


def measure_operations(
    device: Any = None, products: Sequence[int] = PRODUCTS, sums: Sequence[int] = SUMS
) -> list[TimedOperation]:
    """Time products of square matrices and sums of two arrays in float32.

    Args:
        device: of JAX; by default the first.
        products: rows and columns of each product.
        sums: elements of each sum.
    """
    device = device or jax.devices()[0]
    return [
        *(TimedOperation(12 * n * n, 2 * n**3, _seconds(jnp.matmul, (n, n), device), f"product {n}") for n in products),
        *(TimedOperation(12 * n, n, _seconds(jnp.add, (n,), device), f"sum {n:,}") for n in sums),
    ]


def _seconds(function: Callable[..., Any], shape: tuple[int, ...], device: Any) -> float:
    a, b = (jax.device_put(jnp.full(shape, number, jnp.float32), device) for number in (1.5, 0.5))
    run = jax.jit(function)
    seconds = []
    for repeat in range(WARM_UP + REPEATS):
        start = time.perf_counter()
        run(a, b).block_until_ready()
        if repeat >= WARM_UP:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
