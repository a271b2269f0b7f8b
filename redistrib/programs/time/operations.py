"""Measurement of operations on one JAX device: products, which are arithmetic, and sums of arrays, which are memory.

Operations of some classes of `redistrib.programs.ir.work` are measured too, since processors do them at other rates.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from redistrib.backends.jax.platforms import quirks_of
from redistrib.plans.dtypes import itemsize_of


class _Sizes(NamedTuple):
    """What is timed on a platform.

    Attributes:
        products, in_bfloat16: rows and columns of products, in float32 and in bfloat16.
        sums, classes: elements of sums, and of operations of other classes.
        sorts: most elements of a sort.
        convolved: the element type of convolutions, and their channels.
    """

    products: tuple[int, ...]
    in_bfloat16: tuple[int, ...]
    sums: tuple[int, ...]
    classes: tuple[int, ...]
    sorts: int
    convolved: tuple[str, int]


# The arrays of sums do not fit into caches. Their results take less than 32 MiB: the allocator of glibc keeps such
# memory, and asks the system for larger results again in every call, which takes longer than the sum.
CPU = _Sizes((64, 128, 256, 512, 1024), (), (1 << 22, 3 << 21, 7 << 20), (1 << 18, 1 << 20), 1 << 18, ("float32", 64))
# Programs run longer than it takes to launch them, and arrays do not fit into caches.
ACCELERATORS = _Sizes(
    (64, 128, 2048, 4096, 8192), (2048, 4096, 8192), (1 << 26, 1 << 28), (1 << 26, 1 << 28), 1 << 26, ("bfloat16", 256)
)
ROW = 256  # elements of a row that is sorted or transformed
WARM_UP = 2
REPEATS = 7
LITTLE = 1 << 12  # elements of an array, of which a sum takes hardly longer than a call
IN_A_ROW = 8  # products in one program, each of the result before: programs launch operations, calls launch programs
SHORT = 256  # rows and columns of products below which an accelerator does 64 in a row
AT_LEAST = 2e-3  # seconds of a measurement, in which short operations run several times


class TimedOperation(NamedTuple):
    """One operation, timed.

    Attributes:
        bytes: read and written.
        flops: floating-point operations, or what else its class counts.
        seconds: the median of the repeats. On CPUs those of a call of a program that does little are taken off;
            accelerators launch a program while they run another.
        name: of the operation.
        work: its class; empty for products and sums.
        dtype: the element type of its operands, if not float32 as for all others.
    """

    bytes: int
    flops: int
    seconds: float
    name: str
    work: str = ""
    dtype: str = ""


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
    products: Sequence[int] | None = None,
    sums: Sequence[int] | None = None,
    classes: Sequence[int] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[TimedOperation]:
    """Time products of square matrices, sums of two arrays, and operations of other classes.

    All are in float32; on accelerators products in bfloat16 come beside them. Sizes are by default those of the
    device's platform.

    Args:
        device: of JAX; by default the first.
        products: rows and columns of each product.
        sums: elements of each sum.
        classes: elements of operations of each other class; powers of 4, no less than 65,536.
        clock: seconds: of the wall, or `time.process_time`.
    """
    device = device or jax.devices()[0]
    in_turn = quirks_of(device.platform).one_at_a_time
    sizes = CPU if in_turn else ACCELERATORS
    products = sizes.products if products is None else products
    cases = [
        *(_product(n, "float32", IN_A_ROW if in_turn or n >= SHORT else 64) for n in products),
        *(_product(n, "bfloat16", IN_A_ROW) for n in sizes.in_bfloat16),
        *(_Case(f"sum {n:,}", jnp.add, ((n,),) * 2, 12 * n, n) for n in (sizes.sums if sums is None else sums)),
        *(case for n in (sizes.classes if classes is None else classes) for case in _of_classes(n, sizes)),
    ]
    call = _seconds(_Case("call", lambda x: x + 1, ((LITTLE,),), 0, 0), device, clock) if in_turn else 0.0
    timed = ((case, _seconds(case, device, clock)) for case in cases)
    return [
        TimedOperation(
            c.bytes, c.flops, max(seconds - call, seconds / 20) / c.times, c.name, c.work,
            "" if c.work or c.dtype == "float32" else c.dtype,
        )
        for c, seconds in timed
    ]  # fmt: skip


def _product(n: int, dtype: str, times: int) -> _Case:
    """Products of square matrices, each of the result before."""
    size = itemsize_of(dtype)
    name = f"product {n}" + (f" in {dtype}" if dtype != "float32" else "")
    return _Case(name, jnp.matmul, ((n, n),) * 2, 3 * size * n * n, 2 * n**3, dtype=dtype, times=times)


def _of_classes(n: int, sizes: _Sizes) -> Iterator[_Case]:
    """Operations on about `n` elements, of every class."""
    side, rows, (dtype, channels) = math.isqrt(n), n // ROW, sizes.convolved
    images = ((n // (32 * 32 * channels), 32, 32, channels), (3, 3, channels, channels))
    size, flops = 2 * itemsize_of(dtype) * n, 2 * n * 9 * channels
    for name, function in (("exp", jnp.exp), ("log", jnp.log), ("tanh", jnp.tanh), ("logistic", jax.nn.sigmoid)):
        yield _Case(f"{name} {n:,}", function, ((n,),), 8 * n, 10 * n, "function")
    yield _Case(f"argmin {n:,}", lambda x: jnp.argmin(x, -1), ((rows, ROW),), 4 * n, n, "index")
    yield _Case(f"cumsum {n:,}", lambda x: jnp.cumsum(x, -1), ((rows, ROW),), 8 * n, n, "running")
    yield _Case(f"transposed {n:,}", lambda x: x.T + 1, ((side, side),), 8 * n, 0, "transpose")
    yield _Case(f"transform {n:,}", jnp.fft.fft, ((rows, ROW),), 16 * n, _logs(5, rows), "fourier", "complex64")
    yield _Case(f"convolution {n:,}", _convolved, images, size, flops, "convolution", dtype)
    yield _Case(f"gradient {n:,}", _kernel_gradient, (*images, images[0]), size, flops, "convolution", dtype)
    if n <= sizes.sorts:
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


def _drawn(key: Any, shape: tuple[int, ...], dtype: str, device: Any) -> Any:
    """Numbers near 1; entries of eight products in a row of 8,192 rows are finite in float32 and bfloat16."""
    with jax.default_device(device):
        return jax.random.uniform(key, shape, minval=0.5, maxval=1.5).astype(dtype)


def _seconds(case: _Case, device: Any, clock: Callable[[], float]) -> float:
    operands = [_drawn(jax.random.key(k), shape, case.dtype, device) for k, shape in enumerate(case.shapes)]
    in_turn = quirks_of(device.platform).one_at_a_time
    run, seconds, times = jax.jit(_in_a_row(case.function, case.times)), list[float](), 1
    for repeat in range(WARM_UP + REPEATS):
        start = clock()
        for _ in range(times):
            result = run(*operands)
            if in_turn:
                result.block_until_ready()
        result.block_until_ready()  # accelerators run calls in order
        taken = (clock() - start) / times
        if repeat >= WARM_UP:
            seconds.append(taken)
        elif repeat:  # the first run compiles
            times = min(1000, math.ceil(AT_LEAST / max(taken, 1e-6)))
    return statistics.median(seconds)
