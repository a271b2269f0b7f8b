"""DistIR's tables by simulation: the best layout of D, T, P and K for every model and batch size.

The machine is `v100` (redistrib/programs/time/constants.py). Its constants were fixed before any of these tables was
simulated; none of them is fitted.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Generator
from multiprocessing import Pool
from typing import Any

from bench.children import progress
from bench.results import Record
from bench.suite import Settings, Suite, once
from redistrib.programs.stages.grid import of_microbatches
from redistrib.programs.stages.models import gpt2, mlp
from redistrib.programs.time.constants import machine

# Table 1: layers and width.
MLP = {"MLP 1B": (16, 8192), "MLP 17B": (64, 16384), "MLP 103B": (96, 32768)}
GPT2 = {"GPT-2 1.6B": (24, 2048), "GPT-2 13B": (40, 5120), "GPT-2 175B": (96, 12288)}
BATCHES = [1 << k for k in range(7, 21)]
# Bytes that a layout may take by simulation; their public code keeps 4 GB of each device free (microsoft/dist-ir,
# examples/mlsys_experiments.py).
MEMORY = 28 * 10**9
PURE = {"D": "16/1/1/1", "T": "1/16/1/1", "P": "1/1/16/128"}
_ = None
# Table 2: winner, and its measured speedup over pure D, T and P; None where that did not fit.
TABLE_2: dict[str, dict[int, tuple[str, float | None, float | None, float | None]]] = {
    "MLP 1B": {
        128: ("1/16/1/1", 7.5, 1.1, 21.7), 256: ("1/16/1/1", 6.3, 1.1, 21.2), 512: ("1/16/1/1", 4.1, 1.0, 12.9),
        1024: ("1/16/1/1", 2.9, 1.0, 9.5), 2048: ("2/8/1/1", 2.2, 1.2, 7.2), 4096: ("4/4/1/1", 1.7, 1.4, 5.1),
        8192: ("4/4/1/1", 1.3, 1.6, 3.6), 16384: ("8/2/1/1", 1.1, 1.9, 2.7), 32768: ("8/2/1/1", 1.0, 2.1, 2.3),
        65536: ("16/1/1/1", 1.0, _, 2.3), 131072: ("16/1/1/1", 1.0, _, 2.4), 262144: ("16/1/1/1", 1.0, _, 2.4),
    },
    "MLP 17B": {
        128: ("1/16/1/1", _, 1.1, 43.8), 256: ("1/16/1/1", _, 1.0, 35.3), 512: ("1/16/1/1", _, 1.0, 22.4),
        1024: ("1/16/1/1", _, 1.0, 15.6), 2048: ("1/16/1/1", _, 1.0, 10.0), 4096: ("2/8/1/1", _, 1.1, 6.1),
        8192: ("4/4/1/1", _, 1.2, 3.7), 16384: ("4/4/1/1", _, _, 2.4), 32768: ("2/4/2/8", _, _, 1.5),
        65536: ("4/2/2/8", _, _, 1.3), 131072: ("4/2/2/32", _, _, _),
    },
    "MLP 103B": {
        128: ("1/16/1/1", _, 1.0, 61.7), 256: ("1/16/1/1", _, 1.0, _), 512: ("1/16/1/1", _, 1.0, _),
        1024: ("1/16/1/1", _, 1.0, _),
    },
}  # fmt: skip
# Table 3: batch size and winner.
TABLE_3 = {"GPT-2 1.6B": (32768, "16/1/1/1"), "GPT-2 13B": (16384, "16/1/1/1"), "GPT-2 175B": (1024, "1/8/2/2")}


def simulated(job: tuple[str, int]) -> tuple[list[dict[str, Any]], float]:
    """All layouts of one model with microbatches of `examples` examples, for all batch sizes; and processor seconds."""
    model, examples = job
    began = time.process_time()
    gc.disable()  # programs have many small objects, and no cycles
    if model in MLP:
        by_batch = of_microbatches(mlp(*MLP[model], examples), {"x": 0, "y": 0}, machine("v100"), BATCHES)
    else:
        by_batch = of_microbatches(gpt2(*GPT2[model], examples), {"x": 0}, machine("v100"), BATCHES)
    records = [
        {
            "model": model,
            "batch": batch,
            "layout": str(result.layout),
            "seconds": result.seconds,
            "peak_bytes": result.peak_bytes,
        }
        for batch, results in by_batch.items()
        for result in results
    ]
    return records, time.process_time() - began


def rows(model: str) -> list[int]:
    """The batch sizes that DistIR's tables have for a model."""
    return [*TABLE_2[model]] if model in TABLE_2 else [TABLE_3[model][0]]


def measure(models: list[str], settings: Settings, _: float) -> Generator[Record]:
    """The layouts of the tables' rows. All 1,035 of each model are simulated; the settings keep the seconds."""
    with Pool(settings["processes"]) as pool:
        for model in progress(models, "distir"):
            began = time.monotonic()
            jobs = [(model, 1 << k) for k in range(BATCHES[-1].bit_length())]
            answers = list(pool.imap_unordered(simulated, jobs))
            simulations = [record for records, _ in answers for record in records]
            settings["seconds"][model] = time.monotonic() - began
            settings["processor"][model] = sum(seconds for _, seconds in answers)
            settings["layouts"][model] = len(simulations)
            in_tables = [record for record in simulations if record["batch"] in rows(model)]
            yield from sorted(in_tables, key=lambda record: (record["batch"], record["seconds"]))


