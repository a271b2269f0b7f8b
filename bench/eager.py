"""Seconds of a layer of GPT-2 175B where Python starts every operation, beside the same layer without this cost.

DistIR measured its layouts in this way (`bench.eager_gpt2`), and its simulations and ours count the work alone. The
suite times one device's share of a layer for every layout of one replica, on one GPU, without what devices exchange.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any

from bench.children import progress
from bench.distir import GPT2
from bench.results import Record
from bench.suite import Settings, Suite, once
from redistrib.programs.stages.grid import layouts

MODEL, DEVICES = "GPT-2 175B", 16
REPEATS, CALLS = 5, 4


def _layouts(batch: int) -> dict[str, Any]:
    return {str(layout): layout for layout in layouts(DEVICES, batch) if layout.data == 1}


def seconds(run: Callable[[], Any]) -> float:
    """Seconds of a call among several: the median of measurements, after one that is not counted."""
    import torch

    taken = []
    for _ in range(1 + REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            run()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - begin) / CALLS)
    return statistics.median(taken[1:])


def timed(layer: Any, parameters: Mapping[str, Any], x: Any) -> tuple[float, float]:
    """Seconds of the layer, an operation at a time, and as a graph that the GPU replays without Python."""
    import torch

    from bench.eager_gpt2 import direct, interpreted

    graph = torch.cuda.CUDAGraph()
    direct(parameters, x)
    with torch.cuda.graph(graph):
        direct(parameters, x)
    return seconds(lambda: interpreted(layer, parameters, x)), seconds(graph.replay)


def measure(chosen: list[Any], settings: Settings, _: float) -> Generator[Record]:
    """A record per layout: the operations of a layer, and its seconds for a microbatch in both ways."""
    import torch

    from bench.eager_gpt2 import DEVICE, TOKENS, Layer, weights

    width = GPT2[MODEL][1]
    parts, parameters = 0, {}
    for layout in progress(sorted(chosen, key=lambda layout: layout.tensor), "eager"):
        if layout.tensor != parts:
            parameters = {}  # before the next: both do not fit a small GPU
            parts, parameters = layout.tensor, weights(width, layout.tensor)
        layer = Layer(width, parts)
        examples = settings["batch"] // layout.microbatches
        x = torch.randn(examples, TOKENS, width, dtype=torch.float16, device=DEVICE)
        by_python, by_graph = timed(layer, parameters, x)
        yield {
            "name": str(layout),
            "pipeline": layout.pipeline,
            "microbatches": layout.microbatches,
            "operations": len(layer.steps),
            "seconds": by_python,
            "graph": by_graph,
        }


def with_python(records: list[Record], simulated: Mapping[str, float]) -> list[list[str]]:
    """Per layout: simulated seconds, seconds of Python, their sum; measured seconds with Python, and without it.

    Measured are the layers and microbatches that run one after the other from the first stage's first microbatch to the
    last stage's last. The fastest by the sum comes first.
    """
    rows = []
    for record in records:
        in_turn = (record["microbatches"] + record["pipeline"] - 1) * GPT2[MODEL][0] // record["pipeline"]
        python, graph = (in_turn * record[key] for key in ("seconds", "graph"))
        rows.append((record["name"], simulated[record["name"]], python - graph, python, graph))
    rows.sort(key=lambda row: row[1] + row[2])
    return [
        [name, *(f"{value:.2f}" for value in (ours, cost, ours + cost, python, graph))]
        for name, ours, cost, python, graph in rows
    ]


def _prepared(settings: Settings) -> Settings:
    import torch

    return {**settings, "gpu": torch.cuda.get_device_name(0), "torch": torch.__version__}


def _missing(_: Settings) -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "it needs PyTorch and a GPU"
    import torch

    return None if torch.cuda.is_available() else "it needs a GPU"


SUITE = Suite(
    "eager",
    measure,
    once(list(_layouts(1024))),
    options={"batch": 1024},
    problems=lambda settings: {name: _layouts(settings["batch"])[name] for name in settings["sets"]},
    prepared=_prepared,
    missing=_missing,
)
