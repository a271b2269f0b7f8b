"""Kernels as compilers fuse them: which arrays are stored, what each kernel reads, and what a schedule then takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redistrib.autoshard.anytime import fold, harmonized, unfold
from redistrib.autoshard.classes import classes_of
from redistrib.autoshard.descent import SearchResult
from redistrib.autoshard.entry import problem_of, tied
from redistrib.autoshard.evaluation import evaluated
from redistrib.autoshard.fusion import kernels_of
from redistrib.autoshard.problem import SearchProblem
from redistrib.autoshard.starting import starting
from redistrib.distribution.prepared import prepare
from redistrib.lang.mesh import Mesh
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.graph import Graph
from redistrib.simulator.constants import machine
from tests.search import models, oracle

X = jax.ShapeDtypeStruct((256, 512), np.float32)
W = jax.ShapeDtypeStruct((512, 384), np.float32)
B = jax.ShapeDtypeStruct((384,), np.float32)


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    return prepare(function, args, Mesh.of({"d": 1}), None, None, None).traced.graph


def read_and_written(graph: Graph) -> int:
    """Bytes that all kernels read and write."""
    arrays, total = graph.arrays(), 0
    for kernel, operation in zip(kernels_of(graph), graph.operations, strict=True):
        if kernel.runs:
            names = {name for name, _ in kernel.reads} | {a.name for a in operation.outs if kernel.stores}
            total += sum(int(np.prod(arrays[n].shape)) * itemsize_of(arrays[n].dtype) for n in names)
    return total


def launched(graph: Graph) -> int:
    return sum(kernel.runs and kernel.launches for kernel in kernels_of(graph))


def test_a_chain_is_one_kernel() -> None:
    graph = graph_of(lambda x: jnp.tanh(2 * x + 1) * x - 3, X)
    assert launched(graph) == 1
    assert read_and_written(graph) == 2 * 256 * 512 * 4


def test_a_product_with_its_bias_and_its_function_is_one_kernel() -> None:
    graph = graph_of(lambda x, w, b: jnp.maximum(x @ w + b, 0) * 2, X, W, B)
    assert launched(graph) == 1
    assert read_and_written(graph) == (256 * 512 + 512 * 384 + 384 + 256 * 384) * 4


def test_a_product_that_several_read_is_stored() -> None:
    graph = graph_of(lambda x, w: (jnp.tanh(x @ w), jnp.exp(x @ w)), X, W)
    shared = graph_of(lambda x, w: (lambda y: (jnp.tanh(y), jnp.exp(y)))(x @ w), X, W)
    assert launched(graph) == 2
    assert launched(shared) == 3


def test_a_reduction_computes_what_it_reads() -> None:
    graph = graph_of(lambda x: jnp.sum(jnp.exp(x) * 2), X)
    assert launched(graph) == 1
    assert read_and_written(graph) == 256 * 512 * 4 + 4


def test_what_is_costly_or_reads_more_is_computed_once_and_what_is_cheap_wherever_it_is_read() -> None:
    cheap = graph_of(lambda x: (lambda y: (y - 1, jnp.sum(y)))(x + 1), X)
    costly = graph_of(lambda x: (lambda y: (y - 1, jnp.sum(y)))(x / 3), X)
    both = graph_of(lambda x, z: (lambda y: (y - 1, jnp.sum(y)))(x + z), X, X)
    assert launched(cheap) == 2
    assert launched(costly) == 3
    assert launched(both) == 3


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
    assert max(own.times) > 1
    for decisions in starting(own):
        alike = harmonized(own, decisions, classes_of(own))
        few = evaluated(own, alike, {}, 16)
        whole, found = unfold(own, SearchResult(alike, {}, 0.0, False))
        every = evaluated(whole, found.decisions, {}, 16)
        assert few.seconds == pytest.approx(every.seconds, rel=1e-9)
        assert few.memory == every.memory


def test_a_schedule_takes_and_holds_no_more_than_without_fusion() -> None:
    cases = [problem(1), *(oracle.problem(oracle.program(Random(seed)), "x=4") for seed in range(20))]
    for own in cases:
        fused = replace(own, machine=replace(machine("v5p"), fuses=True), facts={}, option_cache={})
        apart = replace(own, machine=replace(machine("v5p"), fuses=False), facts={}, option_cache={})
        for decisions in starting(apart):
            one, other = evaluated(fused, decisions), evaluated(apart, decisions)
            assert one.seconds <= other.seconds * (1 + 1e-12)
            assert one.received == other.received
        assert fused.floor <= apart.floor * (1 + 1e-12)
