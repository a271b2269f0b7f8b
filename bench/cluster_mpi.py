"""Ours through MPI on the emulated cluster, beside one plain `Alltoallw`: eight ranks on four hosts, paired.

MPICH's `mpiexec` runs on the first host. It starts a proxy on every other host by a script in place of ssh, which
enters the namespace of an address. So MPICH sees four nodes of two ranks each. Ranks of one node share memory; nodes
speak TCP (libfabric's provider). Needs root, iproute2 and MPICH.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

from bench import cluster
from bench.children import Child
from bench.cluster import CONSECUTIVE, DEVICES_PER_HOST, FULL, HOSTS, SAMPLE, records
from bench.network import Network, why_not
from bench.problems import Problem
from bench.results import Record
from bench.suite import Settings, Suite

PLAIN = "plain Alltoallw"
ENVIRONMENT = {
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def mpiexec() -> str | None:
    """MPICH's launcher, beside the interpreter or on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def launcher(network: Network) -> str:
    """A script that takes ssh's arguments, `[-options] address command`, and runs the command in the namespace of the
    host with that address."""
    cases = "".join(
        f'{address}) exec ip netns exec {name} sh -c "$*";;\n'
        for address, name in zip(network.addresses, network.names, strict=True)
    )
    return (
        f'#!/bin/sh\nwhile [ "$1" != "${{1#-}}" ]; do shift; done\nhost=$1\nshift\ncase $host in\n{cases}esac\nexit 1\n'
    )


def command(network: Network, script: Path) -> list[str]:
    """The words before a rank's command that run it on all hosts."""
    script.write_text(launcher(network))
    script.chmod(0o755)
    hosts = ",".join(f"{address}:{DEVICES_PER_HOST}" for address in network.addresses)
    return [
        *network.prefix(0), mpiexec() or "mpiexec", "-n", str(HOSTS * DEVICES_PER_HOST), "-hosts", hosts,
        "-launcher", "ssh", "-launcher-exec", str(script), "-iface", "eth0",
    ]  # fmt: skip


def measure(problems: list[Problem], settings: Settings, limit: float) -> Generator[Record]:
    """One record per problem on 8 devices."""
    with Network(HOSTS, settings["rate"]) as network, tempfile.TemporaryDirectory() as folder:
        start = command(network, Path(folder) / "enter")
        with Child("bench.worker_mpi", ENVIRONMENT, prefix=start) as ranks:
            yield from records(ranks, problems, settings, limit, "MPI on the emulated cluster")


def prepared(settings: Settings) -> Settings:
    """The settings of `bench.cluster`, with the name of the program in XLA's place."""
    return {**cluster.prepared(settings), "topology": list(CONSECUTIVE), "beside": PLAIN}


SUITE = Suite(
    "cluster_mpi",
    measure,
    SAMPLE,
    FULL,
    options={"rounds": 9, "megabytes": 16.0, "rate": "500mbit", "cost_model": "cluster"},
    problems=cluster.of_the_cluster,
    prepared=prepared,
    missing=lambda _: why_not() or (None if mpiexec() else "MPICH's mpiexec is missing: pip install mpich"),
)
