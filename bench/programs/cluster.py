"""The programs on the emulated cluster: ours and XLA's in alternating order on the same arguments.

The network is that of `bench.cluster`: four hosts with links of a limited rate. A program over 8 devices has two
devices on each host, a program over 4 devices has one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from bench.children import progress
from bench.cluster import HOSTS, jax_job
from bench.job import Job
from bench.network import Network, why_not
from bench.programs.all import cases
from bench.programs.counted import names_of_programs
from bench.results import Record
from bench.suite import Settings, Suite, once


def measure(names: list[str], settings: Settings, limit: float) -> Generator[Record]:
    """One record per program."""
    programs = cases(settings["size"])
    devices = {name: programs[name].devices for name in names}
    for name, job in jobs(devices, settings["rate"], "bench.programs.worker_cluster"):
        yield {"name": name, "mesh": dict(programs[name].mesh), **job.ask({**settings, "case": name}, limit)}


def jobs(devices: dict[str, int], rate: str, module: str) -> Iterator[tuple[str, Job]]:
    """Each program with a job on its number of devices; programs on one number of devices share the job.

    Args:
        devices: number of devices of each program.
        rate: rate of each host's link.
        module: module of the job's processes.
    """
    for count in sorted(set(devices.values())):
        with Network(HOSTS, rate) as network, jax_job(network, count // HOSTS, module) as job:
            for name in progress([name for name in devices if devices[name] == count], f"programs on {count} devices"):
                yield name, job


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
