"""DistIR's tables by simulation: which layout of D, T, P and K is best for every model and batch size.

The constants are those of the machine `v100` (redistrib/simulate/constants.py), fixed before any of these tables was
simulated. Nothing here is fitted.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Generator
from multiprocessing import Pool
from typing import Any

from bench.children import progress
from bench.results import collect
from redistrib.pipelines.grid import of_microbatches
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


def simulated(job: tuple[str, int]) -> tuple[list[dict[str, Any]], float]:
    """All layouts of one model with microbatches of so many examples, for all batch sizes, and processor seconds."""
    model, examples = job
    began = time.process_time()
    gc.disable()  # programs have no cycles, and many small parts
    if model in MLP:
        found = of_microbatches(mlp(*MLP[model], examples), {"x": 0, "y": 0}, machine("v100"), BATCHES)
    else:
        found = of_microbatches(gpt2(*GPT2[model], examples), {"x": 0}, machine("v100"), BATCHES)
    records = [
        {
            "model": model,
            "batch": batch,
            "layout": str(one.layout),
            "seconds": one.seconds,
            "peak_bytes": one.peak_bytes,
        }
        for batch, several in found.items()
        for one in several
    ]
    return records, time.process_time() - began


def rows(model: str) -> list[int]:
    """The batch sizes that DistIR's tables have for a model."""
    return [*TABLE_2[model]] if model in TABLE_2 else [TABLE_3[model][0]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--models", nargs="*", help="only these")
    parser.add_argument("--full", action="store_true", help="all layouts are simulated either way")
    parser.add_argument("--seed", type=int, default=0, help="not used")
    parser.add_argument("--minutes", type=float, default=None, help="take no new layout after this time")


def _records(options: argparse.Namespace, settings: dict[str, Any]) -> Generator[dict[str, Any]]:
    """The layouts of the tables' rows; all 1035 of each model are simulated, and how long that takes is a setting."""
    with Pool(options.processes) as pool:
        for model in progress([*MLP, *GPT2], "distir"):
            if options.models and model not in options.models:
                continue
            began = time.monotonic()
            jobs = [(model, 1 << k) for k in range(BATCHES[-1].bit_length())]
            answers = list(pool.imap_unordered(simulated, jobs))
            found = [record for records, _ in answers for record in records]
            settings["seconds"][model] = time.monotonic() - began
            settings["processor"][model] = sum(seconds for _, seconds in answers)
            settings["layouts"][model] = len(found)
            found = [record for record in found if record["batch"] in rows(model)]
            yield from sorted(found, key=lambda record: (record["batch"], record["seconds"]))


def main(options: argparse.Namespace) -> int:
    settings: dict[str, Any] = {"machine": "v100", "memory": V100_MEMORY, "devices": 16, "sequence": 8}
    settings |= {"processes": options.processes, "seconds": {}, "processor": {}, "layouts": {}}
    records = collect("distir", _records(options, settings), settings, options.minutes)
    for model, seconds in settings["seconds"].items():
        used = f"{settings['processor'][model]:.0f} s of processor"
        print(f"{model}: {settings['layouts'][model]} layouts in {seconds:.0f} s on {options.processes} cores, {used}")
    print(f"{len(records)} layouts of the tables' rows")
    return 0
