"""What features of planning save: predicted seconds of plans with each of them and without, on hosts of several kinds.

Nothing runs. The problems are those of `bench cluster`; the devices of an arrangement are on the hosts that its letters
name. Partial sums are problems of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import redistrib as rd
from bench.library import model_of
from bench.problems import DEFAULT_SEED, MEGABYTE, in_turn
from redistrib.report import rendered

MODELS = ("cluster", "gpu", "cpu")  # links of "gpu" carry both ways at a time
HOSTS = ("aabbccdd", "aaaabbbb", "abbbcccc", "abbbbbbb", "aabbcdef", "abcdefgh")
SETS = {"U222": 30, "H222": 20, "paper": 4, "layouts": 12, "P8": 20}
LEAST = 1e-3  # the share of a plan's seconds from which they count as saved


def _unchanged(value: Any, *_: Any) -> Any:
    return value


_BALANCE = ("exchange", "relay_broadcast", "partial.sources")
FEATURES: dict[str, dict[str, Callable[..., Any]]] = {
    "senders without swaps": {"groups.without_swaps": _unchanged},
    "balance of hosts": {f"{module}.balanced_rounds": _unchanged for module in _BALANCE},
    "relay": {"best.relay_broadcast": lambda _: []},
}


@contextmanager
def without(feature: str) -> Iterator[None]:
    """Planning without a feature."""
    patches = [patch(f"redistrib.synthesis.{name}", stub) for name, stub in FEATURES[feature].items()]
    rd.clear_caches()
    try:
        for each in patches:
            each.start()
        yield
    finally:
        for each in patches:
            each.stop()
        rd.clear_caches()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--share", type=float, default=1.0, help="of the problems of each set (default: all)")


def main(options: argparse.Namespace) -> int:
    counts = {name: max(1, round(count * options.share)) for name, count in SETS.items()}
    problems = [problem.scaled(16 * MEGABYTE) for problem in in_turn(counts, DEFAULT_SEED) if problem.devices == 8]

    def seconds(model: str, hosts: str) -> list[float]:
        ends = [(each.source, each.target, each.axes) for each in problems]
        return [rd.synthesize(*each, machine=model_of(model), topology=hosts).cost for each in ends]

    rows = []
    for model in MODELS:
        for hosts in HOSTS:
            best = seconds(model, hosts)
            for feature in FEATURES:
                with without(feature):
                    pairs = list(zip(best, seconds(model, hosts), strict=True))
                saved = [1 - with_it / bare for with_it, bare in pairs if bare - with_it > LEAST * bare]
                lost = sum(with_it - bare > LEAST * bare for with_it, bare in pairs)
                most, of_all = max(saved, default=0.0), 1 - sum(best) / sum(bare for _, bare in pairs)
                rows.append([feature, model, hosts, f"{len(saved)}", f"{lost}", f"{most:.1%}", f"{of_all:.2%}"])
    columns = ("feature", "machine", "hosts", f"saves, of {len(problems)}", "loses", "saved at most", "of all seconds")
    print(rendered("", columns, sorted(rows)))
    return 0
