"""Planning time and plan quality against devices, rank and number of primes, ours and DTensor's.

Nothing runs here, so arrays may be of any size: dimensions are one to three times the tile counts.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

from bench import results
from bench.children import Child, progress
from bench.dtensor import PLANNERS, torch_version
from bench.problems import DEFAULT_SEED, Problem, draw
from bench.stats import geomean, quantile

ALGORITHMS = ("best", "latency", "paper")


@dataclass(frozen=True)
class Series:
    """A family of problems along one quantity.

    Attributes:
        name: key in the results.
        label: of the quantity, on the axis of the plot.
        points: the quantity's values.
        mesh, ranks: the mesh and the range of ranks at a point.
    """

    name: str
    label: str
    points: tuple[int, ...]
    mesh: Callable[[int], tuple[int, ...]]
    ranks: Callable[[int], tuple[int, int]]

    def problems(self, point: int, seed: int, count: int) -> Iterator[Problem]:
        rng = random.Random(f"{seed}/{self.name}/{point}")
        for i in range(count):
            yield draw(
                rng, f"{self.name}{point}/{i}", self.mesh(point), "U", small_dimensions=True, ranks=self.ranks(point)
            )


def three_axes(devices: int) -> tuple[int, ...]:
    """A mesh of three powers of two, as even as can be."""
    bits = devices.bit_length() - 1
    return tuple(2 ** (bits // 3 + (k < bits % 3)) for k in range(3))


SERIES = (
    Series(
        "devices",
        "devices (three mesh axes, rank 2 to 4)",
        tuple(2**k for k in range(3, 17)),
        three_axes,
        lambda _: (2, 4),
    ),
    Series("rank", "rank of the array (mesh 4 x 4 x 4)", (1, 2, 3, 4, 5, 6), lambda _: (4, 4, 4), lambda r: (r, r)),
    Series("primes", "mesh axes of size two (rank 4)", tuple(range(2, 13)), lambda k: (2,) * k, lambda _: (4, 4)),
)


@dataclass
class System:
    """A planner under test: a child and how to ask it.

    Attributes:
        names: the planners it has, as keys of its answers.
        hopeless: per series, planners that passed the limit on most problems of a point and are asked no more.
    """

    names: tuple[str, ...]
    child: Child
    key: str
    hopeless: set[tuple[str, str]]

    def ask(self, series: str, problem: Problem, limit: float) -> dict[str, Any]:
        """Seconds and quality by planner; each has its own time limit."""
        found = {}
        for name in self.names:
            if (series, name) in self.hopeless:
                continue
            answer = self.child.ask({"problem": problem.to_json(), self.key: [name]}, limit)
            found[name] = answer.get(name, {"fate": answer["status"], "log": answer.get("error", "")})
        return found


def _in_turn() -> list[tuple[Series, int]]:
    """The points of all series, taking turns, so that a bench cut short has seen something of all."""
    longest = max(len(s.points) for s in SERIES)
    return [(s, s.points[i]) for i in range(longest) for s in SERIES if i < len(s.points)]


def measure(seed: int, count: int, limit: float, python: str | None) -> Generator[dict[str, Any]]:
    """One record per problem with every planner's seconds; a planner that no longer ends drops out of a series."""
    systems = [System(ALGORITHMS, Child("bench.worker_plan", {}), "algorithms", set())]
    if python:
        child = Child("bench.worker_dtensor", {"CUDA_VISIBLE_DEVICES": ""}, python)
        systems.append(System(PLANNERS, child, "planners", set()))
    try:
        for series, point in progress(_in_turn(), "scaling"):
            here = []
            for problem in series.problems(point, seed, count):
                record = {"series": series.name, "point": point, **problem.record()}
                for system in systems:
                    record.update(system.ask(series.name, problem, limit))
                here.append(record)
            for system in systems:
                for name in system.names:
                    ended = sum("plan_s" in r.get(name, {}) for r in here)
                    if ended * 2 < len(here):
                        system.hopeless.add((series.name, name))
            yield from here
    finally:
        for system in systems:
            system.child.stop()


def print_scaling(records: list[dict[str, Any]]) -> None:
    """A line per series and point on standard output."""
    names = [n for n in (*ALGORITHMS, *PLANNERS) if any(n in r for r in records)]
    for series in SERIES:
        print(f"{series.label}: seconds median / worst, bytes over bound (unfinished)")
        for point in series.points:
            here = [r for r in records if r["series"] == series.name and r["point"] == point]
            cells = []
            for name in names:
                done = [r for r in here if "plan_s" in r.get(name, {})]
                seconds = [r[name]["plan_s"] for r in done]
                ratio = geomean([r[name]["received"] / r["bound"] for r in done])
                cells.append(
                    f"{name} {quantile(seconds, 0.5):8.3f} {max(seconds, default=0):8.3f} {ratio:6.2f}"
                    f" ({sum(name in r for r in here) - len(done)})"
                )
            print(f"{point:6d}  " + "   ".join(cells))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more problems per point and a longer limit")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--count", type=int, default=None, help="problems per point")
    parser.add_argument("--limit", type=float, default=None, help="seconds for one plan")
    parser.add_argument(
        "--python", default=os.environ.get("BENCH_TORCH_PYTHON", sys.executable), help="interpreter that has torch"
    )
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--name", default="scaling", help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    count = arguments.count or (10 if arguments.full else 3)
    limit = arguments.limit or (60.0 if arguments.full else 10.0)
    version = torch_version(arguments.python)
    if version is None:
        print(f"DTensor skipped: {arguments.python} has no PyTorch", file=sys.stderr)
    settings = {"seed": arguments.seed, "count": count, "limit_s": limit, "torch": version}
    run = measure(arguments.seed, count, limit, arguments.python if version else None)
    print_scaling(results.collect(arguments.name, run, settings, arguments.minutes))
    return 0
