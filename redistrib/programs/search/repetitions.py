"""Stretches of operations that repeat, as those of the layers of an unrolled stack do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from redistrib.arith import Int64
from redistrib.programs.ir.graph import Graph
from redistrib.programs.ir.loops import LoopScope
from redistrib.programs.search.constants import FEWEST, PERIODS, WINDOW


class Repetition(NamedTuple):
    """Operations that repeat.

    Attributes:
        start: number of the first.
        period: operations of a layer.
        layers: how many there are.
    """

    start: int
    period: int
    layers: int


def repetitions(codes: Int64) -> list[Repetition]:
    """The stretches of operations that repeat, those first that cover most; no two overlap."""
    if len(codes) < FEWEST * WINDOW:
        return []
    window = codes[: len(codes) - WINDOW + 1].copy()
    for k in range(1, WINDOW):
        window = window * 1_000_003 + codes[k : len(codes) - WINDOW + 1 + k]
    order = np.argsort(window, kind="stable")
    same = window[order][1:] == window[order][:-1]
    gaps = Counter((order[1:] - order[:-1])[same].tolist())
    listed = []
    for period, _ in gaps.most_common(PERIODS):
        equal = np.concatenate([[False], codes[:-period] == codes[period:], [False]])
        edges = np.flatnonzero(equal[1:] != equal[:-1])
        for start, stop in zip(edges[::2], edges[1::2], strict=True):
            count = int(stop - start) // period + 1
            if count >= FEWEST:
                listed.append(Repetition(int(start), int(period), count))
    listed.sort(key=lambda run: (-run.period * run.layers, run.period))
    taken = np.zeros(len(codes), dtype=bool)
    chosen = []
    for run in listed:
        span = slice(run.start, run.start + run.period * run.layers)
        if not taken[span].any():
            taken[span] = True
            chosen.append(run)
    return chosen


def turnings(graph: Graph, run: Repetition) -> Iterator[Repetition]:
    """The run begun at each operation of its first layer, where no loop is partly in a layer."""
    for turn in range(run.period):
        start, layers = run.start + turn, (run.period * run.layers - turn) // run.period
        stop = start + run.period * layers

        def is_whole(loop: LoopScope, start: int = start, stop: int = stop) -> bool:
            disjoint = loop.stop <= start or stop <= loop.first or (loop.first <= start and stop <= loop.stop)
            inside = start <= loop.first and loop.stop <= stop
            same = (loop.first - start) // run.period == (loop.stop - 1 - start) // run.period
            return disjoint or (inside and same)

        if all(map(is_whole, graph.loops)):
            yield Repetition(start, run.period, layers)
