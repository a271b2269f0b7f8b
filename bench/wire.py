"""The least time of the links between hosts, and measured times over it.

The least time of a problem is that of its busiest host: the bytes that it must receive or send, over the bandwidth of
its link in that direction. It is computed from the boxes of the problem alone, without the library.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bench.problem import Cut, Problem
from bench.summary import OURS, XLA, set_name

LEAST = 2 * 10**6  # bytes through the busiest link, below which latency dominates the time
KINDS = {  # by the kinds of steps of a plan
    ("allpermute",): "one permute",
    ("exchange",): "one exchange in rounds",
    ("reduce_exchange",): "one exchange in rounds",
    ("alltoall",): "all-to-alls",
    ("allgather",): "gathers",
}


def host_bytes(problem: Problem, hosts: Sequence[int]) -> int:
    """The least number of bytes through the busiest link of a host in one direction.

    A host receives once each element that one of its devices ends with and of which it lacks a summand. It sends once
    each element that another host ends with and of which it alone has a summand.

    Args:
        problem: the problem.
        hosts: the host of every device.
    """
    names = sorted(set(hosts))
    source = np.stack([_cells(problem, problem.source_axes, device) for device in range(problem.devices)])
    target = np.stack([_cells(problem, problem.target_axes, device) for device in range(problem.devices)])
    summand = np.array([problem.summand(device) for device in range(problem.devices)])
    where = np.array(hosts)
    # [hosts, summands, *cells]
    has = np.stack(
        [
            np.stack([source[(where == host) & (summand == s)].any(axis=0) for s in range(problem.summands)])
            for host in names
        ]
    )
    wants = np.stack([target[where == host].any(axis=0) for host in names])
    volume = problem.nbytes // math.prod(source.shape[1:])
    most = 0
    for k in range(len(names)):
        others = np.arange(len(names)) != k
        received = wants[k] & ~has[k].all(axis=0)
        sent = (has[k] & ~has[others].any(axis=0)).any(axis=0) & wants[others].any(axis=0)
        most = max(most, int(received.sum()), int(sent.sum()))
    return most * volume


def _cells(problem: Problem, cut: Cut, device: int) -> np.ndarray:
    """The cells of the common refinement of source and target that a device has under a cut, as a mask."""
    position, axes = problem.position(device), problem.axes
    counts = [
        math.lcm(*(math.prod(axes[name] for name in names) for names in pair))
        for pair in zip(problem.source_axes, problem.target_axes, strict=True)
    ]
    cells = np.zeros(counts, dtype=bool)
    box = []
    for dim, (names, count) in enumerate(zip(cut, counts, strict=True)):
        low, high = problem.interval(dim, names, position)
        unit = problem.shape[dim] // count
        box.append(slice(low // unit, high // unit))
    cells[tuple(box)] = True
    return cells


def kind(steps: Iterable[str]) -> str:
    """The name of a plan in the table, by its steps that communicate ("allgather/4")."""
    collectives = tuple(name for name, _, calls in (step.partition("/") for step in steps) if name != "dynslice")
    return KINDS.get(collectives, "two gathers" if set(collectives) == {"allgather"} else "several kinds")


def limits(records: Iterable[dict[str, Any]], hosts: Sequence[int], bandwidth: float) -> list[dict[str, Any]]:
    """Set, kind of plan and times over the least time, for each timed problem with more than `LEAST` bytes on a link.

    Args:
        records: records of `bench cluster`.
        hosts: the host of every device.
        bandwidth: bytes per second of a host's link in each direction.
    """
    rows = []
    for record in records:
        if "times" not in record or OURS not in record["times"]:
            continue
        problem = Problem.from_json(record["problem"])
        nbytes = host_bytes(problem, hosts)
        if nbytes >= LEAST:
            least = nbytes / bandwidth
            ours, theirs = (statistics.median(record["times"][side]) / least for side in (OURS, XLA))
            rows.append({"set": set_name(record), "kind": kind(record["ours"]["steps"]), OURS: ours, XLA: theirs})
    return rows


def bandwidth(rate: str) -> float:
    """Bytes per second of a rate of `tc`, in mbit or gbit."""
    return float(rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[rate[-4:]] / 8


def rows_of(records: Iterable[dict[str, Any]], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of `limits` under the settings of a suite; none for settings without hosts."""
    hosts = settings.get("hosts")
    return limits(records, hosts, bandwidth(settings["rate"])) if isinstance(hosts, list) else []
