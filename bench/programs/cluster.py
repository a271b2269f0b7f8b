"""The programs on the emulated cluster: ours and XLA's in alternating order on the same arguments.

The network is that of `bench.cluster`: four hosts with links of a limited rate. A program over 8 devices has two
devices on each host, a program over 4 devices has one.
"""

from __future__ import annotations

from collections.abc import Generator

from bench.children import progress
from bench.cluster import HOSTS, jax_job
from bench.network import Network, why_not
from bench.programs.all import cases
from bench.programs.counted import names_of_programs
from bench.results import Record
from bench.suite import Settings, Suite, once


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program."""
    known = cases(settings["size"])
    for devices in sorted({known[name].devices for name in names}):
        chosen = [name for name in names if known[name].devices == devices]
        with (
            Network(HOSTS, settings["rate"]) as network,
            jax_job(network, devices // HOSTS, "bench.programs.worker_cluster") as job,
        ):
            for name in progress(chosen, f"programs on {devices} devices"):
                yield {"name": name, "mesh": dict(known[name].mesh), **job.ask({**settings, "case": name}, limit)}


SUITE = Suite(
    "programs_cluster",
    measure,
    once(cases()),
    options={"size": "medium", "rounds": 9, "rate": "500mbit", "cost_model": "cluster"},
    more={"rounds": 25},
    problems=names_of_programs,
    prepared=lambda settings: {**settings, "hosts": HOSTS},
    missing=lambda _: why_not(),
    limit=300.0,
)
