"""A training step of a small transformer in stages on four emulated hosts: how long it takes, and what was predicted.

The machine that the simulator is given is fitted to single operations timed alone: products and sums on a device,
collectives, an array sent from host to host. No step is timed before its time is predicted. Needs root and iproute2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from typing import Any

import numpy as np

from bench import results
from bench.children import progress
from bench.fitted import FittedLinks
from bench.job import Job
from bench.network import Network, why_not
from redistrib.pipelines.grid import layouts
from redistrib.simulate.fit import OperationSample, fit_rates

HOSTS = 4
BURST = "4kb"  # far below what a microbatch sends, or links that have rested send it at once
TILES = [4 << 10, 64 << 10, 512 << 10]  # bytes
BATCHES, SAMPLE_BATCHES = [8, 16, 32], [16]
MOST_MICROBATCHES, SAMPLE_MICROBATCHES = 8, 2


def fitted(answer: dict[str, Any]) -> dict[str, Any]:
    """Rates and links from timed operations, as the worker takes them.

    What is sent from stage to stage is an allpermute of two.
    """
    rates = fit_rates([OperationSample(**one) for one in answer["operations"]])
    collectives = [{**one, "bytes": one["received"]} for one in answer["collectives"] if one["kind"] != "allpermute"]
    sends = [{**one, "kind": "allpermute", "members": 2} for one in answer["sends"]]
    links = FittedLinks.of([*answer["reductions"], *collectives, *sends])
    figures = {"launch": rates.launch, "bandwidth": rates.bandwidth, "flops": rates.flops, "form": rates.form}
    return {"rates": figures, "links": links.timed}


def measure(options: argparse.Namespace, settings: dict[str, Any]) -> Generator[dict[str, Any]]:
    """One record for each layout of each batch size; the fitted machine goes into the settings."""
    batches = options.batches or (BATCHES if options.full else SAMPLE_BATCHES)
    most = MOST_MICROBATCHES if options.full else SAMPLE_MICROBATCHES
    cases = [(batch, one) for batch in batches for one in layouts(HOSTS, batch, most)]
    if options.layouts:
        cases = [(batch, one) for batch, one in cases if str(one) in options.layouts]
    environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "BENCH_CLUSTER_DEVICES": "1"}
    with Network(HOSTS, options.rate, BURST) as network, Job(network, "bench.worker_pipelines", environment) as job:
        answer = job.ask({"task": "calibrate", "tiles": TILES}, options.limit)
        if answer["status"] != "ok":
            raise RuntimeError(f"calibration: {answer}")
        machine = settings["machine"] = fitted(answer)
        settings["timed"] = {key: answer[key] for key in ("operations", "collectives", "reductions", "sends")}
        for batch, one in progress(cases, "pipelines"):
            layout = [one.data, one.tensor, one.pipeline, one.microbatches]
            task = {"task": "layout", "layout": layout, "batch": batch, "rounds": options.rounds, "links": "cpu"}
            yield {"batch": batch, "layout": str(one), **job.ask({**task, "machine": machine}, options.limit)}


def spearman(one: list[float], other: list[float]) -> float:
    """The correlation of two orders; equal values share their places."""

    def places(values: list[float]) -> Any:
        each = np.array(values)
        return np.array([(each < value).sum() + ((each == value).sum() - 1) / 2 for value in each])

    a, b = places(one), places(other)
    if a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def measured(record: dict[str, Any]) -> float:
    """Seconds of a step: the median over rounds of the slowest host."""
    return float(np.median(record["times"]["step"]))


def ranked(records: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For every batch size, and for all together, how well the order is told, and the regret of the first choice."""
    fine = [record for record in records if "times" in record]
    groups = {str(batch): [r for r in fine if r["batch"] == batch] for batch in dict.fromkeys(r["batch"] for r in fine)}
    groups = {**groups, **({"all": fine} if len(groups) > 1 else {})}
    found = {}
    for name, group in groups.items():
        taken = [measured(record) for record in group]
        ours = [record["predicted"] for record in group]
        found[name] = {
            "layouts": len(group),
            "ours": spearman(ours, taken),
            "bytes": spearman([record["received"] for record in group], taken),
            "batch": spearman([record["batch"] for record in group], taken),
            "regret": taken[int(np.argmin(ours))] / min(taken) - 1 if name != "all" else float("nan"),
        }
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more batch sizes and microbatches")
    parser.add_argument("--seed", type=int, default=0, help="not used")
    parser.add_argument("--batches", type=int, nargs="*", help="only these batch sizes")
    parser.add_argument("--layouts", nargs="*", help="only these layouts, such as 2/1/2/2")
    parser.add_argument("--name", default="pipelines", help="name of the results file")
    parser.add_argument("--rounds", type=int, default=7, help="timed steps of a layout")
    parser.add_argument("--rate", default="100mbit", help="of each host's link, in each direction")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds per layout")
    parser.add_argument("--minutes", type=float, default=None, help="take no new layout after this time")


def main(options: argparse.Namespace) -> int:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    settings: dict[str, Any] = {"hosts": HOSTS, "rate": options.rate, "rounds": options.rounds}
    records = results.collect(options.name, measure(options, settings), settings, options.minutes)
    for name, figures in ranked(records).items():
        print(f"batch {name}: " + ", ".join(f"{key} {value:.3g}" for key, value in figures.items()))
    return 0
