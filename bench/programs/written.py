"""The layouts that users write for the programs: by batch, by the model, both; every program once.

A layout has the specs of the arguments and of the parameters that a training step returns; other results keep the
program's pins. The eight programs of the transformer block are here eight layouts of two programs, for four devices and
for eight.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bench.programs import transformer
from bench.programs.all import cases
from bench.programs.case import Case, P

BATCH = "inputs by batch"
SEARCHED = "found"  # the name of the searched schedule, beside those of layouts
Stage = tuple[str, Mapping[str, int]]  # an axis, and the dimension that it cuts of each array

_X = {"x": 0, "target": 0}
_TIME = {"x": 1, "target": 1}


def _weights(dims: Mapping[str, int]) -> dict[str, int]:
    return {f"params/{name}": dim for name, dim in dims.items()}


def _each(axes: str, arrays: Mapping[str, int]) -> list[Stage]:
    """The same arrays cut by several axes of one letter."""
    return [(axis, arrays) for axis in axes]


_MEGATRON, _FIRST, _BESIDE = (_weights(d) for d in (transformer.MEGATRON, transformer.FIRST, transformer.BESIDE))
_LAYERS = _weights({"w1": 1, "w2": 0, "w3": 1, "w4": 0})
_ROWS = _weights(dict.fromkeys(("w1", "w2", "w3", "w4"), 0))
_HEADS = _weights({"wq": 1, "wk": 1, "wv": 1, "wo": 0})
_RNN = _weights({"wx": 1, "wh": 1, "wo": 0})

# program -> (its name in `bench.programs.all`, layouts by name; the first has its inputs cut by batch)
LAYOUTS: dict[str, tuple[str, dict[str, list[Stage]]]] = {
    "block on 4 devices": ("block, Megatron", {
        BATCH: _each("t", _X),
        "Megatron": _each("t", _MEGATRON),
        "Megatron, x by sequence": [("t", {**_MEGATRON, **_TIME})],
        "FSDP, x by batch": [("t", {**_X, **_FIRST})],
        "x by sequence": _each("t", _TIME),
    }),
    "block on 8 devices": ("block, data x Megatron", {
        BATCH: _each("d", _X),
        "batch x sequence": [("d", _X), ("t", _TIME)],
        "data x Megatron": [("d", _X), ("t", _MEGATRON)],
        "FSDP x Megatron": [("d", {**_X, **_BESIDE}), ("t", _MEGATRON)],
        "FSDP x Megatron, x by sequence": [("d", {**_X, **_BESIDE}), ("t", {**_MEGATRON, **_TIME})],
    }),
    "MLP": ("MLP", {
        BATCH: _each("dt", _X),
        "data x Megatron": [("d", _X), ("t", _LAYERS)],
        "Megatron": _each("dt", _LAYERS),
        "FSDP, x by batch": _each("dt", {**_X, **_ROWS}),
    }),
    "grouped heads": ("grouped heads", {
        BATCH: _each("dt", _X),
        "data x Megatron": [("d", _X), ("t", _HEADS)],
        "FSDP, x by batch": _each("dt", {**_X, **_weights({"wq": 0, "wk": 0, "wv": 0, "wo": 3})}),
    }),
    "convolution net": ("convolution net", {
        BATCH: _each("dt", {"image": 0, "label": 0}),
        "data x channels": [("d", {"image": 0, "label": 0}), ("t", _weights({"conv1": 3, "conv2": 2}))],
    }),
    "embedding and cross-entropy": ("embedding and cross-entropy", {
        BATCH: _each("dt", {"token": 0, "label": 0}),
        "data x vocabulary": [("d", {"token": 0, "label": 0}), ("t", _weights({"embed": 0}))],
        "vocabulary": _each("dt", _weights({"embed": 0})),
    }),
    "mixture of experts": ("mixture of experts", {
        BATCH: _each("e", _X),
        "experts, x by batch": [("e", {**_X, **_weights({"up": 0, "down": 0})})],
    }),
    "LayerNorm backward": ("LayerNorm backward", {
        BATCH: _each("dt", {"x": 0, "dy": 0}),
        "rows x columns": [("d", {"x": 0, "dy": 0}), ("t", {"x": 1, "dy": 1, **_weights({"scale": 0, "shift": 0})})],
    }),
    "RNN by scan": ("RNN by scan", {
        BATCH: _each("dt", _TIME),
        "data x Megatron": [("d", _TIME), ("t", _RNN)],
    }),
    "k-means": ("k-means", {BATCH: _each("d", {"point": 0})}),
    "conjugate gradients": ("conjugate gradients", {
        BATCH: _each("d", {"matrix": 0, "b": 0}),
        "rows, b whole": _each("d", {"matrix": 0}),
        "columns": _each("d", {"matrix": 1, "b": 0}),
    }),
    "FFT by transposes": ("FFT by transposes", {
        BATCH: _each("d", {"x": 0, "weight": 0}),
        "weight whole": _each("d", {"x": 0}),  # cut by columns, XLA's program for CPUs fails
    }),
    "SpMV": ("SpMV", {
        BATCH: _each("d", {"row": 0, "column": 0, "value": 0, "x": 0}),
        "x whole": _each("d", {"row": 0, "column": 0, "value": 0}),
    }),
    "Monte Carlo": ("Monte Carlo", {BATCH: _each("d", {"spot": 0}), "whole": []}),
}  # fmt: skip


def programs(size: str) -> dict[str, Case]:
    """The programs by name."""
    by_row = cases(size)
    return {name: by_row[row] for name, (row, _) in LAYOUTS.items()}


def written(name: str, size: str) -> dict[str, Case]:
    """A program in each of its layouts."""
    case = programs(size)[name]
    return {layout: laid(case, stages) for layout, stages in LAYOUTS[name][1].items()}


def is_trained(case: Case) -> bool:
    """Whether the first result replaces the first argument in the next call."""
    return isinstance(case.outs, tuple) and len(case.outs) == 2 and case.outs == (case.ins[0], P())


def laid(case: Case, stages: list[Stage]) -> Case:
    """The case with the arguments in the layout of `stages`."""
    cuts: dict[str, dict[int, list[str]]] = {}
    for axis, arrays in stages:
        for leaf, dim in arrays.items():
            cuts.setdefault(leaf, {}).setdefault(dim, []).append(axis)

    def spec(leaf: str) -> Any:
        axes = cuts.pop(leaf, {})
        entries = [tuple(axes.get(dim, ())) for dim in range(max(axes, default=-1) + 1)]
        return P(*((entry[0] if len(entry) == 1 else entry) if entry else None for entry in entries))

    ins = tuple(
        {key: spec(f"{name}/{key}") for key in arg} if isinstance(arg, Mapping) else spec(name)
        for name, arg in zip(inspect.signature(case.function).parameters, case.args, strict=True)
    )
    assert not cuts, f"{case.name} has no {sorted(cuts)}"
    return replace(case, ins=ins, outs=(ins[0], P()) if is_trained(case) else case.outs, schedule=())
