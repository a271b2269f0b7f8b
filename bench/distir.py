"""DistIR's tables by simulation: which layout of D, T, P and K is best for every model and batch size.

The constants are those of the machine `v100` (redistrib/simulate/constants.py), fixed before any of these tables was
simulated. Nothing here is fitted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Generator
from multiprocessing import Pool
from typing import Any

from bench.results import collect
from redistrib.pipelines.grid import grid
from redistrib.pipelines.models import gpt2, mlp
from redistrib.simulate.constants import V100_MEMORY, machine

# Table 1: layers and width.
MLP = {"MLP 1B": (16, 8192), "MLP 17B": (64, 16384), "MLP 103B": (96, 32768)}
GPT2 = {"GPT-2 1.6B": (24, 2048), "GPT-2 13B": (40, 5120), "GPT-2 175B": (96, 12288)}
BATCHES = [1 << k for k in range(7, 21)]
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


def simulated(job: tuple[str, int]) -> list[dict[str, Any]]:
    """All layouts of one model and batch size."""
    model, examples = job
    began = time.process_time()
    if model in MLP:
        found = grid(mlp(*MLP[model], examples), {"x": 0, "y": 0}, machine("v100"))
    else:
        found = grid(gpt2(*GPT2[model], examples), {"x": 0}, machine("v100"))
    spent = time.process_time() - began
    return [
        {
            "model": model,
            "batch": examples,
            "layout": str(one.layout),
            "seconds": one.seconds,
            "peak_bytes": one.peak_bytes,
            "cpu_seconds": spent / len(found),
        }
        for one in found
    ]


def jobs(full: bool) -> list[tuple[str, int]]:
    """Every model with the batch sizes that DistIR's tables have, or with all, the largest models first."""
    found = [(model, examples) for model, rows in TABLE_2.items() for examples in rows]
    found += [(model, examples) for model in GPT2 for examples in (BATCHES if full else [TABLE_3[model][0]])]
    return sorted(found, key=lambda job: -{**MLP, **GPT2}[job[0]][0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--models", nargs="*", help="only these")
    parser.add_argument("--full", action="store_true", help="all batch sizes of inference, 1035 layouts of each model")
    parser.add_argument("--seed", type=int, default=0, help="not used")
    parser.add_argument("--minutes", type=float, default=None, help="take no new layout after this time")


def _records(options: argparse.Namespace) -> Generator[dict[str, Any]]:
    wanted = [job for job in jobs(options.full) if not options.models or job[0] in options.models]
    with Pool(options.processes) as pool:
        for records in pool.imap(simulated, wanted):
            yield from records


def main(options: argparse.Namespace) -> int:
    settings = {"machine": "v100", "memory": V100_MEMORY, "devices": 16, "sequence": 8}
    records = collect("distir", _records(options), settings, options.minutes)
    print(f"{len(records)} layouts")
    return 0
