"""Trainers on two hosts to samplers on two others: ours, plans of one exchange, through the host, and JAX's sockets.

Arrays move from the four devices of two hosts of the emulated cluster to the four of the other two. The methods:
`rd.reshard` with the cluster's profile; `rd.reshard` restricted to plans of one exchange, in which every device pulls
its missing elements; a gather on a trainer's host, a send to the samplers' hosts and a put there; and, where every
target tile is a source tile, `jax.device_put` over JAX's sockets. Every element of each result is checked first.
"""

from __future__ import annotations

from collections.abc import Generator

from bench.children import progress
from bench.cluster import DEVICES_PER_HOST, HOSTS, jax_job
from bench.network import Network, why_not
from bench.problems import MEGABYTE
from bench.results import Record
from bench.stats import Interval, paired_ratio
from bench.suite import Settings, Suite, cases, once
from bench.summary import OURS

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


def side_of(megabytes: float) -> int:
    """The side of a square array of about this size, divisible by the devices of every case."""
    return max(24, int((megabytes * MEGABYTE / 4) ** 0.5) // 24 * 24)


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """One record per case."""
    two, four = ([name for name in names if (name in FOUR_A_HOST) == wide] for wide in (False, True))
    for some, devices in ((two, DEVICES_PER_HOST), (four, 4)):
        with Network(HOSTS, settings["rate"]) as network, jax_job(network, devices, "bench.worker_sets") as job:
            for name in progress(some, f"device sets, {devices} devices a host"):
                record = {"case": name, **job.ask({**settings, "case": name, "ways": [OURS, DIRECT, HOST]}, limit)}
                if name in SAME_TILES:  # a task apart, since a failure of JAX's transfers ends its job
                    record[SOCKETS] = job.ask({**settings, "case": name, "ways": [OURS, SOCKETS]}, limit)
                yield record


def times_faster(record: Record, way: str) -> Interval | None:
    """The time of a method over ours; None where it did not run."""
    times = record.get(SOCKETS, {}).get("times", {}) if way == SOCKETS else record.get("times", {})
    return paired_ratio(times[way], times[OURS]) if way in times and OURS in times else None


SUITE = Suite(
    "sets",
    measure,
    once(CASES),
    options={"rounds": 5, "megabytes": 16.0, "rate": "500mbit", "cost_model": "cluster"},
    more={"rounds": 15},
    problems=cases({name: name for name in CASES}),
    prepared=lambda settings: {**settings, "hosts": HOSTS, "side": side_of(settings["megabytes"])},
    missing=lambda _: why_not(),
    limit=240.0,
)
