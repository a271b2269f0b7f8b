"""A training step of a transformer whose integers stay exact, on one device."""

from __future__ import annotations

from functools import cache

import numpy as np

from redistrib.programs.ir.program import Program, Value
from redistrib.programs.stages.models import PRODUCTS, Ops, mask, relu


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
