"""The busiest link of a TPU slice: ours and XLA's own reshard, compiled for slices that are not attached.

Both programs are read back and routed by one rule (`bench.links`), with what ours is where nothing is known of the
slice beside them.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Generator
from dataclasses import dataclass

from bench import results
from bench.children import Child, progress
from bench.markdown import table
from bench.problems import DEFAULT_SEED, problem_set
from bench.stats import geomean
from bench.summary import OURS, XLA, Record
from bench.tpu import ENVIRONMENT

FLAT = "flat"  # ours, planned for links that are all alike


@dataclass(frozen=True)
class Slice:
    """Problems for one slice.

    Attributes:
        topology: as `get_topology_desc` takes it.
        set: a problem set of as many devices.
        count, full: how many problems.
    """

    topology: str
    set: str
    count: int
    full: int


SLICES = (Slice("v5e:4x4", "U44", 20, 60), Slice("v5p:4x4x4", "U444", 12, 60))


def measure(counts: dict[Slice, int], seed: int, limit: float) -> Generator[Record]:
    """One record per problem and slice."""
    drawn = [(slice_, problem) for slice_, n in counts.items() for problem in problem_set(slice_.set, seed, n)]
    with Child("bench.worker_tpu", ENVIRONMENT) as child:
        for slice_, problem in progress(drawn, "busiest links"):
            record = {"topology": slice_.topology, **problem.record()}
            for side, other in ((OURS, XLA), (FLAT, XLA), (XLA, OURS)):
                task = {"topology": slice_.topology, "problem": problem.to_json(), "skip": [other], "cost_model": "tpu"}
                answer = child.ask({**task, "links": True, "flat": side == FLAT}, limit)
                record[side] = answer.get("links") or {"fate": answer["status"], "log": str(answer)[:400]}
            yield record


def ratios(records: list[Record], side: str = OURS, figure: str = "in_turn") -> list[float]:
    """Our busiest link over XLA's, of the problems that both compile."""
    both = [r for r in records if figure in r[side] and figure in r[XLA]]
    return [r[side][figure] / r[XLA][figure] for r in both if r[XLA][figure]]


def goals(records: list[Record]) -> list[tuple[str, str, bool | None]]:
    """Goal, what was measured, and whether it holds, for each slice."""
    rows: list[tuple[str, str, bool | None]] = []
    for each in SLICES:
        goal = f"TPU {each.topology}, {each.set}: the busiest link at most 0.8x XLA's in geomean, never above 1.1x"
        chosen = [r for r in records if r["topology"] == each.topology]
        found = {figure: ratios(chosen, OURS, figure) for figure in ("in_turn", "whole")}
        if not found["in_turn"]:
            rows.append((goal, "", None))
            continue
        measured = "; ".join(
            f"{what} {geomean(found[figure]):.2f}, at most {max(found[figure]):.2f}"
            for figure, what in (("in_turn", "collectives in turn:"), ("whole", "all together:"))
        )
        met = all(geomean(values) <= 0.8 and max(values) <= 1.1 for values in found.values())
        rows.append((goal, f"{measured}, over {len(found['in_turn'])} problems", met))
    return rows


def parts(found: results.Results) -> list[str]:
    """The section of the report."""
    records = found.records("tori")
    if not records:
        return []
    rows = []
    for each in SLICES:
        chosen = [r for r in records if r["topology"] == each.topology]
        for side, name in ((OURS, "ours"), (FLAT, "ours, links alike")):
            for figure, what in (("in_turn", "in turn"), ("whole", "all together")):
                values = ratios(chosen, side, figure)
                if values:
                    counts = [sum(value < 0.99 for value in values), sum(value > 1.01 for value in values), len(values)]
                    figures = [f"{geomean(values):.3f}", f"{min(values):.2f}", f"{max(values):.2f}"]
                    rows.append([each.topology, each.set, name, what, *figures, *map(str, counts)])
    head = ["slice", "set", "plans", "collectives", "geomean", "least", "most", "below XLA's", "above", "of"]
    return [TEXT.format(**found.settings("tori")), table(head, rows)]


TEXT = """### The busiest link

Bytes over the busiest link of a slice, ours over XLA's, read off both compiled programs and routed by one rule
([costs.md](costs.md)): messages along all orders of the dimensions, gathers and sums along trees of these. "In turn"
adds up the busiest link of each collective, which is the time they take one after the other; "all together" is the
link that carries most in the whole program. Meshes are those of `jax.make_mesh`, whose axes go along the slice's;
v5e 4x4 has no rings, v5p 4x4x4 three. "Links alike" are plans made without knowing the slice. Each program had
{limit_s:g} s to compile. Where every device holds a tile of its own and one axis moves, a line of four has no better
way than one all-to-all or one gather, and both sides take it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="all problems instead of the first ones")
    parser.add_argument("--count", type=int, default=None, help="problems of each slice")
    parser.add_argument("--only", default=None, help="one slice, such as v5e:4x4")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each program")
    parser.add_argument("--minutes", type=float, default=15.0, help="take no new problem after this time")
    parser.add_argument("--name", default="tori", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("libtpu") is None:
        print("skipped: the TPU compiler needs libtpu: pip install libtpu", file=sys.stderr)
        return 3
    counts = {
        each: arguments.count or (each.full if arguments.full else each.count)
        for each in SLICES
        if arguments.only in (None, each.topology)
    }
    settings = {
        "seed": arguments.seed,
        "limit_s": arguments.limit,
        "slices": [[each.topology, each.set, count] for each, count in counts.items()],
    }
    run = measure(counts, arguments.seed, arguments.limit)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    for topology in dict.fromkeys(r["topology"] for r in records):
        chosen = [r for r in records if r["topology"] == topology]
        for side in (OURS, FLAT):
            for figure in ("in_turn", "whole"):
                found = ratios(chosen, side, figure)
                if found:
                    print(
                        f"{topology:10} {side:5} {figure:8} over XLA's: geomean {geomean(found):.3f}, "
                        f"most {max(found):.3f}, of {len(found)}"
                    )
    return 0
