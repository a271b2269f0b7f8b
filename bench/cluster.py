"""Ours against XLA's reshard on an emulated cluster: four hosts whose links have a limited rate.

Each host is a network namespace with one JAX process and two virtual CPU devices. Between hosts every byte passes a
token bucket of 500 Mbit/s in each direction, so the time of a move depends on its bytes as on a real network. XLA runs
its collectives for distributed CPU programs (gloo). Needs root and iproute2.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator

from bench.children import Child, progress
from bench.job import Job
from bench.network import Network, why_not
from bench.problems import MEGABYTE, Problem
from bench.results import Record
from bench.suite import Settings, Suite, drawn

HOSTS = 4
DEVICES_PER_HOST = 2
CONSECUTIVE = tuple(device // DEVICES_PER_HOST for device in range(HOSTS * DEVICES_PER_HOST))
STREAM = 16 * MEGABYTE  # bytes that each host sends when the rate of a stream is measured
SAMPLE = {"U222": 16, "H222": 8, "paper": 4, "layouts": 12}
FULL = {"U222": 120, "H222": 80, "paper": 4, "layouts": 12}


def jax_job(network: Network, devices: int = DEVICES_PER_HOST, module: str = "bench.worker_cluster") -> Job:
    """The `jax.distributed` job: one process per host, with `devices` devices each."""
    environment = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2", "BENCH_CLUSTER_DEVICES": str(devices)}
    return Job(network, module, environment)


def records(
    ranks: Job | Child, problems: list[Problem], options: Settings, limit: float, title: str
) -> Generator[Record]:
    """One record per problem: the ranks' answer to the problem, scaled to the megabytes of the settings."""
    for problem in progress(problems, title):
        small = problem.scaled(int(options["megabytes"] * MEGABYTE))
        yield {**small.record(), **ranks.ask({**options, "problem": small.to_json()}, limit)}


def measure(problems: list[Problem], settings: Settings, limit: float) -> Generator[Record]:
    """One record per problem on 8 devices."""
    options = {**settings, "topology": settings["hosts"]}
    with Network(HOSTS, settings["rate"]) as network, jax_job(network) as ranks:
        yield from records(ranks, problems, options, limit, "emulated cluster")


def stream(rate: str) -> float:
    """Bytes per second of a TCP stream while every host sends one stream to the next host."""
    with Network(HOSTS, rate) as network:
        environment = {"BENCH_STREAM_ADDRESSES": ",".join(network.addresses)}
        with Job(network, "bench.worker_stream", environment) as job:
            answer = job.ask({"bytes": STREAM, "rounds": 5}, 120)
    return float(STREAM / statistics.median(answer["times"]["stream"]))


def of_the_cluster(settings: Settings) -> dict[str, Problem]:
    """The problems whose number of devices is that of the cluster."""
    return {name: problem for name, problem in drawn(settings).items() if problem.devices == len(CONSECUTIVE)}


def prepared(settings: Settings) -> Settings:
    """The settings with the hosts of the devices and the rate of a stream between two hosts."""
    hosts = {"hosts": list(CONSECUTIVE), "devices_per_host": DEVICES_PER_HOST}
    return {**settings, **hosts, "stream": stream(settings["rate"])}


SUITE = Suite(
    "cluster",
    measure,
    SAMPLE,
    FULL,
    options={
        "rounds": 9, "megabytes": 16.0, "rate": "500mbit", "cost_model": "cluster", "null": False,
    },
    problems=of_the_cluster,
    prepared=prepared,
    missing=lambda _: why_not(),
    limit=240.0,
)  # fmt: skip
