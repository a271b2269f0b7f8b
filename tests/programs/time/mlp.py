"""The multilayer perceptron of DistIR's figures, with its training step, as programs; integers stay exact.

The functions of Figure 2 are programs, called by the programs of Figures 2, 8 and 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Place, Program, Value
from redistrib.programs.ir.spec import nest


def on(*devices: int) -> Place:
    """One device, or several along the axis `d`."""
    return Place(Mesh(()) if len(devices) == 1 else Mesh.of(f"d={len(devices)}"), devices)


D1, D2 = on(0), on(1)


@cache
def dense(batch: int, n: int, m: int, place: Place, dtype: str = "int64") -> Program:
    """One layer: `relu(x w)`."""
    b = Builder("dense")
    w, x = b.input("w", f"[{n}, {m}]", place, dtype), b.input("x", f"[{batch}, {n}]", place, dtype)
    h = b.compute(nest("bn,nm->bm", (batch, n, m), name="gemm"), x, w)
    return b.build(b.compute(_relu(batch, m), h))


@cache
def dense_grad(batch: int, n: int, m: int, place: Place, dtype: str = "int64") -> Program:
    """Of a layer `relu(x w)` the gradients of `w` and `x` from that of its result."""
    b = Builder("denseGrad")
    w, x = b.input("w", f"[{n}, {m}]", place, dtype), b.input("x", f"[{batch}, {n}]", place, dtype)
    da = b.input("da", f"[{batch}, {m}]", place, dtype)
    h = b.compute(nest("bn,nm->bm", (batch, n, m), name="gemm"), x, w)
    g = b.compute(nest("bm,bm->bm", (batch, m), name="mask", fn=lambda h, d: d * (h > 0), flops=1), h, da)
    dw = b.compute(nest("bn,bm->nm", (batch, n, m), name="gemm"), x, g)
    return b.build(dw, b.compute(nest("bm,nm->bn", {"b": batch, "n": n, "m": m}, name="gemm"), g, w))


@cache
def loss_grad(batch: int, m: int, place: Place, dtype: str = "int64") -> Program:
    """The gradient of half the squared error."""
    b = Builder("lossGrad")
    p, y = b.input("p", f"[{batch}, {m}]", place, dtype), b.input("y", f"[{batch}, {m}]", place, dtype)
    return b.build(b.compute(_pairwise("subtract", batch, m, np.subtract), p, y))


def _relu(batch: int, m: int) -> Nest:
    return nest("bm->bm", (batch, m), name="relu", fn=lambda h: np.maximum(h, 0), flops=1)


@cache
def _pairwise(name: str, n: int, m: int, fn: Callable[..., Any]) -> Nest:
    return nest("nm,nm->nm", (n, m), name=name, fn=fn, linear=[(0, 1)], flops=1)


def _split(batch: int, n: int) -> Nest:
    """A batch into two microbatches."""
    reads = [Access("x", ((), ("n",)), (batch,))]
    writes = [Access(f"x_{k}", (("b",), ("n",))) for k in (1, 2)]
    body = lambda at, x: (x[: batch // 2], x[batch // 2 :])  # noqa: E731
    return Nest("split", {"b": batch // 2, "n": n}, reads, writes, whole={"b"}, body=body, flops=0)


class Sizes(NamedTuple):
    """Of two layers: examples, and features before, between and after."""

    batch: int = 4
    n: int = 6
    m: int = 8
    o: int = 2


SMALL = Sizes()


def sequential(sizes: Sizes = SMALL, *, checkpoint: bool = False, dtype: str = "int64") -> Program:
    """Two layers trained on device 0; with `checkpoint` as in Figure 8, the activation computed a second time."""
    batch, n, m, o = sizes
    b = Builder("mlpCheckpoint" if checkpoint else "mlp")
    w1, w2 = b.input("w1", f"[{n}, {m}]", D1, dtype), b.input("w2", f"[{m}, {o}]", D1, dtype)
    x, y = b.input("x", f"[{batch}, {n}]", D1, dtype), b.input("y", f"[{batch}, {o}]", D1, dtype)
    a = b.call(dense(batch, n, m, D1, dtype), w1, x)
    p = b.call(dense(batch, m, o, D1, dtype), w2, a)
    dp = b.call(loss_grad(batch, o, D1, dtype), p, y)
    if checkpoint:
        a = b.call(dense(batch, n, m, D1, dtype), w1, x)
    dw2, da = b.call(dense_grad(batch, m, o, D1, dtype), w2, a, dp)
    dw1, _ = b.call(dense_grad(batch, n, m, D1, dtype), w1, x, da)
    return b.build(_updated(b, w1, dw1), _updated(b, w2, dw2))


def _updated(b: Builder, w: Value, dw: Value) -> Value:
    return b.compute(_pairwise("optimizer", *w.type.global_shape, np.subtract), w, dw, names=[f"{w.name}_new"])


def pipelined(sizes: Sizes = SMALL, *, swapped: bool = False, dtype: str = "int64") -> Program:
    """Figure 2: a layer on each of two devices, two microbatches; `swapped`, lines 20 and 21 in the other order."""
    batch, n, m, o = sizes
    half = batch // 2
    b = Builder("mlpPP")
    w1, w2 = b.input("w1", f"[{n}, {m}]", D1, dtype), b.input("w2", f"[{m}, {o}]", D2, dtype)
    x, y = b.input("x", f"[{batch}, {n}]", D1, dtype), b.input("y", f"[{batch}, {o}]", D2, dtype)
    x_1, x_2 = b.compute(_split(batch, n), x, names=["x_1", "x_2"])
    y_1, y_2 = b.compute(_split(batch, o), y, names=["y_1", "y_2"])
    first, second = dense(half, n, m, D1, dtype), dense(half, m, o, D2, dtype)
    a_1 = b.call(first, w1, x_1, names=["as_1"])
    ar_1 = b.move(a_1, place=D2, name="ar_1")
    a_2 = b.call(first, w1, x_2, names=["as_2"])
    if swapped:
        ar_2 = b.move(a_2, place=D2, name="ar_2")
        p_1 = b.call(second, w2, ar_1, names=["p_1"])
    else:
        p_1 = b.call(second, w2, ar_1, names=["p_1"])
        ar_2 = b.move(a_2, place=D2, name="ar_2")
    loss, last, front = (
        loss_grad(half, o, D2, dtype), dense_grad(half, m, o, D2, dtype), dense_grad(half, n, m, D1, dtype),
    )  # fmt: skip
    dw1, dw2 = [], []
    for p, y_k, ar, x_k in ((p_1, y_1, ar_1, x_1), (None, y_2, ar_2, x_2)):
        if p is None:
            p = b.call(second, w2, ar, names=["p_2"])
        dp = b.call(loss, p, y_k)
        dw, da = b.call(last, w2, ar, dp)
        dw2.append(dw)
        dw1.append(b.call(front, w1, x_k, b.move(da, place=D1))[0])
    total = [
        b.compute(_pairwise("sum", *dw[0].type.global_shape, np.add), *dw, names=[name])
        for name, dw in (("dw1", dw1), ("dw2", dw2))
    ]
    return b.build(_updated(b, w1, total[0]), _updated(b, w2, total[1]))


def data_parallel(sizes: Sizes = SMALL, *, zero: bool = False, dtype: str = "int64") -> Program:
    """Two layers trained on two devices, half of the batch on each.

    With `zero` as in Figure 9: each device owns one layer, and sends it whenever the other needs it; else every device
    has both, and both gradients are sent and summed on both.
    """
    batch, n, m, o = sizes
    half = batch // 2
    b = Builder("mlpDP_ZeRO" if zero else "mlpDP")
    shape = {1: f"[{n}, {m}]", 2: f"[{m}, {o}]"}
    owner = {1: D1, 2: D2}
    held = {
        (k, place): b.input(f"w{k}" if zero else f"w{k}_{d}", shape[k], place, dtype)
        for k in (1, 2)
        for d, place in enumerate((D1, D2), 1)
        if not zero or place is owner[k]
    }
    x = {place: b.input(f"x_{d}", f"[{half}, {n}]", place, dtype) for d, place in enumerate((D1, D2), 1)}
    y = {place: b.input(f"y_{d}", f"[{half}, {o}]", place, dtype) for d, place in enumerate((D1, D2), 1)}

    def weight(k: int, place: Place) -> Value:
        return held[k, place] if (k, place) in held else b.move(held[k, owner[k]], place=place)

    places = (D1, D2)
    a = {p: b.call(dense(half, n, m, p, dtype), weight(1, p), x[p]) for p in places}
    out = {p: b.call(dense(half, m, o, p, dtype), weight(2, p), a[p]) for p in places}
    dp = {p: b.call(loss_grad(half, o, p, dtype), out[p], y[p]) for p in places}
    grad: dict[tuple[int, Place], Value] = {}
    da = {}
    for p in places:
        grad[2, p], da[p] = b.call(dense_grad(half, m, o, p, dtype), weight(2, p), a[p], dp[p])
    for p in places:
        grad[1, p], _ = b.call(dense_grad(half, n, m, p, dtype), weight(1, p), x[p], da[p])
    made = []
    for k in (1, 2):
        for p in places if not zero else (owner[k],):
            other = places[1 - places.index(p)]
            pair = (grad[k, p], b.move(grad[k, other], place=p))
            total = b.compute(_pairwise("sum", *pair[0].type.global_shape, np.add), *pair)
            made.append(_updated(b, held[k, p], total))
    return b.build(*made)


def deep(layers: int, batch: int, width: int, *, every: int | None = None, dtype: str = "float16") -> Program:
    """As many equal layers trained on one device; with `every`, only each such activation is kept."""
    b = Builder(f"mlp{layers}")
    w = [b.input(f"w{k}", f"[{width}, {width}]", D1, dtype) for k in range(layers)]
    x, y = (b.input(name, f"[{batch}, {width}]", D1, dtype) for name in "xy")
    layer, back = dense(batch, width, width, D1, dtype), dense_grad(batch, width, width, D1, dtype)
    acts = [x]
    for k in range(layers):
        acts.append(b.call(layer, w[k], acts[-1]))
    grad = b.call(loss_grad(batch, width, D1, dtype), acts[-1], y)
    made = []
    for k in reversed(range(layers)):
        if every is not None and k % every == every - 1:  # the segment that ends here, forward again
            first = k - every + 1
            for j in range(first, k):
                acts[j + 1] = b.call(layer, w[j], acts[j])
        dw, grad = b.call(back, w[k], acts[k], grad)
        made.append(_updated(b, w[k], dw))
    return b.build(*made[::-1])


def gpipe(microbatches: int, stages: int = 2, batch: int = 8, width: int = 16) -> Program:
    """Forward and backward of a layer on each of several devices, microbatch by microbatch; nothing is updated."""
    b = Builder("gpipe")
    places = [on(k) for k in range(stages)]
    w = [b.input(f"w{k}", f"[{width}, {width}]", place) for k, place in enumerate(places)]
    x = [b.input(f"x{k}", f"[{batch}, {width}]", places[0]) for k in range(microbatches)]
    kept: list[list[Value]] = []
    for value in x:
        row = [value]
        for k, place in enumerate(places):
            made = b.call(dense(batch, width, width, place, "float32"), w[k], row[-1])
            row.append(b.move(made, place=places[k + 1]) if k + 1 < stages else made)
        kept.append(row)
    outs = []
    for row in kept:
        grad = row[-1]
        for k, place in reversed(list(enumerate(places))):
            dw, grad = b.call(dense_grad(batch, width, width, place, "float32"), w[k], row[k], grad)
            outs.append(dw)
            grad = b.move(grad, place=places[k - 1]) if k else grad
    return b.build(*outs)


MODELS = {"MLP 1B": (16, 8192), "MLP 17B": (64, 16384), "MLP 103B": (96, 32768)}


def configurations(devices: int = 16, most: int = 128) -> Iterator[tuple[int, int, int, int]]:
    """Powers of two (D, T, P, K) with D T P devices; 2 to `most` microbatches where there is more than one stage."""
    powers = [1 << k for k in range(devices.bit_length())]
    for d, t, p in product(powers, repeat=3):
        if d * t * p == devices:
            yield from ((d, t, p, k) for k in ([1] if p == 1 else _powers(2, most)))


def _powers(low: int, high: int) -> list[int]:
    return [1 << k for k in range(low.bit_length() - 1, high.bit_length())]


def inference_configurations() -> list[tuple[int, int, int, int, int]]:
    """The same for every batch size from 128 to 1048576 that leaves each microbatch of each replica an example."""
    return [(batch, *one) for batch in _powers(128, 1 << 20) for one in configurations() if batch >= one[0] * one[3]]
