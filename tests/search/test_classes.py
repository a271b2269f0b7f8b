"""Prices by classes of work, and kernels as XLA for CPUs has them: a product alone, and one result of each kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import redistrib as rd
from redistrib.autoshard.fusion import Kernel, kernels_of
from redistrib.distribution.prepared import prepare
from redistrib.lang.mesh import Mesh
from redistrib.simulator.constants import machine
from redistrib.simulator.machine import Machine, Rates

N = 256
X, W = (jax.ShapeDtypeStruct((N, N), "float32") for _ in range(2))
BYTES = 4 * N * N
CLASSES = {"function": 1e9, "transpose": 2e9, "index": 3e9, "running": 4e9, "fourier": 5e9, "convolution": 6e9}
RATES = Rates(1e-6, 1e10, 1e11, "roofline", CLASSES)
CPU = Machine("own", RATES, machine("cpu").links, fuses=True, fuses_products=False, several_results=False)


def kernels(function: Callable[..., Any], *args: Any) -> dict[str, Kernel]:
    """The kernels of a function as XLA for CPUs has them, by the name of the operation."""
    graph = prepare(function, args, Mesh.of({"d": 1}), None, None, None).traced.graph
    found = kernels_of(graph, products=False, several=False)
    return {operation.name: kernel for operation, kernel in zip(graph.operations, found, strict=True)}


def seconds(function: Callable[..., Any], *args: Any, on: Machine = CPU) -> float:
    found = rd.search(function, args, {"d": 1}, profile=on, progress=False)
    assert found[0].bound <= found[0].seconds * (1 + 1e-9)
    return found[0].seconds


def test_a_product_is_a_kernel_of_its_own() -> None:
    found = kernels(lambda x, w: jax.lax.tanh(jax.lax.exp(x) @ w), X, W)
    assert [kernel.launches for kernel in found.values()] == [True, True, True]
    assert [kernel.share() for kernel in found.values()] == [2 * BYTES, 3 * BYTES, 2 * BYTES]


def test_element_wise_operations_are_fused_with_each_other_and_with_reductions() -> None:
    found = kernels(lambda x: jnp.sum(jax.lax.exp(jax.lax.tanh(x)), 1), X)
    assert [kernel.runs for kernel in found.values()] == [False, False, True]
    assert sum(kernel.share() for kernel in found.values()) == BYTES + 4 * N


def test_a_kernel_has_one_result() -> None:
    found = kernels(lambda x: (jax.lax.exp(x), jax.lax.tanh(x)), X)
    assert [kernel.launches for kernel in found.values()] == [True, True]


def test_a_product_transposes_its_first_operand_where_that_is_summed_along_its_first_dimension() -> None:
    plain = kernels(lambda x, w: x @ w, X, W)["dot_general"]
    turned = kernels(lambda x, w: jnp.einsum("ji,jk->ik", x, w), X, W)["dot_general"]
    assert (plain.strides, turned.strides) == (False, True)


def test_transpositions_of_operands_and_results_belong_to_the_product() -> None:
    found = kernels(lambda x, w: x @ w.T, X, W)
    assert (found["transpose"].runs, found["transpose"].strides, found["dot_general"].strides) == (False, False, False)
    found = kernels(lambda x, w: x.T @ w, X, W)
    assert (found["transpose"].runs, found["transpose"].strides, found["dot_general"].strides) == (False, False, True)
    found = kernels(lambda x, w: (x @ w).T, X, W)
    assert (found["transpose"].launches, found["transpose"].strides) == (False, False)
    assert sum(kernel.share() for kernel in found.values()) == 3 * BYTES


def test_a_transposition_is_a_copy_unless_it_is_fused_or_of_complex_numbers() -> None:
    assert not kernels(lambda x: x.T, X)["transpose"].strides
    assert kernels(lambda x: jax.lax.exp(x.T), X)["transpose"].strides
    assert kernels(lambda x: x.T, jax.ShapeDtypeStruct((N, N), "complex64"))["transpose"].strides
    batched = jax.ShapeDtypeStruct((4, 8, 16), "float32")
    assert not kernels(lambda x: jax.lax.exp(jnp.swapaxes(x, 0, 1)), batched)["transpose"].strides


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (jax.lax.exp, 1e-6 + 10 * N * N / 1e9),
        (lambda x: jnp.sum(jax.lax.exp(x)), 1e-6 + (BYTES + 4) / 1e10 + 10 * N * N / 1e9),
        (lambda x: x.T, 1e-6 + 2 * BYTES / 1e10),
        (lambda x: jax.lax.neg(x.T), 1e-6 + 2 * BYTES / 1e10 + 2 * BYTES / 2e9),
        (lambda x: jnp.einsum("ij,jk->ik", x, x), 1e-6 + 2 * N**3 / 1e11),
        (lambda x: jnp.einsum("ji,jk->ik", x, x), 1e-6 + 2 * N**3 / 1e11 + 2 * BYTES / 2e9),
        (lambda x: jax.lax.argmax(x, 1, jnp.int32), 1e-6 + max((BYTES + 4 * N) / 1e10, N * N / 3e9)),
        (lambda x: jax.lax.cumsum(x, 1), 1e-6 + max(2 * BYTES / 1e10, N * N / 4e9)),
    ],
)
def test_a_class_has_its_own_rate(function: Callable[..., Any], expected: float) -> None:
    assert math.isclose(seconds(function, X), expected, rel_tol=1e-9)


def test_without_rates_of_classes_nothing_inside_a_kernel_takes_time() -> None:
    plain = replace(CPU, rates=replace(RATES, classes={}))
    assert math.isclose(seconds(lambda x: jnp.sum(jax.lax.exp(x)), X, on=plain), 1e-6 + (BYTES + 4) / 1e10)
    assert math.isclose(seconds(lambda x: jax.lax.neg(x.T), X, on=plain), 1e-6 + 2 * BYTES / 1e10)


def test_programs_have_the_rates_of_classes_too() -> None:
    f = rd.distribute(jax.lax.exp, (X,), {"d": 1})
    own = replace(CPU, fuses=False)
    assert math.isclose(rd.simulate(f.program, own).seconds, 1e-6 + 10 * N * N / 1e9)


def test_the_bound_holds_where_devices_share_the_work() -> None:
    def step(w: Any, x: Any) -> Any:
        return w - jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)

    found = rd.search(step, (W, X), {"d": 4}, profile=CPU, progress=False)
    assert found[0].bound <= found[0].seconds * (1 + 1e-9)
    assert found[0].seconds < seconds(step, W, X)
