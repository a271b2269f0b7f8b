"""The gradients of `examples/gradients.py` on the emulated cluster: our reshard, `psum` and a slice, and XLA under jit.

The job is that of the example: gradients of all-MiniLM-L6-v2 as summands on 8 devices, two on each of four hosts, to
the shards of a fully sharded optimizer. Every result is checked, element by element, before it is timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator
from typing import Any

from bench import results
from bench.cluster import DEVICES_PER_HOST, HOSTS, jax_job
from bench.markdown import table
from bench.network import Network, why_not
from bench.results import Results
from bench.stats import paired_ratio, quantile
from bench.summary import Record

OURS = "reshard, order='fixed'"

TEXT = """### Gradients

Data-parallel gradients of all-MiniLM-L6-v2 ({layers} layers, {gradients} arrays, {megabytes:.1f} MB), as summands on
the 8 devices of the emulated cluster, straight to fully sharded ones (`examples/gradients.py`). Bytes are those that
all devices receive, over the fewest that they can; bits are compared between two orders of the devices.
"""


def measure(options: dict[str, Any], limit: float, rate: str) -> Generator[Record]:
    """One record."""
    with Network(HOSTS, rate) as network, jax_job(network, DEVICES_PER_HOST, "bench.worker_gradients") as job:
        yield job.ask(options, limit)


def verdict(records: list[Record]) -> tuple[str, bool | None]:
    """Our bytes over the bound and whether device orders change a bit, as text; and whether both are as they must."""
    done = [record for record in records if record["status"] == "ok"]
    if not done:
        return "", None
    over = max(record["received"][OURS] / record["bound"] for record in done)
    same = all(record["same"][OURS] for record in done)
    return f"{over:.2f} times the bound, {'the same bits' if same else 'other bits'}", over == 1 and same


def parts(found: Results) -> list[str]:
    """What the report says of it."""
    made = []
    for record in found.records("gradients"):
        if record["status"] == "ok":
            head, *body = rows(record)
            size = {"gradients": record["gradients"], "megabytes": record["bytes"] / 1e6}
            made += [TEXT.format(**found.settings("gradients"), **size), table(head, body)]
    return made


def rows(record: Record) -> list[list[str]]:
    """Head and rows of a table, a row for each way."""
    head = ["way", "received, MB", "over the bound", "seconds, median", "over that of the first [noise]"]
    made = [[*head, "same bits on both orders"]]
    for name, received in record["received"].items():
        taken = record["times"][name]
        over = f"{received / record['bound']:.2f}"
        ratio = str(paired_ratio(taken, record["times"][OURS])) if name != OURS else ""
        same = "yes" if record["same"][name] else "no"
        made.append([name, f"{received / 1e6:.1f}", over, f"{quantile(taken, 0.5):.2f}", ratio, same])
    return made


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more rounds")
    parser.add_argument("--layers", type=int, default=6, help="of the model")
    parser.add_argument("--time", type=int, default=16, help="tokens of a sentence")
    parser.add_argument("--seed", type=int, default=0, help="nothing is drawn; taken for the sake of the others")
    parser.add_argument("--rounds", type=int, default=None, help="calls of each way; 3, or 9 in full")
    parser.add_argument("--rate", default="500mbit", help="of each host's link, in each direction")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for all of it")
    parser.add_argument("--minutes", type=float, default=None, help="there is one record only; taken as the seed is")
    parser.add_argument("--name", default="gradients", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    reason = why_not()
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    rounds = arguments.rounds or (9 if arguments.full else 3)
    options = {"layers": arguments.layers, "time": arguments.time, "rounds": rounds}
    settings = {**options, "hosts": HOSTS, "devices_per_host": DEVICES_PER_HOST, "rate": arguments.rate}
    run = measure(options, arguments.limit, arguments.rate)
    (record,) = results.collect(arguments.name, run, settings)
    if record["status"] != "ok":
        print(f"{record['status']}: {record.get('error', record.get('log', ''))}", file=sys.stderr)
        return 1
    for row in rows(record):
        print(" | ".join(row))
    return 0
