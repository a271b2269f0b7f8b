"""Programs to spread: training steps whose integers stay exact, and the inference of GPT-2, on one device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from redistrib.programs.builder import Builder
from redistrib.programs.nest import Nest
from redistrib.programs.program import Program, Value
from redistrib.programs.spec import nest
from tests.simulate.mlp import on

ROOT = on(0)


class Ops:
    """Nests by their notation, each made once, on a builder."""

    def __init__(self, name: str, sizes: Mapping[str, int], dtype: str) -> None:
        self.builder, self.sizes, self.dtype = Builder(name), sizes, dtype
        self.known: dict[tuple[Any, ...], Nest] = {}

    def input(self, name: str, dims: str) -> Value:
        return self.builder.input(name, f"[{', '.join(str(self.sizes[c]) for c in dims)}]", ROOT, self.dtype)

    def __call__(self, spec: str, *args: Value, name: str = "", fn: Any = None, **options: Any) -> Any:
        key = (spec, name, id(fn), *sorted((key, str(value)) for key, value in options.items()))
        if key not in self.known:
            letters = {c: self.sizes[c] for c in spec if c.isalpha()}
            flops = {"flops": 1} if fn is not None else {}
            self.known[key] = nest(spec, letters, name=name or "product", fn=fn, **flops, **options)
        return self.builder.compute(self.known[key], *args)

    def add(self, a: Value, b: Value, dims: str) -> Any:
        return self(f"{dims},{dims}->{dims}", a, b, name="sum", fn=np.add, linear=((0, 1),))


def relu(x: Any) -> Any:
    return x * (x > 0)


def mask(d: Any, x: Any) -> Any:
    return d * (x > 0)


PRODUCTS = {"q": "ehd", "k": "ehd", "v": "ehd", "o": "hde", "1": "ef", "2": "fe"}


@cache
def transformer(layers: int = 2, batch: int = 8, s: int = 3, heads: int = 2, d: int = 2, f: int = 8) -> Program:
    """A training step of layers of attention, without its softmax, and a perceptron; a sum of losses besides."""
    sizes = {"b": batch, "s": s, "t": s, "h": heads, "d": d, "e": heads * d, "f": f}
    op = Ops("transformer", sizes, "int64")
    w = [{key: op.input(f"w{key}{n}", dims) for key, dims in PRODUCTS.items()} for n in range(layers)]
    x, y = op.input("x", "bse"), op.input("y", "bse")
    kept = []
    for own in w:
        q, k, v = (op("bse,ehd->bshd", x, own[key]) for key in "qkv")
        scores = op("bshd,bthd->bhst", q, k)
        o = op("bhst,bthd->bshd", scores, v)
        r = op.add(x, op("bshd,hde->bse", o, own["o"]), "bse")
        g = op("bse,ef->bsf", r, own["1"])
        a = op("bsf->bsf", g, name="relu", fn=relu)
        kept.append((x, q, k, v, scores, o, r, g, a))
        x = op.add(r, op("bsf,fe->bse", a, own["2"]), "bse")
    grad = op("bse,bse->bse", x, y, name="subtract", fn=np.subtract, linear=((0, 1),))
    loss = op("bse->", grad, name="loss")
    outs: list[Value] = []
    for own, (x, q, k, v, scores, o, r, g, a) in zip(reversed(w), reversed(kept), strict=True):
        made = {"2": op("bsf,bse->fe", a, grad)}
        dg = op("bsf,bsf->bsf", op("bse,fe->bsf", grad, own["2"]), g, name="mask", fn=mask)
        made["1"] = op("bse,bsf->ef", r, dg)
        dr = op.add(grad, op("bsf,ef->bse", dg, own["1"]), "bse")
        made["o"] = op("bshd,bse->hde", o, dr)
        do = op("bse,hde->bshd", dr, own["o"])
        ds, dv = op("bshd,bthd->bhst", do, v), op("bhst,bshd->bthd", scores, do)
        dq, dk = op("bhst,bthd->bshd", ds, k), op("bhst,bshd->bthd", ds, q)
        grad = dr
        for key, one in (("q", dq), ("k", dk), ("v", dv)):
            made[key] = op("bse,bshd->ehd", x, one)
            grad = op.add(grad, op("bshd,ehd->bse", one, own[key]), "bse")
        for key, dims in PRODUCTS.items():
            spec = f"{dims},{dims}->{dims}"
            outs.append(op(spec, own[key], made[key], name="update", fn=np.subtract, linear=((0, 1),)))
    return op.builder.build(loss, *outs)


def _exp(x: Any, m: Any) -> Any:
    return np.exp(x - m)


def _normal(x: Any, mean: Any, square: Any, gain: Any) -> Any:
    return (x - mean) / np.sqrt(square - mean * mean + 1e-5) * gain


def _gelu(x: Any) -> Any:
    return x / (1 + np.exp(-1.702 * x))


GPT2 = {"GPT-2 1.6B": (24, 2048), "GPT-2 13B": (40, 5120), "GPT-2 175B": (96, 12288)}


def gpt2(
    layers: int, width: int, batch: int, *, s: int = 8, head: int = 64, vocabulary: int | None = 50304,
    dtype: str = "float16",
) -> Program:  # fmt: skip
    """What GPT-2 computes of embedded tokens: blocks of attention and a perceptron, a norm, and logits."""
    sizes = {"b": batch, "s": s, "t": s, "h": width // head, "d": head, "e": width, "f": 4 * width}
    op = Ops("gpt2", sizes | {"v": vocabulary or 0}, dtype)

    def norm(x: Value, gain: Value) -> Any:
        mean = op("bse->bs", x, name="mean", fn=lambda x: x / width)
        square = op("bse->bs", x, name="square", fn=lambda x: x * x / width)
        return op("bse,bs,bs,e->bse", x, mean, square, gain, name="norm", fn=_normal)

    x = op.input("x", "bse")
    for n in range(layers):
        own = {key: op.input(f"w{key}{n}", dims) for key, dims in {"g": "e", **PRODUCTS, "n": "e"}.items()}
        normed = norm(x, own["g"])
        q, k, v = (op("bse,ehd->bshd", normed, own[key]) for key in "qkv")
        scores = op("bshd,bthd->bhst", q, k)
        most = op("bhst->bhs", scores, name="rowmax", combine="max")
        weights = op("bhst,bhs->bhst", scores, most, name="exp", fn=_exp)
        total = op("bhst->bhs", weights, name="rowsum")
        weights = op("bhst,bhs->bhst", weights, total, name="div", fn=np.divide)
        o = op("bhst,bthd->bshd", weights, v)
        x = op.add(x, op("bshd,hde->bse", o, own["o"]), "bse")
        a = op("bsf->bsf", op("bse,ef->bsf", norm(x, own["n"]), own["1"]), name="gelu", fn=_gelu)
        x = op.add(x, op("bsf,fe->bse", a, own["2"]), "bse")
    x = norm(x, op.input("gain", "e"))
    return op.builder.build(op("bse,ev->bsv", x, op.input("vocabulary", "ev")) if vocabulary else x)
