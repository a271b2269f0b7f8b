"""Trainers on two hosts, samplers on two others: ours, every device pulling for itself, the host, and JAX's sockets.

Arrays go from the four devices of two hosts of the emulated cluster to the four of the other two. Ways: `rd.reshard`
with the cluster's profile; the same held to plans of one exchange, in which every device pulls what it lacks; what is
done without it: gathered on a trainer's host, sent to the samplers' hosts, put there; and, where every target tile is
some source tile, `jax.device_put` over JAX's own sockets. Every result is checked, element by element, before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from typing import Any

from bench import results
from bench.children import progress
from bench.cluster import DEVICES_PER_HOST, HOSTS, jax_job
from bench.markdown import table
from bench.network import Network, why_not
from bench.problems import MEGABYTE
from bench.results import Results
from bench.stats import Interval, paired_ratio, quantile
from bench.summary import OURS, Record

DIRECT, HOST, SOCKETS = "direct pull", "through the host", "JAX's sockets"

# Devices, mesh, and the mesh axis that cuts each dimension, of the source and of the target.
Side = tuple[list[int], list[int], list[str | None]]
TRAINERS, SAMPLERS, ALL, SIX = [0, 1, 2, 3], [4, 5, 6, 7], list(range(8)), list(range(6))
ROWS, COLUMNS, WHOLE = ["x", None], [None, "x"], [None, None]
CASES: dict[str, tuple[Side, Side]] = {
    "rows to columns": ((TRAINERS, [4], ROWS), (SAMPLERS, [4], COLUMNS)),
    "rows to replicated": ((TRAINERS, [4], ROWS), (SAMPLERS, [4], WHOLE)),
    "rows to half replicated": ((TRAINERS, [4], ROWS), (SAMPLERS, [2, 2], ROWS)),
    "replicated to rows": ((TRAINERS, [4], WHOLE), (SAMPLERS, [4], ROWS)),
    "rows to rows": ((TRAINERS, [4], ROWS), (SAMPLERS, [4], ROWS)),
    "replicated to replicated": ((TRAINERS, [4], WHOLE), (SAMPLERS, [4], WHOLE)),
    "four to eight": ((TRAINERS, [4], ROWS), (ALL, [8], ROWS)),
    "eight to six": ((ALL, [8], ROWS), (SIX, [6], ROWS)),
    "eight to six, columns": ((ALL, [8], ROWS), (SIX, [6], COLUMNS)),
    "overlapping": ((TRAINERS, [4], ROWS), ([2, 3, 4, 5], [4], COLUMNS)),
    "every other two": (([0, 1, 4, 5], [4], ROWS), ([2, 3, 6, 7], [4], COLUMNS)),
    "rows to replicated, four devices a host": ((list(range(8)), [8], ROWS), (list(range(8, 16)), [8], WHOLE)),
}
FOUR_A_HOST = ("rows to replicated, four devices a host",)
SAME_TILES = ("rows to rows", "replicated to replicated")

TEXT = """### Other devices

