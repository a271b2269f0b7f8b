"""`rd.torch.redistribute` against DTensor's on the emulated cluster: eight ranks over gloo, two per host, in one run.

DTensor has two planners, greedy (`shipped`) and of least cost (`dijkstra`). Each runs with gloo's all-to-all, and with
DTensor's substitute on CPUs, an all-gather and a slice (`_gathering`). The methods alternate in every round. The
problems are those whose order of axes DTensor's public interface can express (major to minor in mesh order). Needs
root and iproute2, and in `BENCH_TORCH_PYTHON` an interpreter with PyTorch and the library's requirements.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator

from bench import cluster
from bench.cluster import CONSECUTIVE, DEVICES_PER_HOST, HOSTS, records
from bench.dtensor import PYTHON, missing, torch_version
from bench.job import Job
from bench.network import Network, why_not
from bench.problems import Problem
from bench.results import Record
from bench.suite import Settings, Suite
from bench.summary import OURS

WAYS = ("shipped", "dijkstra", "shipped_gathering", "dijkstra_gathering")
SAMPLE = {"U222": 10, "H222": 5, "layouts": 10}
FULL = {"U222": 60, "H222": 40, "layouts": 12}
ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "eth0", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def in_mesh_order(problem: Problem) -> bool:
    """Whether the axes of every dimension are in mesh order, major to minor, before and after."""
    names = [name for name, _ in problem.mesh]
    cuts = (*problem.source_axes, *problem.target_axes)
    return all(sorted(axes, key=names.index, reverse=True) == list(axes) for axes in cuts)


def measure(problems: list[Problem], settings: Settings, limit: float) -> Generator[Record]:
    """One record per problem: `times` by method, in seconds of the slowest rank per round."""
    with (
        Network(HOSTS, settings["rate"]) as network,
        Job(network, "bench.worker_torch_cluster", ENVIRONMENT, DEVICES_PER_HOST, PYTHON) as ranks,
    ):
        yield from records(ranks, problems, {**settings, "ways": WAYS}, limit, "PyTorch on the emulated cluster")


def speeds(records: list[Record], way: str) -> list[float]:
    """DTensor's median time over ours, for the problems that both ran."""
    done = [r["times"] for r in records if way in r.get("times", {}) and OURS in r["times"]]
    return [statistics.median(t[way]) / statistics.median(t[OURS]) for t in done]


def of_the_cluster(settings: Settings) -> dict[str, Problem]:
    """The problems of 8 devices that DTensor's public interface can express."""
    return {name: problem for name, problem in cluster.of_the_cluster(settings).items() if in_mesh_order(problem)}


SUITE = Suite(
    "torch_cluster",
    measure,
    SAMPLE,
    FULL,
    options={"rounds": 5, "megabytes": 16.0, "rate": "500mbit", "cost_model": "cluster"},
    problems=of_the_cluster,
    prepared=lambda settings: {**settings, "hosts": list(CONSECUTIVE), "torch": torch_version()},
    missing=lambda settings: why_not() or missing(settings),
    limit=240.0,
)
