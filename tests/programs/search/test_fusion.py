"""Kernels as compilers fuse them: which arrays are stored, what each kernel reads, and what a schedule then takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from graphlib import TopologicalSorter
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.graph import Graph
from redistrib.programs.run.prepared import prepare
from redistrib.programs.search.classes import classes_of
from redistrib.programs.search.entry import tied
from redistrib.programs.search.evaluation import evaluated
from redistrib.programs.search.layers import fold, harmonized, unfold
from redistrib.programs.search.options import problem_of
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.starting import starting
from redistrib.programs.time.constants import machine
from redistrib.programs.time.kernels.fusion import grouped, kernels_of
from tests.programs.search import models, oracle

X = jax.ShapeDtypeStruct((256, 512), np.float32)
X_T = jax.ShapeDtypeStruct((512, 256), np.float32)
W = jax.ShapeDtypeStruct((512, 384), np.float32)
B = jax.ShapeDtypeStruct((384,), np.float32)


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    return prepare(function, args, Mesh.of({"d": 1}), None, None, None).traced.graph


def read_and_written(graph: Graph) -> int:
    """Bytes that all kernels read and write."""
    return sum(kernel.share() for kernel in kernels_of(graph))


def launched(graph: Graph) -> int:
    return sum(kernel.runs and kernel.launches for kernel in kernels_of(graph))


def test_on_gpus_a_product_is_a_kernel_of_its_own_and_kernels_have_several_results() -> None:
    graph = graph_of(lambda x, w, b: jnp.maximum(x @ w + b, 0) * 2, X, W, B)
    kernels = [kernel for kernel in kernels_of(graph, products=False) if kernel.runs]
    assert [kernel.launches for kernel in kernels] == [True, True]
    product = (256 * 512 + 512 * 384 + 256 * 384) * 4
    assert [kernel.share() for kernel in kernels] == [product, (2 * 256 * 384 + 384) * 4]
    graph = graph_of(lambda x: (jnp.exp(x), jnp.tanh(x), x.sum(1)), X)
    kernels = [kernel for kernel in kernels_of(graph, products=False) if kernel.runs]
    assert [kernel.launches for kernel in kernels] == [True, False, False]
    assert sum(kernel.share() for kernel in kernels) == (3 * 256 * 512 + 256) * 4


def test_on_cpus_what_a_reduction_reads_is_computed_once() -> None:
    def normed(x: Any, y: Any) -> Any:
        centred = x * y
        return centred - centred.sum(1, keepdims=True)

    graph, size = graph_of(normed, X, X), 256 * 512 * 4
    on_gpus = sum(kernel.share() for kernel in kernels_of(graph, products=False))
    on_cpus = sum(kernel.share() for kernel in kernels_of(graph, products=False, several=False))
    # GPUs multiply in both kernels, or store the product of one; CPUs store it and read it twice.
    assert on_cpus == 2 * size + size + (size + 256 * 4) + (size + 256 * 4 + size)
    assert on_gpus < on_cpus


def test_on_gpus_a_product_transposes_its_operands_and_its_result() -> None:
    graph = graph_of(lambda x, w: (x.T @ w).T + 1, X_T, W)
    kernels = [kernel for kernel in kernels_of(graph, products=False) if kernel.runs]
    assert [kernel.launches for kernel in kernels] == [True, False, True]
    assert kernels[0].share() + kernels[1].share() == (256 * 512 + 512 * 384 + 256 * 384) * 4
    assert not any(kernel.strides for kernel in kernels)


@pytest.mark.parametrize("name", ["h100", "h200", "mi300x", "v5p", "v6e"])
def test_machines_have_the_kernels_of_their_compilers(name: str) -> None:
    assert (machine(name).fuses_products, machine(name).several_results) == (name.startswith("v"), True)


def test_a_chain_is_one_kernel() -> None:
    graph = graph_of(lambda x: jnp.tanh(2 * x + 1) * x - 3, X)
    assert launched(graph) == 1
    assert read_and_written(graph) == 2 * 256 * 512 * 4


def test_a_product_with_its_bias_and_its_function_is_one_kernel() -> None:
    graph = graph_of(lambda x, w, b: jnp.maximum(x @ w + b, 0) * 2, X, W, B)
    assert launched(graph) == 1
    assert read_and_written(graph) == (256 * 512 + 512 * 384 + 384 + 256 * 384) * 4


def test_functions_of_a_product_are_results_of_its_kernel() -> None:
    apart = graph_of(lambda x, w: (jnp.tanh(x @ w), jnp.exp(x @ w)), X, W)
    shared = graph_of(lambda x, w: (lambda y: (jnp.tanh(y), jnp.exp(y)))(x @ w), X, W)
    assert launched(apart) == 2
    assert launched(shared) == 1
    assert read_and_written(shared) == (256 * 512 + 512 * 384 + 2 * 256 * 384) * 4


def test_a_product_computes_its_operands() -> None:
    graph = graph_of(lambda x, w: jnp.tanh(x) @ jnp.exp(w), X, W)
    assert launched(graph) == 1
    assert read_and_written(graph) == (256 * 512 + 512 * 384 + 256 * 384) * 4


def test_two_products_wait_for_each_other_where_one_function_reads_both() -> None:
    """The second one computes the function, from the stored result of the first."""
    graph = graph_of(lambda x, w, v: jax.nn.silu(x @ w) * (x @ v), X, W, W)
    assert launched(graph) == 2
    assert read_and_written(graph) == (2 * 256 * 512 + 2 * 512 * 384 + 3 * 256 * 384) * 4


def test_a_reduction_computes_what_it_reads() -> None:
    graph = graph_of(lambda x: jnp.sum(jnp.exp(x) * 2), X)
    assert launched(graph) == 1
    assert read_and_written(graph) == 256 * 512 * 4 + 4


def test_a_value_is_computed_again_where_that_takes_no_more_bytes() -> None:
    again = graph_of(lambda x, w, v: (lambda y: (w @ y, y @ v))(jnp.exp(x)), X, X_T, X_T)
    stored = graph_of(lambda x, z, w, v: (lambda y: (w @ y, y @ v, y.T @ y))(x + z), X, X, X_T, X_T)
    side, result = 256 * 512 * 4, (256 * 256 + 512 * 512) * 4
    assert read_and_written(again) == 4 * side + result
    assert launched(stored) == 4
    assert read_and_written(stored) == 2 * side + side + 5 * side + result + 512 * 512 * 4


def test_results_over_the_same_points_come_from_one_kernel() -> None:
    moments = graph_of(lambda m, v, g: (0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g), X, X, X)
    assert launched(moments) == 1
    assert read_and_written(moments) == 5 * 256 * 512 * 4


def test_a_reduction_waits_for_the_one_that_it_reads() -> None:
    centred = graph_of(lambda x: jnp.sum((x - jnp.sum(x, -1, keepdims=True)) ** 2, -1), X)
    assert launched(centred) == 2
    assert read_and_written(centred) == 2 * 256 * 512 * 4 + 3 * 256 * 4


def test_a_sum_over_one_element_is_no_kernel() -> None:
    graph = graph_of(lambda x: jnp.sum(jnp.sum(x, 0, keepdims=True), 0), X)
    assert launched(graph) == 1
    assert read_and_written(graph) == 256 * 512 * 4 + 512 * 4


def test_gathers_and_slices_read_what_they_return() -> None:
    rows, index = jax.ShapeDtypeStruct((4096, 128), np.float32), jax.ShapeDtypeStruct((64,), np.int32)
    gathered = graph_of(lambda x, i: x.at[i].get(mode="promise_in_bounds"), rows, index)
    sliced = graph_of(lambda x: jnp.tanh(x[:, :32]) * x[:, 96:], rows)
    gates = graph_of(lambda x: (lambda a, b, c, d: a * b + c * d)(*jnp.split(x, 4, -1)), rows)
    assert read_and_written(gathered) <= 2 * 64 * 128 * 4 + 8 * 64 * 4
    assert read_and_written(sliced) == 3 * 4096 * 32 * 4
    assert read_and_written(gates) == 5 * 4096 * 32 * 4


def test_an_update_rewrites_what_it_touches_and_copies_an_array_that_others_hold() -> None:
    rows, update = jax.ShapeDtypeStruct((4096, 128), np.float32), jax.ShapeDtypeStruct((64, 128), np.float32)
    start = jax.ShapeDtypeStruct((), np.int32)
    whole, part = 4096 * 128 * 4, 64 * 128 * 4

    def updated(x: Any, u: Any, at: Any) -> Any:
        return jax.lax.dynamic_update_slice(x, u, (at, jnp.int32(0)))

    held = graph_of(updated, rows, update, start)
    row = jax.ShapeDtypeStruct((128,), np.float32)
    one = graph_of(lambda x, u, at: jnp.sort(x, 0).at[at].set(u, mode="promise_in_bounds"), rows, row, start)
    assert read_and_written(one) <= 2 * whole + part
    sorts = graph_of(lambda x, u, at: updated(jnp.sort(x, 0), u, at), rows, update, start)
    assert 2 * whole + part <= read_and_written(held) <= 2 * whole + part + 64
    assert 2 * whole + 3 * part <= read_and_written(sorts) <= 2 * whole + 3 * part + 64


def test_one_update_of_each_row_is_compared_with_positions() -> None:
    rows, label = jax.ShapeDtypeStruct((256, 512), np.float32), jax.ShapeDtypeStruct((256,), np.int32)
    graph = graph_of(jax.grad(lambda x, i: jnp.sum(jnp.take_along_axis(x, i[:, None], -1))), rows, label)
    assert 256 * 512 * 4 <= read_and_written(graph) <= 256 * 512 * 4 + 8 * 256 * 4


N = 8192
LONG, HALF = jax.ShapeDtypeStruct((N, N), np.float32), jax.ShapeDtypeStruct((N, N), jnp.bfloat16)
ROWS, INDEX = jax.ShapeDtypeStruct((2**15, 1024), np.float32), jax.ShapeDtypeStruct((1024,), np.int32)
LABEL, FEW = jax.ShapeDtypeStruct((N,), np.int32), jax.ShapeDtypeStruct((1024, 1024), np.float32)


@pytest.mark.parametrize(
    ("function", "args", "megabytes"),
    [
        (lambda x, w: (lambda y: (jnp.tanh(y), jnp.exp(y)))(x @ w), (HALF, HALF), 536.9),
        (lambda x, w: jnp.tanh(x) @ jnp.exp(w), (HALF, HALF), 402.7),
        (lambda x, w: (lambda y: (jnp.sum(y, 0), jnp.sum(y, 1)))(x @ w), (HALF, HALF), 268.5),
        (lambda x, w: jnp.argmax(x @ w, -1), (HALF, HALF), 268.5),
        (lambda x, w, v: jax.nn.silu(x @ w) * (x @ v), (HALF, HALF, HALF), 939.5),
        (jax.nn.softmax, (LONG,), 1074.0),
        (lambda x, v: jax.nn.softmax(x) @ v, (HALF, HALF), 671.2),
        (lambda x: (lambda y: (y - 1, jnp.sum(y, 0)))(x / 3), (LONG,), 536.9),
        (lambda x, z: (lambda y: (y - 1, jnp.sum(y, 0)))(x + z), (LONG, LONG), 805.3),
        (lambda x, z, w: (lambda y: (y @ w, y.T @ w, w @ y))(x + z), (HALF, HALF, HALF), 1610.6),
        (lambda m, v, g: (0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g), (LONG, LONG, LONG), 1342.2),
        (lambda x: (jnp.mean(x, -1), jnp.var(x, -1)), (LONG,), 537.2),
        (lambda x: x[:1024] * 2, (LONG,), 67.1),
        (lambda x: jnp.tanh(x[:, : N // 2]) * x[:, N // 2 :], (LONG,), 402.7),
        (lambda x, i, u: (x * 2).at[i].add(u), (ROWS, INDEX, FEW), 356.5),
        (
            lambda x, u, at: jax.lax.dynamic_update_slice(x, u, (at, jnp.int32(0))),
            (ROWS, FEW, jax.ShapeDtypeStruct((), np.int32)),
            293.6,
        ),
        (jax.grad(lambda x, i: jnp.sum(jnp.take_along_axis(x, i[:, None], -1))), (LONG, LABEL), 268.5),
    ],
    ids=[
        "functions of a product", "operands of a product", "sums of a product", "argmax of a product", "two products",
        "softmax", "softmax and a product", "quotient", "sum, read twice", "sum, read thrice", "moments", "variance",
        "rows", "columns", "rows added", "slice updated", "one of each row",
    ],
)  # fmt: skip
def test_bytes_are_those_of_the_compiler_of_tpus(
    function: Callable[..., Any], args: tuple[Any, ...], megabytes: float
) -> None:
    """Bytes accessed by `cost_analysis()` for v5p, of libtpu 0.0.42 and JAX 0.10.2, within 1.3."""
    assert megabytes / 1.3 <= read_and_written(graph_of(function, *args)) / 1e6 <= megabytes * 1.3


def sizes_of(graph: Graph) -> dict[str, int]:
    return {name: int(np.prod(a.shape)) * np.dtype(a.dtype).itemsize for name, a in graph.arrays.items()}


def waits(graph: Graph) -> dict[Any, set[Any]]:
    """For every kernel those whose results it reads; a loop, with all kernels in it, is one."""
    inside, leaves, group_of = grouped(graph, sizes_of(graph))

    def node(number: int) -> Any:
        scope, outermost = graph.scopes[number], None
        while scope is not None:
            scope, outermost = graph.loops[scope].parent, scope
        return ("loop", outermost) if outermost is not None else group_of[number]

    before: dict[Any, set[Any]] = {}
    for k, of_operation in enumerate(leaves):
        if k in inside:
            continue
        makers = {graph.makers[leaf.name][0] for leaf in of_operation if leaf.name in graph.makers}
        assert not makers & inside
        before.setdefault(node(k), set()).update(node(maker) for maker in makers if node(maker) != node(k))
    return before


def test_no_two_kernels_wait_for_each_other() -> None:
    """Judged by the standard library's topological order, on random programs and on steps of training."""
    programs = [oracle.problem(oracle.program(Random(seed)), "x=4").graph for seed in range(40)]
    steps = [problem(layers).graph for layers in (1, 3)]
    cell = jax.grad(lambda w, x: jnp.sum(jax.lax.scan(lambda h, e: ((h := jnp.tanh(h @ w + e)), h), x[0], x)[1]))
    scanned = graph_of(cell, jax.ShapeDtypeStruct((64, 64), np.float32), jax.ShapeDtypeStruct((8, 16, 64), np.float32))
    for graph in (*programs, *steps, scanned):
        tuple(TopologicalSorter(waits(graph)).static_order())  # raises CycleError


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.tanh(2 * x + 1) * x - 3,
        lambda x: jnp.sum(jnp.exp(x) * 2),
        lambda x: x - jnp.mean(x, axis=-1, keepdims=True),
        lambda x: (x.T * 2).T + x,
        lambda x: jnp.where(x > 0, x, 0.1 * x),
        lambda x: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6),
    ],
    ids=["chain", "sum", "centred", "turned", "leaky", "norm"],
)
def test_bytes_are_those_that_a_compiler_says(function: Callable[..., Any]) -> None:
    """Those of XLA for CPUs, which fuses loops and reductions by the same rules, within 1.3."""
    said = jax.jit(function).lower(X).compile().cost_analysis()["bytes accessed"]
    assert said / 1.3 <= read_and_written(graph_of(function, X)) <= said * 1.3