Arrays of {megabytes:g} MB from trainers on two hosts of the emulated cluster ({rate}, two devices each) to samplers on
the other two, and between overlapping sets. `direct pull`: plans of one exchange alone. `through the host`: gathered on
the source's hosts, sent by sockets to those that have none of it, put. `JAX's sockets`: `jax.device_put` between
processes, which takes tiles as they are only. Ratios are of paired times, above 1 where ours is faster. Where both
devices of a host are to hold the whole array, its link takes in the array once at least, and twice where each device
pulls for itself: there bytes allow 2x over the direct pull, and no more; with four devices a host, 4x.
"""


def measure(names: list[str], options: dict[str, Any], limit: float, rate: str) -> Generator[Record]:
    """One record per case."""
    two, four = ([name for name in names if (name in FOUR_A_HOST) == wide] for wide in (False, True))
    for some, devices in ((two, DEVICES_PER_HOST), (four, 4)):
        with Network(HOSTS, rate) as network, jax_job(network, devices, "bench.worker_sets") as job:
            for name in progress(some, f"device sets, {devices} devices a host"):
                record = {"case": name, **job.ask({**options, "case": name, "ways": [OURS, DIRECT, HOST]}, limit)}
                if name in SAME_TILES:  # apart: where JAX's transfers fail, the others are kept
                    record[SOCKETS] = job.ask({**options, "case": name, "ways": [OURS, SOCKETS]}, limit)
                yield record


def times_faster(record: Record, way: str) -> Interval | None:
    """How many times as fast ours is; None where the way did not run."""
    times = record.get(SOCKETS, {}).get("times", {}) if way == SOCKETS else record.get("times", {})
    return paired_ratio(times[way], times[OURS]) if way in times and OURS in times else None


def goals(records: list[Record]) -> list[tuple[str, str, bool | None]]:
    """Goal, what was measured, and whether it holds; None where it was not measured."""
    by_case = {record["case"]: record for record in records if record["status"] == "ok" and "wrong" not in record}

    def ratio(case: str, way: str) -> float | None:
        found = times_faster(by_case[case], way) if case in by_case else None
        return None if found is None else found.value

    pulled = {2: ratio("rows to replicated", DIRECT), 4: ratio(FOUR_A_HOST[0], DIRECT)}
    sockets = [found for case in SAME_TILES if (found := ratio(case, SOCKETS)) is not None]
    host = {case: found for case in CASES if (found := ratio(case, HOST)) is not None}
    slowest = min(host, key=lambda case: host[case], default="")
    return [
        *(
            (
                f"other devices, rows to replicated, {many} devices a host: at least 2x the direct pull",
                "" if found is None else f"{found:.2f}x, of {many} that bytes allow",
                None if found is None else found >= 2,
            )
            for many, found in pulled.items()
        ),
        (
            "other devices, same tiles: within 1.5x of JAX's own sockets",
            f"{max(1 / found for found in sockets):.2f}x" if sockets else "",
            all(found >= 1 / 1.5 for found in sockets) if len(sockets) == len(SAME_TILES) else None,
        ),
        (
            "other devices, every case: at least as fast as through the host",
            f"{host[slowest]:.2f}x at least ({slowest}), of {len(host)} cases" if host else "",
            all(found >= 1 for found in host.values()) if len(host) == len(CASES) else None,
        ),
    ]


def rows(records: list[Record]) -> list[list[str]]:
    """Head and rows of a table, a row for each case."""
    ways = (DIRECT, HOST, SOCKETS)
    made = [["case", "steps", "crossing, over its bound", "ours, ms", *[f"over {way} [noise]" for way in ways]]]
    for record in records:
        if record["status"] != "ok" or "times" not in record:
            made.append([record["case"], record.get("error", record["status"]), "", "", *[""] * len(ways)])
            continue
        plan, found = record["plan"], [times_faster(record, way) for way in ways]
        crossing = f"{plan['crossing'] / plan['crossing_bound']:.2f}" if plan["crossing_bound"] else ""
        taken = f"{1e3 * quantile(record['times'][OURS], 0.5):.0f}"
        wrong = " (wrong)" if "wrong" in record else ""
        made.append(
            [
                record["case"] + wrong,
                " + ".join(plan["steps"]),
                crossing,
                taken,
                *[_why_not(record, way) if f is None else str(f) for f, way in zip(found, ways, strict=True)],
            ]
        )
    return made


def _why_not(record: Record, way: str) -> str:
    """Why a way has no times: what JAX said, where its transfers failed."""
    tried = record.get(SOCKETS) if way == SOCKETS else None
    if tried is None:
        return ""
    return f"{tried['status']}: {tried.get('error') or tried.get('log') or 'nothing said'}"


def parts(found: Results) -> list[str]:
    """What the report says of it."""
    records = found.records("sets")
    if not records:
        return []
    head, *body = rows(records)
    return [TEXT.format(**found.settings("sets")), table(head, body)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more rounds")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="some of the cases")
    parser.add_argument("--seed", type=int, default=0, help="nothing is drawn; taken for the sake of the others")
    parser.add_argument("--rounds", type=int, default=None, help="paired measurements of a case; 5, or 15 in full")
    parser.add_argument("--megabytes", type=float, default=16.0, help="of every array")
    parser.add_argument("--rate", default="500mbit", help="of each host's link, in each direction")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds per case")
    parser.add_argument("--cost-model", default="cluster", help="cost model, or profile in bench/profiles, for ours")
    parser.add_argument("--minutes", type=float, default=None, help="take no new case after this time")
    parser.add_argument("--name", default="sets", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    side = int((arguments.megabytes * MEGABYTE / 4) ** 0.5) // 24 * 24  # every number of devices divides it
    options = {
        "side": max(24, side),
        "rounds": arguments.rounds or (15 if arguments.full else 5),
        "cost_model": arguments.cost_model,
    }
    settings = {**options, "megabytes": arguments.megabytes, "hosts": HOSTS, "rate": arguments.rate}
    run = measure(arguments.cases, options, arguments.limit, arguments.rate)
    records = results.collect(arguments.name, run, settings, arguments.minutes)
    for row in rows(records):
        print(" | ".join(row))
    for goal, measured, met in goals(records):
        print(f"{goal}: {measured or 'not measured'}{'' if met is None else ', ' + ('yes' if met else 'no')}")
    return 0 if all(record["status"] == "ok" and "wrong" not in record for record in records) else 1
