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
from redistrib.lang.mesh import Mesh
from redistrib.programs.run.prepared import prepare
from redistrib.programs.time.constants import machine
from redistrib.programs.time.kernels.fusion import Kernel, kernels_of
from redistrib.programs.time.machine import Machine, Rates

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
    found = rd.search(function, args, {"d": 1}, machine=on, progress=False)
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


def test_a_product_with_a_vector_reads_the_matrix_in_its_order() -> None:
    vector = jax.ShapeDtypeStruct((N,), "float32")
    turned = kernels(lambda x, v: jnp.einsum("ji,j->i", x, v), X, vector)["dot_general"]
    assert (turned.launches, turned.strides) == (True, False)
    found = kernels(lambda x, v: x.T @ v, X, vector)  # XLA copies the matrix first
    assert (found["transpose"].launches, found["transpose"].share()) == (True, 2 * BYTES)
    assert not found["transpose"].strides and not found["dot_general"].strides


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


def test_a_square_root_takes_the_time_of_its_bytes() -> None:
    assert math.isclose(seconds(jax.lax.sqrt, X), 1e-6 + 2 * BYTES / 1e10, rel_tol=1e-9)


@pytest.mark.parametrize(("several", "copies"), [(True, 1), (False, 2)])
def test_entries_that_a_product_or_an_update_reads_are_copied(several: bool, copies: int) -> None:
    """Of a stack of 4 matrices a step reads one, and one is updated and stacked again."""

    def step(x: Any, entries: Any) -> Any:
        weight, cache, scale = entries
        cache = jax.lax.dynamic_update_slice(cache, x[None, :], (2, 0))
        return x @ weight * scale, cache

    stack, scales = (jax.ShapeDtypeStruct((4, *shape), "float32") for shape in ((N, N), (N,)))
    x = jax.ShapeDtypeStruct((N,), "float32")
    args, vector = (x, (stack, stack, scales)), 4 * N
    graph = prepare(lambda x, of: jax.lax.scan(step, x, of), args, Mesh.of({"d": 1}), None, None, None).traced.graph
    for products in (True, False):
        found = kernels_of(graph, products=products, several=several)
        by_kind = {op.kind: k.share() for op, k in zip(graph.operations, found, strict=True) if k.runs}
        more = 0 if products else BYTES
        # The update reads and writes the entry, and a copy stacks it; then come the copy of the entry, and zeros.
        for kind, size in (
            ("dot_general", BYTES + 2 * more),
            ("dynamic_update_slice", 4 * BYTES + (copies + 1) * more),
        ):
            assert size <= by_kind[kind] <= size + 3 * vector, kind
        assert sum(read.size for kernel in found for read in kernel.reads if read.name == "entry_2") == vector


def test_a_stack_is_filled_with_zeros() -> None:
    function, args = lambda x: jax.lax.scan(lambda h, _: (h * 2, jax.lax.exp(h)), x, length=8), (X,)
    graph = prepare(function, args, Mesh.of({"d": 1}), None, None, None).traced.graph
    written = [sum(kernel.written for kernel in kernels_of(graph, products=products)) for products in (True, False)]
    assert written == [2 * BYTES, 3 * BYTES]


def test_a_scatter_is_a_kernel_of_its_own_where_products_are() -> None:
    def picked(x: Any, label: Any) -> Any:
        return jnp.sum(jnp.take_along_axis(x, label[:, None], -1))

    label = jax.ShapeDtypeStruct((N,), "int32")
    found = kernels(lambda x, i: 2 * jax.grad(picked)(x, i), X, label)
    assert found["broadcast_in_dim"].launches or found["broadcast_in_dim_1"].launches
    assert found["scatter-add"].launches
    # Zeros; then what is doubled, read and written. The scatter writes one element of each row.
    whole = sum(kernel.share() for kernel in found.values())
    assert 3 * BYTES <= whole <= 3 * BYTES + 64 * N


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

    found = rd.search(step, (W, X), {"d": 4}, machine=CPU, progress=False)
    assert found[0].bound <= found[0].seconds * (1 + 1e-9)
    assert found[0].seconds < seconds(step, W, X)
