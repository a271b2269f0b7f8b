"""Ours through MPI on the emulated cluster, beside one plain `Alltoallw`: eight ranks on four hosts, paired.

MPICH's `mpiexec` runs on the first host. It starts a proxy on every other with what it takes for ssh, a script that
enters the namespace which has the address; so MPICH sees four nodes of two ranks, which share memory on their node and
speak TCP (libfabric's provider) between nodes. Needs root and iproute2, and MPICH.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from bench import results, wire
from bench.children import Child, progress
from bench.cluster import CONSECUTIVE, DEVICES_PER_HOST, FULL, HOSTS, SAMPLE, stream
from bench.network import Network, why_not
from bench.problems import DEFAULT_SEED, MEGABYTE, Problem, in_turn
from bench.results import Results
from bench.stats import bootstrap_geomean
from bench.summary import speed
from bench.xla_cpu import parse_sets

NAME = "cluster_mpi"
PLAIN = "plain Alltoallw"
ENVIRONMENT = {
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
TEXT = """### MPI on the emulated cluster

The same problems with one MPI rank per device (MPICH over TCP, `mpiexec` with a launcher that enters the namespaces),
ours by `to_mpi` beside one plain `Alltoallw` of subarrays in which every rank pulls what it lacks; paired as above.
"""


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
    """What to put before the command of a rank, to run it on all hosts."""
    script.write_text(launcher(network))
    script.chmod(0o755)
    hosts = ",".join(f"{address}:{DEVICES_PER_HOST}" for address in network.addresses)
    return [
        *network.prefix(0), mpiexec() or "mpiexec", "-n", str(HOSTS * DEVICES_PER_HOST), "-hosts", hosts,
        "-launcher", "ssh", "-launcher-exec", str(script), "-iface", "eth0",
    ]  # fmt: skip


def measure(
    problems: list[Problem], options: dict[str, Any], megabytes: float, limit: float, rate: str
) -> Generator[dict[str, Any]]:
    """One record per problem, each of 8 devices."""
    with Network(HOSTS, rate) as network, tempfile.TemporaryDirectory() as folder:
        start = command(network, Path(folder) / "enter")
        with Child("bench.worker_mpi", ENVIRONMENT, prefix=start) as ranks:
            for problem in progress(problems, "MPI on the emulated cluster"):
                small = problem.scaled(int(megabytes * MEGABYTE))
                answer = ranks.ask({**options, "problem": small.to_json()}, limit)
                yield {**small.record(), **answer}


def parts(found: Results) -> list[str]:
    """The parts of the report."""
    records, settings = found.records(NAME), found.settings(NAME)
    return [TEXT, summary(records), wire.table(records, settings)] if records else []


def summary(records: list[dict[str, Any]]) -> str:
    """How much longer the plain call takes, and what failed."""
    done = [r for r in records if "times" in r]
    wrong = [r["problem"]["name"] for r in records if r.get("wrong")]
    failed = [r["problem"]["name"] for r in records if r["status"] != "ok"]
    gain = bootstrap_geomean([speed(r).value for r in done]) if done else "none"
    text = f"{PLAIN}'s time over ours, geomean [95%]: {gain} over {len(done)} problems."
    text += f" Wrong results: {', '.join(wrong) or 'none'}. Not run to the end: {', '.join(failed) or 'none'}.\n"
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="more problems")
    parser.add_argument("--sets", help="sets and counts of 8-device problems, such as U222=50,paper")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--rounds", type=int, default=9, help="paired measurements per problem")
    parser.add_argument("--megabytes", type=float, default=16.0, help="shrink arrays to this size")
    parser.add_argument("--rate", default="500mbit", help="of each host's link, in each direction")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per problem")
    parser.add_argument("--cost-model", default="cluster", help="cost model, or profile in bench/profiles, for ours")
    parser.add_argument("--minutes", type=float, default=None, help="take no new problem after this time")
    parser.add_argument("--resume", action="store_true", help="go on from results that were cut short")
    parser.add_argument("--name", default=NAME, help="name of the results file")


def main(arguments: argparse.Namespace) -> int:
    reason = why_not() or (None if mpiexec() else "MPICH's mpiexec is missing: pip install mpich")
    if reason:
        print(f"skipped: {reason}", file=sys.stderr)
        return 3
    sets = parse_sets(arguments.sets, FULL if arguments.full else SAMPLE)
    options = {
        "rounds": arguments.rounds, "cost_model": arguments.cost_model, "topology": list(CONSECUTIVE),
    }  # fmt: skip
    settings = {
        "seed": arguments.seed, "sets": sets, "megabytes": arguments.megabytes, "rate": arguments.rate,
        "stream": stream(arguments.rate), "hosts": list(CONSECUTIVE), "beside": PLAIN, **options,
    }  # fmt: skip
    before, settings = (results.unfinished(arguments.name) if arguments.resume else None) or ([], settings)
    done = {record["problem"]["name"] for record in before}
    drawn = in_turn(settings["sets"], settings["seed"])
    problems = [p for p in drawn if p.devices == HOSTS * DEVICES_PER_HOST and p.name not in done]
    options = {key: settings[key] for key in options}
    run = measure(problems, options, settings["megabytes"], arguments.limit, settings["rate"])
    records = results.collect(arguments.name, run, settings, arguments.minutes, before)
    print(summary(records))
    print(wire.table(records, settings))
    return 0
