"""Attention as flash kernels: bytes, FLOPs and memory counted by hand, and what is no attention left alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import redistrib as rd
from redistrib.cost.chips import CHIPS
from redistrib.errors import MemoryLimitError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.graph import Graph
from redistrib.programs.rules.traced import TraceOptions
from redistrib.programs.run.prepared import prepare
from redistrib.programs.time.constants import machine
from redistrib.programs.time.kernels.attention import attentions
from redistrib.programs.time.kernels.fusion import kernels_of

B, S, H, D = 2, 512, 4, 64
Q = B * S * H * D * 2  # bytes of queries, keys, values or results, in bfloat16
SCORES = B * H * S * S * 2
PRODUCT = 2 * B * H * S * S * D  # FLOPs
ROWS = B * H * S * 4  # a float32 for each row of scores
QKV = (jax.ShapeDtypeStruct((B, S, H, D), "bfloat16"),) * 3


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bshd,bthd->bhst", q, k) * (1 / D**0.5)
    return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, -1), v)


def gradients(q: Any, k: Any, v: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(jnp.square(attention(q, k, v).astype("float32")))

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def graph_of(function: Any, args: Any) -> Graph:
    return prepare(function, args, Mesh(()), None, None, TraceOptions(opens_loops=True, platform="tpu")).traced.graph


def figures(graph: Graph, numbers: frozenset[int]) -> tuple[int, int, float]:
    """Bytes, launches and FLOPs of products of some operations."""
    kernels = kernels_of(graph, flash=True)
    own = [(kernels[k], graph.operations[k]) for k in sorted(numbers)]
    work = [one.again * op.nest.points * op.nest.flops for one, op in own if op.kind == "dot_general"]
    return sum(one.share() for one, _ in own), sum(one.runs and one.launches for one, _ in own), sum(work)


def test_the_forward_pass_reads_three_arrays_and_writes_one() -> None:
    graph = graph_of(attention, QKV)
    (found,) = attentions(graph)
    (forward,) = found.passes
    assert figures(graph, forward) == (4 * Q, 1, 2 * PRODUCT)
    assert sum(kernel.share() for kernel in kernels_of(graph, flash=True)) == 4 * Q
    assert sum(kernel.share() for kernel in kernels_of(graph)) > 4 * Q + 3 * SCORES
    plain, flash = (
        rd.search(attention, QKV, {"d": 1}, machine="v5e", flash=flash, progress=False)[0] for flash in (False, True)
    )
    chip, rates = CHIPS["v5e"], machine("v5e").rates
    assert rates is not None
    # Each product takes the longer of its bytes and its FLOPs: here FLOPs for both, and exponentials besides.
    assert flash.seconds >= rates.launch + max(4 * Q / chip.memory_bandwidth, 2 * PRODUCT / chip.flops["bfloat16"])
    assert flash.seconds < plain.seconds / 2
    assert flash.memory == 4 * Q and plain.memory >= 3 * Q + SCORES


def test_the_backward_pass_computes_scores_again() -> None:
    """It reads q, k, v, the gradient of the result and a number for each row, and writes three gradients."""
    graph = graph_of(gradients, QKV)
    (found,) = attentions(graph)
    forward, backward = found.passes
    assert figures(graph, forward) == (4 * Q + ROWS, 1, 2 * PRODUCT)
    size, launches, work = figures(graph, backward)
    assert (size, launches, work) == (3 * Q + Q + ROWS + 3 * Q, 1, 5 * PRODUCT)
    flash = rd.search(gradients, QKV, {"d": 1}, machine="v5e", flash=True, progress=False)[0]
    assert flash.memory < 3 * Q + 3 * Q + 3 * Q + SCORES / 2


@pytest.mark.parametrize("axis", ["b", "h"])
def test_devices_share_it(axis: str) -> None:
    pins = [rd.along("d", dict.fromkeys("qkv", 0 if axis == "b" else 2))]
    shapes = (jax.ShapeDtypeStruct((4, S, H, D), "bfloat16"),) * 3
    found = rd.search(attention, shapes, {"d": 4}, machine="h100", flash=True, pins=pins, progress=False)[0]
    assert (found.memory, found.received_bytes) == (4 * 2 * Q / 4, 0)


def causal(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bshd,bthd->bhst", q, k, preferred_element_type="float32") * (1 / D**0.5)
    mask = jnp.arange(S)[:, None] >= jnp.arange(S)[None, :]
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), -1).astype(q.dtype)
    return jnp.einsum("bhst,bthd->bshd", weights, v)


def grouped_queries(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bskgd,btkd->bkgst", q.reshape(B, S, 2, 2, D), k[:, :, :2])
    return jnp.einsum("bkgst,btkd->bskgd", jax.nn.softmax(scores, -1), v[:, :, :2])


def checkpointed(q: Any, k: Any, v: Any) -> Any:
    loss = jax.checkpoint(lambda q, k, v: jnp.sum(jnp.square(attention(q, k, v).astype("float32"))))
    return jax.grad(lambda *args: loss(*args) ** 2, (0, 1, 2))(q, k, v)


@pytest.mark.parametrize(
    "function", [causal, grouped_queries, checkpointed, jax.nn.dot_product_attention, jax.vmap(attention, 0, 0)]
)
def test_attentions_of_other_forms_are_found(function: Any) -> None:
    is_mapped = getattr(function, "__wrapped__", None) is attention
    args = (jax.ShapeDtypeStruct((2, B, S, H, D), "bfloat16"),) * 3 if is_mapped else QKV
    graph = graph_of(function, args)
    assert attentions(graph)
    stored = [
        array.shape
        for kernel, op in zip(kernels_of(graph, flash=True), graph.operations, strict=True)
        if kernel.stores
        for array in op.outs
    ]
    assert all(shape[-2:] != (S, S) or len(shape) == 2 for shape in stored)


def test_scanned_layers_stack_no_scores_for_the_backward_pass() -> None:
    layers, width = 6, H * D

    def layer(x: Any, w: Any) -> Any:
        q, k, v = (jnp.einsum("bse,ehd->bshd", x, w[n]) for n in range(3))
        return x + jnp.einsum("bshd,ehd->bse", attention(q, k, v), w[3]), None

    def loss(weights: Any, x: Any) -> Any:
        return jnp.sum(jnp.square(jax.lax.scan(layer, x, weights)[0].astype("float32")))

    weights = jax.ShapeDtypeStruct((layers, 4, width, H, D), "bfloat16")
    args = (weights, jax.ShapeDtypeStruct((B, S, width), "bfloat16"))
    plain, flash = (
        rd.search(jax.grad(loss), args, {"d": 1}, machine="v5p", flash=flash, progress=False)[0]
        for flash in (False, True)
    )
    assert plain.memory - flash.memory >= 2 * layers * SCORES  # exponentials and weights
    # A limit that only flash kernels keep: nothing is said to be proved against them.
    limit = {"memory_limit": flash.memory, "machine": "v5p", "progress": False}
    assert rd.search(jax.grad(loss), args, {"d": 1}, flash=True, **limit)[0].memory <= flash.memory  # type: ignore[arg-type]
    with pytest.raises(MemoryLimitError):
        rd.search(jax.grad(loss), args, {"d": 1}, **limit)  # type: ignore[arg-type]


def single(q: Any, k: Any, v: Any) -> Any:
    """One head of one sequence: no dimension is in every operand."""
    return jax.nn.softmax(jnp.einsum("sd,td->st", q, k) * (1 / D**0.5), -1) @ v


def single_gradients(q: Any, k: Any, v: Any) -> Any:
    return jax.grad(lambda q, k, v: jnp.sum(jnp.square(single(q, k, v))), (0, 1, 2))(q, k, v)


def test_an_attention_without_a_batch_is_one_kernel_a_pass() -> None:
    size, scores, rows, product = S * D * 2, S * S * 2, S * 4, 2 * S * S * D
    args = (jax.ShapeDtypeStruct((S, D), "bfloat16"),) * 3
    for function in (single, lambda q, k, v: jax.nn.softmax((q @ k.T) / 8, -1) @ v):
        graph = graph_of(function, args)
        (found,) = attentions(graph)
        assert [figures(graph, numbers)[1:] for numbers in found.passes] == [(1, 2 * product)]
    graph = graph_of(single, args)
    (found,) = attentions(graph)
    assert figures(graph, found.passes[0])[0] == 4 * size
    graph = graph_of(single_gradients, args)
    (found,) = attentions(graph)
    forward, backward = found.passes
    assert figures(graph, forward) == (4 * size + rows, 1, 2 * product)
    assert figures(graph, backward) == (7 * size + rows, 1, 5 * product)
    options: Any = {"machine": "h100", "progress": False}
    assert rd.search(single, args, {"d": 1}, flash=True, **options)[0].memory == 4 * size
    assert rd.search(single, args, {"d": 1}, **options)[0].memory >= 3 * size + scores


def vocabulary(x: Any, w: Any) -> Any:
    return jax.grad(lambda w: jnp.sum(jax.nn.softmax(x @ w, -1)[:, 0]))(w)


def classifier(x: Any, w: Any, labels: Any) -> Any:
    """Its gradient multiplies the softmax by both operands of the scores."""

    def loss(x: Any, w: Any) -> Any:
        logits = jnp.tanh(x) @ w
        return -jnp.sum(jax.nn.log_softmax(logits, -1) * jax.nn.one_hot(labels.astype("int32"), 512, dtype=x.dtype))

    return jax.grad(loss, (0, 1))(x, w)


def router(x: Any, w: Any, results: Any) -> Any:
    return jnp.einsum("te,etd->td", jax.nn.softmax(x @ w, -1), results)


def scores_too(q: Any, k: Any, v: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k), -1)
    return jnp.einsum("bhst,bthd->bshd", weights, v), weights


def experts(x: Any, up: Any, down: Any) -> Any:
    return jnp.einsum("ecf,efd->ecd", jnp.exp(jnp.einsum("ecd,edf->ecf", x, up)), down)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (vocabulary, [(64, 32), (32, 512)]),
        (classifier, [(64, 32), (32, 512), (64,)]),
        (router, [(64, 32), (32, 8), (8, 64, 16)]),
        (scores_too, [(B, S, H, D)] * 3),
        (experts, [(4, 64, 32), (4, 32, 128), (4, 128, 32)]),
    ],
)
def test_other_products_around_exponentials_are_no_attention(function: Any, shapes: Any) -> None:
    graph = graph_of(function, [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes])
    assert attentions(graph) == []
    assert kernels_of(graph, flash=True) == kernels_of(graph)


def test_machines_without_kernels_refuse_it() -> None:
    with pytest.raises(ProgramError, match="on 'tpu' every operation is a kernel; leave flash= out"):
        rd.search(attention, QKV, {"d": 1}, machine="tpu", flash=True)


CONTEXT = {"in_shardings": ("[128{d}512, 64]",) * 3, "out_shardings": "[128{d}512, 64]"}


def test_beside_moves_no_scores_are_held() -> None:
    """Rows of queries are shared out: one kernel waits for all keys and all values, and holds them until it is done."""
    args, tile = (jax.ShapeDtypeStruct((S, D), "bfloat16"),) * 3, S * D * 2 // 4
    options: Any = {"machine": "h100", "flash": True, "progress": False, **CONTEXT}
    apart, beside = (rd.search(single, args, {"d": 4}, overlap=overlap, **options)[0] for overlap in (False, True))
    assert apart.received_bytes == beside.received_bytes == 2 * 4 * 3 * tile
    assert apart.memory == beside.memory == 3 * tile + 2 * 4 * tile + tile
    assert beside.seconds == pytest.approx(apart.seconds, rel=1e-9)


@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_limit_holds_with_flash_kernels(overlap: bool) -> None:
    """Of a layer and its gradient: no scores are held, and what cannot fit is refused."""

    def layer(x: Any, w: Any) -> Any:
        q, k, v = (x @ w[n] for n in range(3))
        return jnp.sum(jnp.square(single(q, k, v)))

    rows = 8 * S  # of scores: a quarter of them takes more than all else
    args = (jax.ShapeDtypeStruct((rows, D), "bfloat16"), jax.ShapeDtypeStruct((3, D, D), "bfloat16"))
    options: Any = {"machine": "h100", "flash": True, "progress": False, "overlap": overlap}
    free = rd.search(jax.grad(layer, (0, 1)), args, {"d": 4}, **options)[0]
    tight = rd.search(jax.grad(layer, (0, 1)), args, {"d": 4}, memory_limit=free.memory, **options)[0]
    assert tight.memory <= free.memory < rows * rows * 2 // 4
    assert tight.seconds == pytest.approx(free.seconds, rel=1e-9)
    with pytest.raises(MemoryLimitError):
        rd.search(jax.grad(layer, (0, 1)), args, {"d": 4}, memory_limit=rows * D * 2 // 4, **options)
