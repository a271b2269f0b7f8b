"""What links between hosts allow, against every element written out."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.cluster import CONSECUTIVE
from bench.cluster_mpi import command
from bench.network import Network
from bench.problem import Problem
from bench.wire import bandwidth, host_bytes, kind, rows_of

UNEQUAL = (0, 1, 1, 2, 2, 3, 3, 3)
INTERLEAVED = (0, 1, 2, 3, 0, 1, 2, 3)


def element_by_element(problem: Problem, hosts: Sequence[int]) -> int:
    """The same from sets of (summand, element) of each host, one element after the other along one dimension."""
    (size,) = problem.shape
    held: dict[int, set[tuple[int, int]]] = {host: set() for host in hosts}
    want: dict[int, set[int]] = {host: set() for host in hosts}
    for device, host in enumerate(hosts):
        (source,), (target,) = problem.box(problem.source_axes, device), problem.box(problem.target_axes, device)
        held[host] |= {(problem.summand(device), k) for k in range(source.start, source.stop)}
        want[host] |= set(range(target.start, target.stop))
    most = 0
    for host in held:
        others = [other for other in held if other != host]
        elsewhere = set().union(*(held[other] for other in others))
        wanted = set().union(*(want[other] for other in others))
        taken = [k for k in want[host] if any((s, k) not in held[host] for s in range(problem.summands))]
        given = [k for k in range(size) if k in wanted and any(p not in elsewhere for p in held[host] if p[1] == k)]
        most = max(most, len(taken), len(given))
    return most * problem.itemsize


@pytest.mark.parametrize("hosts", [CONSECUTIVE, INTERLEAVED, UNEQUAL])
@pytest.mark.parametrize("partial", [(), ("x",), ("y", "z")])
def test_of_one_dimension(hosts: Sequence[int], partial: tuple[str, ...]) -> None:
    axes = [name for name in "xyz" if name not in partial]
    for source in ((), tuple(axes[:1]), tuple(axes[::-1])):
        for target in ((), ("x",), ("z", "y"), ("y", "x", "z")):
            problem = Problem("one", (32,), (source,), (target,), (("x", 2), ("y", 2), ("z", 2)), 4, partial)
            assert host_bytes(problem, hosts) == element_by_element(problem, hosts)


def test_where_hosts_swap_halves() -> None:
    problem = Problem("swap", (64, 64), (("x",), ()), ((), ("x",)), (("x", 2), ("y", 2), ("z", 2)))
    assert host_bytes(problem, CONSECUTIVE) == 64 * 64 // 4 * 4
    assert host_bytes(problem, (0,) * 8) == 0


def test_plans_by_their_collectives() -> None:
    assert kind(["dynslice/0", "allpermute/1"]) == "one permute"
    assert kind(["reduce_exchange/3"]) == kind(["exchange/2"]) == "one exchange in rounds"
    assert kind(["allgather/2", "allgather/4"]) == "two gathers"
    assert kind(["alltoall/2", "allgather/4"]) == "several kinds"


def test_the_launcher_enters_the_namespace_of_an_address(tmp_path: Path) -> None:
    """It takes what `mpiexec` gives to ssh."""
    network = SimpleNamespace(addresses=("10.0.0.1", "10.0.0.2"), names=("one", "two"), prefix=lambda k: ["at", str(k)])
    start = command(cast(Network, network), tmp_path / "enter")
    assert start[:2] == ["at", "0"] and "10.0.0.1:2,10.0.0.2:2" in start
    fake = tmp_path / "ip"
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    found = subprocess.run(
        [tmp_path / "enter", "-x", "10.0.0.2", '"proxy"', "--id", "1"],
        env={"PATH": f"{tmp_path}:/bin:/usr/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == 'netns exec two sh -c "proxy" --id 1\n'


def test_a_row_for_each_large_move() -> None:
    problem = Problem("U222/0", (2048, 1024), (("x",), ()), ((), ("x",)), (("x", 2), ("y", 2), ("z", 2)))
    least = host_bytes(problem, CONSECUTIVE) / bandwidth("500mbit")
    record = {
        "problem": problem.to_json(),
        "ours": {"steps": ["allpermute/1"]},
        "times": {"ours": [1.5 * least], "xla": [3 * least]},
    }
    settings = {"hosts": list(CONSECUTIVE), "rate": "500mbit"}
    (row,) = rows_of([record, {"problem": problem.to_json()}], settings)
    assert (row["set"], row["kind"]) == ("U222", "one permute")
    assert (row["ours"], row["xla"]) == pytest.approx((1.5, 3.0))
    assert rows_of([record], {"hosts": 4, "rate": "500mbit"}) == []
    assert (bandwidth("500mbit"), bandwidth("10gbit")) == (62.5e6, 1.25e9)
