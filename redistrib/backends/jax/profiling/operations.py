"""Measurement of operations on one JAX device: products, which are arithmetic, and sums of arrays, which are memory.

Operations of some classes of `redistrib.programs.work` are measured too, since processors do them at other rates.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

PRODUCTS = (64, 128, 256, 512, 1024)  # rows and columns
SUMS = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)  # elements
CLASSES = (1 << 18, 1 << 20)  # elements
CHANNELS, ROW = 64, 256  # of a convolution; elements of a row that is sorted or transformed
WARM_UP = 2
REPEATS = 7
LITTLE = 1 << 12  # elements of an array, of which a sum takes hardly longer than a call
IN_A_ROW = 8  # products in one program, each of the result before: programs launch operations, calls launch programs
AT_LEAST = 2e-3  # seconds of a measurement, in which short operations run several times


class TimedOperation(NamedTuple):
    """One operation, timed.

    Attributes:
        bytes: read and written.
        flops: floating-point operations, or what else its class counts.
        seconds: the median of the repeats, less those of a call of a program that does little.
        name: of the operation.
        work: its class; empty for products and sums.
    """

    bytes: int
    flops: int
    seconds: float
    name: str
    work: str = ""


class _Case(NamedTuple):
    """An operation to time: its function, the shapes and element type of its operands, and the figures above."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    bytes: int
    flops: int
    work: str = ""
    dtype: str = "float32"
    times: int = 1


def measure_operations(
    device: Any = None,
    products: Sequence[int] = PRODUCTS,
    sums: Sequence[int] = SUMS,
    classes: Sequence[int] = CLASSES,
    clock: Callable[[], float] = time.perf_counter,
) -> list[TimedOperation]:
    """Time products of square matrices, sums of two arrays, and operations of other classes, in float32.

    Args:
        device: of JAX; by default the first.
        products: rows and columns of each product.
        sums: elements of each sum.
        classes: elements of operations of each other class; powers of 4, no less than 65,536.
        clock: seconds: of the wall, or `time.process_time`.
    """
    device = device or jax.devices()[0]
    cases = [
        *(_Case(f"product {n}", jnp.matmul, ((n, n),) * 2, 12 * n * n, 2 * n**3, times=IN_A_ROW) for n in products),
        *(_Case(f"sum {n:,}", jnp.add, ((n,),) * 2, 12 * n, n) for n in sums),
        *(case for n in classes for case in _of_classes(n)),
    ]
    call = _seconds(_Case("call", lambda x: x + 1, ((LITTLE,),), 0, 0), device, clock)
    timed = ((case, _seconds(case, device, clock)) for case in cases)
    return [
        TimedOperation(c.bytes, c.flops, max(seconds - call, seconds / 20) / c.times, c.name, c.work)
        for c, seconds in timed
    ]


def _of_classes(n: int) -> Iterator[_Case]:
    """Operations on about `n` elements, of every class."""
    side, rows = math.isqrt(n), n // ROW
    images = ((n // (32 * 32 * CHANNELS), 32, 32, CHANNELS), (3, 3, CHANNELS, CHANNELS))
    flops = 2 * n * 9 * CHANNELS
    for name, function in (("exp", jnp.exp), ("log", jnp.log), ("tanh", jnp.tanh), ("logistic", jax.nn.sigmoid)):
        yield _Case(f"{name} {n:,}", function, ((n,),), 8 * n, 10 * n, "function")
    yield _Case(f"argmin {n:,}", lambda x: jnp.argmin(x, -1), ((rows, ROW),), 4 * n, n, "index")
    yield _Case(f"cumsum {n:,}", lambda x: jnp.cumsum(x, -1), ((rows, ROW),), 8 * n, n, "running")
    yield _Case(f"transposed {n:,}", lambda x: x.T + 1, ((side, side),), 8 * n, 0, "transpose")
    yield _Case(f"transform {n:,}", jnp.fft.fft, ((rows, ROW),), 16 * n, _logs(5, rows), "fourier", "complex64")
    yield _Case(f"convolution {n:,}", _convolved, images, 8 * n, flops, "convolution")
    yield _Case(f"gradient {n:,}", _kernel_gradient, (*images, images[0]), 8 * n, flops, "convolution")
    if n <= 1 << 18:
        yield _Case(f"sort {n:,}", jnp.sort, ((rows, ROW),), 8 * n, _logs(1, rows), "sort")


def _in_a_row(function: Callable[..., Any], times: int) -> Callable[..., Any]:
    def run(first: Any, *others: Any) -> Any:
        for _ in range(times - 1):
            first = function(first, *others)
        return function(first, *others)

    return run


def _logs(times: int, rows: int) -> int:
    return times * rows * ROW * (ROW.bit_length() - 1)


def _convolved(images: Any, kernels: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernels, (1, 1), "SAME", dimension_numbers=layout)


def _kernel_gradient(images: Any, kernels: Any, slopes: Any) -> Any:
    return jax.vjp(lambda kernels: _convolved(images, kernels), kernels)[1](slopes)[0]


def _seconds(case: _Case, device: Any, clock: Callable[[], float]) -> float:
    random = np.random.default_rng(0)
    operands = [jax.device_put(random.uniform(0.5, 1.5, shape).astype(case.dtype), device) for shape in case.shapes]
    run, seconds, times = jax.jit(_in_a_row(case.function, case.times)), list[float](), 1
    for repeat in range(WARM_UP + REPEATS):
        start = clock()
        for _ in range(times):
            run(*operands).block_until_ready()
        taken = (clock() - start) / times
        if repeat >= WARM_UP:
            seconds.append(taken)
        elif repeat:  # the first run compiles
            times = min(1000, math.ceil(AT_LEAST / max(taken, 1e-6)))
    return statistics.median(seconds)
