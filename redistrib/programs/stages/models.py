"""Models as programs on one device, to spread: a multilayer perceptron in training, and the inference of GPT-2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redistrib.programs.ir.builder import Builder
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Program, Value
from redistrib.programs.ir.spec import nest
from redistrib.programs.schedule.root import ROOT


class Ops:
    """Operations by their notation on a builder; every nest is made once.

    Args:
        name: of the program.
        sizes: of every letter.
        dtype: element type of all values.
    """

    def __init__(self, name: str, sizes: Mapping[str, int], dtype: str) -> None:
        self.builder, self.sizes, self.dtype = Builder(name), sizes, dtype
        self.nests: dict[tuple[Any, ...], Nest] = {}

    def input(self, name: str, dims: str) -> Value:
        """An input with a dimension for each letter."""
        return self.builder.input(name, f"[{', '.join(str(self.sizes[c]) for c in dims)}]", ROOT, self.dtype)

    def __call__(
        self,
        spec: str,
        *args: Value,
        name: str = "",
        fn: Any = None,
        combine: str = "sum",
        linear: tuple[tuple[int, ...], ...] | None = None,
    ) -> Any:
        """One operation, see `redistrib.programs.ir.spec.nest`; a function counts for one floating-point operation."""
        key = (spec, name, fn, combine, linear)
        if key not in self.nests:
            letters = {c: self.sizes[c] for c in spec if c.isalpha()}
            name, flops = name or "product", None if fn is None else 1
            self.nests[key] = nest(spec, letters, name=name, fn=fn, combine=combine, linear=linear, flops=flops)
        return self.builder.compute(self.nests[key], *args)

    def add(self, a: Value, b: Value, dims: str) -> Any:
        """The sum of two values of these dimensions."""
        return self(f"{dims},{dims}->{dims}", a, b, name="sum", fn=np.add, linear=((0, 1),))


def relu(x: Any) -> Any:
    """Of every element itself where it is positive, else 0."""
    return x * (x > 0)


def mask(d: Any, x: Any) -> Any:
    """The gradient of `relu`."""
    return d * (x > 0)


def mlp(layers: int, width: int, batch: int, *, dtype: str = "float16") -> Program:
    """A training step of equal layers `relu(x w)`: forward, half the squared error, backward, and the update."""
    sizes = {"b": batch, "n": width, "m": width}
    op = Ops("mlp", sizes, dtype)
    w = [op.input(f"w{k}", "nm") for k in range(layers)]
    x, y = op.input("x", "bn"), op.input("y", "bm")
    activations = []
    for weight in w:
        h = op("bn,nm->bm", x, weight)
        activations.append((x, h))
        x = op("bm->bm", h, name="relu", fn=relu)
    grad = op("bm,bm->bm", x, y, name="subtract", fn=np.subtract, linear=((0, 1),))
    outs = []
    for weight, (x, h) in zip(reversed(w), reversed(activations), strict=True):
        grad = op("bm,bm->bm", grad, h, name="mask", fn=mask)
        dw = op("bn,bm->nm", x, grad)
        grad = op("bm,nm->bn", grad, weight) if weight is not w[0] else grad
        outs.append(op("nm,nm->nm", weight, dw, name="update", fn=np.subtract, linear=((0, 1),)))
    return op.builder.build(*outs[::-1])


PRODUCTS = {"q": "ehd", "k": "ehd", "v": "ehd", "o": "hde", "1": "ef", "2": "fe"}


def _exp(x: Any, m: Any) -> Any:
    return np.exp(x - m)


def _normal(x: Any, mean: Any, square: Any, gain: Any) -> Any:
    return (x - mean) / np.sqrt(square - mean * mean + 1e-5) * gain


def _gelu(x: Any) -> Any:
    return x / (1 + np.exp(-1.702 * x))


def gpt2(
    layers: int, width: int, batch: int, *, s: int = 8, head: int = 64, vocabulary: int | None = 50304,
    dtype: str = "float16",
) -> Program:  # fmt: skip
    """GPT-2 on embedded tokens: blocks of attention and a perceptron, a norm, and logits.

    Args:
        layers, width: of the model.
        batch: sequences.
        s: tokens of each.
        head: features of a head.
        vocabulary: of the logits; None: no logits.
        dtype: element type of all values.
    """
    sizes = {"b": batch, "s": s, "t": s, "h": width // head, "d": head, "e": width, "f": 4 * width}
    op = Ops("gpt2", sizes | {"v": vocabulary or 0}, dtype)

    def share(x: Any) -> Any:
        return x / width

    def share_of_square(x: Any) -> Any:
        return x * x / width

    def norm(x: Value, gain: Value) -> Any:
        mean = op("bse->bs", x, name="mean", fn=share)
        square = op("bse->bs", x, name="square", fn=share_of_square)
        return op("bse,bs,bs,e->bse", x, mean, square, gain, name="norm", fn=_normal)

    x = op.input("x", "bse")
    for n in range(layers):
        params = {key: op.input(f"w{key}{n}", dims) for key, dims in {"g": "e", **PRODUCTS, "n": "e"}.items()}
        normed = norm(x, params["g"])
        q, k, v = (op("bse,ehd->bshd", normed, params[key]) for key in "qkv")
        scores = op("bshd,bthd->bhst", q, k)
        most = op("bhst->bhs", scores, name="rowmax", combine="max")
        weights = op("bhst,bhs->bhst", scores, most, name="exp", fn=_exp)
        total = op("bhst->bhs", weights, name="rowsum")
        weights = op("bhst,bhs->bhst", weights, total, name="div", fn=np.divide)
        o = op("bhst,bthd->bshd", weights, v)
        x = op.add(x, op("bshd,hde->bse", o, params["o"]), "bse")
        a = op("bsf->bsf", op("bse,ef->bsf", norm(x, params["n"]), params["1"]), name="gelu", fn=_gelu)
        x = op.add(x, op("bsf,fe->bse", a, params["2"]), "bse")
    x = norm(x, op.input("gain", "e"))
    return op.builder.build(op("bse,ev->bsv", x, op.input("vocabulary", "ev")) if vocabulary else x)