def problem(layers: int) -> SearchProblem:
    args = models.block_args(layers, 64, 32, 64, 8)
    mesh = Mesh.of({"d": 8, "t": 8})
    given = prepare(models.block_step, args, mesh, None, None, None)
    return problem_of(given, mesh, (), tied(models.block_step, given, {"params": 0}), machine("v5p"), "seconds")


def test_a_folded_graph_has_the_kernels_of_the_whole_one() -> None:
    own = fold(problem(9))
    assert own.folded is not None
    assert own.whole is not None
    assert max(own.facts.times) > 1
    for decisions in starting(own):
        alike = harmonized(own, decisions, classes_of(own))
        few = evaluated(own, alike.kept(16))
        whole, found = unfold(own, alike)
        every = evaluated(whole, found.kept(16))
        assert few.seconds == pytest.approx(every.seconds, rel=1e-9)
        assert few.memory == every.memory


def test_a_schedule_takes_and_holds_no_more_than_without_fusion() -> None:
    cases = [problem(1), *(oracle.problem(oracle.program(Random(seed)), "x=4") for seed in range(20))]
    for own in cases:
        fused = replace(own, facts=replace(own.facts, machine=replace(machine("v5p"), fuses=True)))
        apart = replace(own, facts=replace(own.facts, machine=replace(machine("v5p"), fuses=False)))
        for decisions in starting(apart):
            one, other = evaluated(fused, decisions), evaluated(apart, decisions)
            assert one.seconds <= other.seconds * (1 + 1e-12)
            assert one.received == other.received
        assert fused.facts.floor <= apart.facts.floor * (1 + 1e-12)
