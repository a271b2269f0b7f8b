"""The attention of the thesis (8.1.3, 8.1.4) as nests, each map of its listing one nest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.spec import nest


def softmax(b: int, h: int, s: int, exponent: Callable[..., Any], divide: Callable[..., Any]) -> list[Nest]:
    """The four maps of a softmax over the last of four dimensions, `inp` to `out`."""
    sizes = {"b": b, "h": h, "i": s, "j": s}
    return [
        nest("bhij->bhi", sizes, name="rowmax", reads=["inp"], writes="rowmax", combine="max"),
        nest("bhij,bhi->bhij", sizes, name="exp", reads=["inp", "rowmax"], writes="exp_arr", fn=exponent),
        nest("bhij->bhi", sizes, name="rowsum", reads=["exp_arr"], writes="rowsum"),
        nest("bhij,bhi->bhij", sizes, name="div", reads=["exp_arr", "rowsum"], writes="out", fn=divide),
    ]


SOFTMAX = ["rowmax", "exp", "rowsum", "div"]


def real(x: Any, m: Any) -> Any:
    return np.exp(x - m)


def whole_exponent(x: Any, m: Any) -> Any:
    """Stands for the exponential where results must be exact: an integer for integers."""
    return (x - m) % 7


def whole_divide(x: Any, m: Any) -> Any:
    """Stands for the division."""
    return (x * 64) // (m + 1)


def attention(b: int, s: int, e: int, h: int, exponent: Any = real, divide: Any = np.divide) -> list[Nest]:
    """Projections, scores, softmax, values, the permutation with its reshape, and the output projection."""
    d = e // h
    project = {"b": b, "i": s, "k": e, "h": h, "j": d}
    renamed = {"inp": "scores", "out": "norm"}
    return [
        *(nest("bik,khj->bhij", project, name=f"{x}", reads=["x", f"W_{x}"], writes=f"{x}_heads") for x in "QKV"),
        nest(
            "bhik,bhjk->bhij",
            {"b": b, "h": h, "i": s, "k": d, "j": s},
            name="scores",
            reads=["Q_heads", "K_heads"],
            writes="scores",
        ),
        *_renamed(softmax(b, h, s, exponent, divide), renamed),
        nest(
            "bhik,bhkj->bhij",
            {"b": b, "h": h, "i": s, "k": s, "j": d},
            name="values",
            reads=["norm", "V_heads"],
            writes="values",
        ),
        nest("bhse->bs(he)", {"b": b, "h": h, "s": s, "e": d}, name="merge", reads=["values"], writes="merged"),
        nest("bik,kj->bij", {"b": b, "i": s, "k": e, "j": e}, name="output", reads=["merged", "W_O"], writes="y"),
    ]


def _renamed(nests: Sequence[Nest], names: dict[str, str]) -> list[Nest]:
    return [
        replace(
            one,
            reads=[replace(access, array=names.get(access.array, access.array)) for access in one.reads],
            writes=[replace(access, array=names.get(access.array, access.array)) for access in one.writes],
        )
        for one in nests
    ]


def megatron(nests: Sequence[Nest], parts: int) -> dict[str, dict[str, int]]:
    """Everything cut by heads, the output projection by the batch (Figure 8.1)."""
    return {one.name: {"b": parts} if one.name == "output" else {"h": parts} for one in nests}