def _cells(records: list[Record]) -> dict[tuple[str, int], dict[str, Record]]:
    cells: dict[tuple[str, int], dict[str, Record]] = {}
    for record in records:
        cells.setdefault((record["model"], record["batch"]), {})[record["layout"]] = record
    return cells


def _theirs() -> dict[tuple[str, int], str]:
    winners_2 = {(model, batch): row[0] for model, rows in TABLE_2.items() for batch, row in rows.items()}
    return winners_2 | {(model, batch): winner for model, (batch, winner) in TABLE_3.items()}


def _fitting(group: dict[str, Record], memory: int) -> list[Record]:
    fits = [record for record in group.values() if record["peak_bytes"] <= memory]
    return sorted(fits, key=lambda record: float(record["seconds"]))


def winners(records: list[Record], memory: int) -> list[list[str]]:
    """Per row of the tables: their winner, ours, the simulated time of theirs over ours, and the rank of theirs."""
    rows = []
    cells = _cells(records)
    for (model, batch), winner in _theirs().items():
        if (model, batch) not in cells:
            continue
        fits = _fitting(cells[model, batch], memory)
        places = [record["layout"] for record in fits]
        ratio, place = "does not fit", "-"
        if winner in places:
            ratio = f"{fits[places.index(winner)]['seconds'] / fits[0]['seconds']:.3f}"
            place = str(places.index(winner) + 1)
        rows.append([model, str(batch), winner, places[0] if places else "none", ratio, place])
    return rows


def figures(records: list[Record], memory: int) -> dict[str, int]:
    """Counts over the rows of Table 2: their winners that are ours, within 5% of ours, among our ten fastest; rows
    whose winner has no stages, and those where ours receives the least; cells of pure layouts, and those where both
    agree that the layout fits."""
    cells, count = _cells(records), dict.fromkeys(("rows", "same", "near", "ten", "flat", "least", "cells", "fit"), 0)
    for (model, batch), winner in _theirs().items():
        if (model, batch) not in cells or model not in TABLE_2:
            continue
        group = cells[model, batch]
        fits = _fitting(group, memory)
        best = fits[0]["seconds"] if fits else math.inf
        count["rows"] += 1
        count["same"] += bool(fits) and fits[0]["layout"] == winner
        count["near"] += any(r["layout"] == winner and r["seconds"] <= 1.05 * best for r in fits)
        count["ten"] += winner in [record["layout"] for record in fits[:10]]
        if winner.endswith("/1/1"):
            count["flat"] += 1
            count["least"] += bool(fits) and _receives_least(fits[0]["layout"], MLP[model][1], batch)
        for layout, theirs in zip(PURE.values(), TABLE_2[model][batch][1:], strict=True):
            if layout in group:
                count["cells"] += 1
                count["fit"] += (group[layout]["peak_bytes"] <= memory) == (theirs is not None)
    return count


def differing(records: list[Record], memory: int) -> list[list[str]]:
    """The rows whose winners differ: both, the simulated time of theirs over ours, and what theirs receives over ours
    where neither has stages."""
    rows = []
    for model, batch, theirs, ours, ratio, _ in winners(records, memory):
        if theirs == ours:
            continue
        received = ""
        if model in MLP and theirs.endswith("/1/1") and ours.endswith("/1/1"):
            of_theirs, of_ours = (_received(layout, MLP[model][1], int(batch)) for layout in (theirs, ours))
            received = f"{of_theirs / of_ours:.3f}"
        rows.append([model, batch, theirs, ours, ratio, received])
    return rows


def _received(layout: str, width: int, batch: int) -> int:
    """Elements that a layout without stages receives, up to a factor: gradients of replicas, activations of shards."""
    replicas, shards, *_ = map(int, layout.split("/"))
    return width * (replicas - 1) + batch * (shards - 1)


def _receives_least(layout: str, width: int, batch: int) -> bool:
    """Whether no layout without stages receives less."""
    least = min(_received(f"{d}/{16 // d}", width, batch) for d in (1, 2, 4, 8, 16))
    return layout.endswith("/1/1") and _received(layout, width, batch) == least


def speedups(records: list[Record]) -> tuple[list[float], list[float]]:
    """Speed-ups of their winners over the pure layouts, cell by cell of Table 2: measured by DistIR, and simulated."""
    cells = _cells(records)
    measured, simulations = [], []
    for model, rows in TABLE_2.items():
        for batch, (winner, *gains) in rows.items():
            group = cells.get((model, batch), {})
            for layout, gain in zip(PURE.values(), gains, strict=True):
                if isinstance(gain, float) and layout in group and winner in group:
                    measured.append(gain)
                    simulations.append(group[layout]["seconds"] / group[winner]["seconds"])
    return measured, simulations


def prepared(settings: Settings) -> Settings:
    """The settings with the machine, and tables for the seconds and layouts of each model."""
    machine_of = {"machine": "v100", "memory": MEMORY, "devices": 16, "sequence": 8}
    return {**settings, **machine_of, "seconds": {}, "processor": {}, "layouts": {}}


SUITE = Suite(
    "distir",
    measure,
    once([*MLP, *GPT2]),
    options={"processes": 2},
    problems=lambda settings: {name: name for name in settings["sets"]},
    prepared=prepared,
    identity=lambda record: str(record["model"]),
)
