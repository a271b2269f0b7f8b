"""What the report says of layouts of replicas, tensor parts, stages and microbatches."""

from __future__ import annotations

import math
from typing import Any

from bench.distir import MLP, PURE, TABLE_2, TABLE_3
from bench.markdown import table
from bench.pipelines import measured, ranked, spearman
from bench.results import Results
from bench.summary import Record

LAYERS = 4  # of the transformer; see bench/step.py

DISTIR = """## DistIR's tables, simulated

Every layout D/T/P/K of powers of two on 16 devices, for the models of DistIR's Tables 2 and 3, on the machine `v100`.
Its constants were fixed, with their sources, before any table was simulated (redistrib/simulate/constants.py), and
nothing is fitted: DistIR does not print its own. "Theirs" is the winner that DistIR measured, "ours" the fastest that
is simulated to fit in {gigabytes:g} GB, and "over ours" the simulated time of theirs over that of ours.
"""

CLUSTER = """## Pipelines on the emulated cluster

A training step of a transformer of {layers} layers, AdamW included, in every layout of four devices, one on each of
{hosts} hosts with links of {rate} in each direction. Hosts are network namespaces of one machine: their links are
their own, their two cores are not. The simulator's machine is fitted to single operations timed alone: products and
sums while all hosts compute, every kind of collective in groups of two and of four, an array sent from half of the
hosts to the others and back. Then each step is predicted before it runs. Times are medians over {rounds} steps of the
slowest host; results were compared with the step on one device. What is not told: the time that Python takes to start
programs, and how much slower hosts compute at once than in turns. So layouts of replicas, and of many small
microbatches, take longer than predicted.
"""


def parts(found: Results, picture: str) -> list[str]:
    """The parts of the page."""
    made = []
    if records := found.records("distir"):
        memory = found.settings("distir")["memory"]
        head, *rows = winners(records, memory)
        text = DISTIR.format(gigabytes=memory / 1e9)
        made += [text, table(head, rows), summary(records, memory), pace(found.settings("distir"))]
    if records := found.records("pipelines"):
        steps = [record for record in records if "times" in record]
        head, *rows = correlations(steps)
        text = CLUSTER.format(layers=LAYERS, **found.settings("pipelines"))
        made += [text, table(head, rows), picture, table(*layouts(steps))]
    return made


def _cells(records: list[Record]) -> dict[tuple[str, int], dict[str, Record]]:
    found: dict[tuple[str, int], dict[str, Record]] = {}
    for record in records:
        found.setdefault((record["model"], record["batch"]), {})[record["layout"]] = record
    return found


def _theirs() -> dict[tuple[str, int], str]:
    found = {(model, batch): row[0] for model, rows in TABLE_2.items() for batch, row in rows.items()}
    return found | {(model, batch): winner for model, (batch, winner) in TABLE_3.items()}


def _fitting(group: dict[str, Record], memory: int) -> list[Record]:
    fits = [record for record in group.values() if record["peak_bytes"] <= memory]
    return sorted(fits, key=lambda record: float(record["seconds"]))


def winners(records: list[Record], memory: int) -> list[list[str]]:
    """For every row of the tables theirs, ours, and how theirs does in ours; the head first."""
    rows = [["model", "batch", "theirs", "ours", "theirs over ours", "place of theirs among those that fit"]]
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
    """Counts over the rows of Table 2: winners that are ours, within 5%, among the ten fastest; where theirs has no
    stages, ours among those that receive the least; cells of pure layouts that fit as theirs do."""
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


def _receives_least(layout: str, width: int, batch: int) -> bool:
    """Whether no layout without stages receives less: gradients of D replicas, and activations of T parts."""
    replicas, parts, stages, _ = map(int, layout.split("/"))
    least = min(width * (d - 1) + batch * (16 // d - 1) for d in (1, 2, 4, 8, 16))
    return stages == 1 and width * (replicas - 1) + batch * (parts - 1) == least


def speedups(records: list[Record]) -> tuple[list[float], list[float]]:
    """What theirs gains over the pure layouts, as measured by DistIR and as simulated, cell by cell of Table 2."""
    cells = _cells(records)
    taken, told = [], []
    for model, rows in TABLE_2.items():
        for batch, (winner, *gains) in rows.items():
            group = cells.get((model, batch), {})
            for layout, gain in zip(PURE.values(), gains, strict=True):
                if isinstance(gain, float) and layout in group and winner in group:
                    taken.append(gain)
                    told.append(group[layout]["seconds"] / group[winner]["seconds"])
    return taken, told


def summary(records: list[Record], memory: int) -> str:
    """A paragraph of these counts, beside those of an earlier, coarser simulation."""
    n = figures(records, memory)
    taken, told = speedups(records)
    return (
        f"Of the {n['rows']} rows of Table 2 ours is theirs on {n['same']}, theirs is within 5% of ours on "
        f"{n['near']}, and among our ten fastest on {n['ten']}. On the {n['flat']} rows on which theirs has no stages, "
        f"ours is among the layouts that receive the least on {n['least']}. Of {n['cells']} cells of pure layouts "
        f"{n['fit']} fit or do not as DistIR found. A simulation of whole stages by hand, before this one, had 20 of "
        f"27 winners, 24 of 24 among those that receive the least, and 78 of 81 cells.\n\n"
        f"Over {len(taken)} cells, what DistIR's winner gains on a pure layout, simulated here, has a Spearman "
        f"correlation of {spearman(told, taken):.2f} with what DistIR measured.\n"
    )


def pace(settings: dict[str, Any]) -> str:
    """How long all layouts of a model take."""
    each = (
        f"{model} {seconds:.0f} ({settings['processor'][model]:.0f} of processor)"
        for model, seconds in settings["seconds"].items()
    )
    count = max(settings["layouts"].values(), default=0)
    return f"Seconds for {count} layouts, of all batch sizes, on {settings['processes']} cores: {', '.join(each)}.\n"


def correlations(records: list[Record]) -> list[list[str]]:
    """Spearman's correlation with what was measured, and the regret of the first choice; the head first."""
    rows = [["batch", "layouts", "simulated", "bytes alone", "batch alone", "regret of the first choice"]]
    for batch, one in ranked(records).items():
        regret = "-" if math.isnan(one["regret"]) else f"{100 * one['regret']:.0f}%"
        told = ["-" if math.isnan(one[key]) else f"{one[key]:.3f}" for key in ("ours", "bytes", "batch")]
        rows.append([batch, str(one["layouts"]), *told, regret])
    return rows


def layouts(records: list[Record]) -> tuple[list[str], list[list[str]]]:
    """Every layout: predicted and measured."""
    head = ["batch", "D/T/P/K", "predicted, ms", "measured, ms", "received, MB", "peak, MB"]

    def row(record: dict[str, Any]) -> list[str]:
        times = [f"{1e3 * seconds:.0f}" for seconds in (record["predicted"], measured(record))]
        sizes = [f"{record[key] / 1e6:.2f}" for key in ("received", "peak")]
        return [str(record["batch"]), record["layout"], *times, *sizes]

    return head, [row(record) for record in records]
