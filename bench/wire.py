"""The least time of the links between hosts, beside the measured time.

The least time of a problem is that of its busiest host: the bytes that it must take in or give out, over its link's
bandwidth in that direction. It is found from the boxes of the problem alone, without the library.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bench.problem import Cut, Problem
from bench.summary import OURS, XLA, set_name

LEAST = 2 * 10**6  # bytes through the busiest link: below, the figure is a latency
KINDS = {  # by the kinds of collectives of a plan
    ("allpermute",): "one permute",
    ("exchange",): "one exchange in rounds",
    ("reduce_exchange",): "one exchange in rounds",
    ("alltoall",): "all-to-alls",
    ("allgather",): "gathers",
}


def host_bytes(problem: Problem, hosts: Sequence[int]) -> int:
    """Bytes that pass the busiest link of a host in one direction, at least.

    A host takes in, once, each element that one of its devices wants and of which it has not all summands, and gives
    out, once, each that another host wants and of which no other host has some summand.

    Args:
        problem: the move.
        hosts: of every device, by its number.
    """
    names = sorted(set(hosts))
    held = np.stack([_cells(problem, problem.source_axes, device) for device in range(problem.devices)])
    want = np.stack([_cells(problem, problem.target_axes, device) for device in range(problem.devices)])
    summand = np.array([problem.summand(device) for device in range(problem.devices)])
    where = np.array(hosts)
    # [hosts, summands, *cells]
    has = np.stack(
        [
            np.stack([held[(where == host) & (summand == s)].any(axis=0) for s in range(problem.summands)])
            for host in names
        ]
    )
    wants = np.stack([want[where == host].any(axis=0) for host in names])
    volume = problem.nbytes // math.prod(held.shape[1:])
    most = 0
    for k in range(len(names)):
        others = np.arange(len(names)) != k
        taken = wants[k] & ~has[k].all(axis=0)
        given = (has[k] & ~has[others].any(axis=0)).any(axis=0) & wants[others].any(axis=0)
        most = max(most, int(taken.sum()), int(given.sum()))
    return most * volume


def _cells(problem: Problem, cut: Cut, device: int) -> np.ndarray:
    """Which cells of the common refinement of source and target a device has under a cut."""
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
    """The name of a plan in the table, by its steps that travel ("allgather/4")."""
    travels = tuple(name for name, _, calls in (step.partition("/") for step in steps) if name != "dynslice")
    return KINDS.get(travels, "two gathers" if set(travels) == {"allgather"} else "several kinds")


def limits(records: Iterable[dict[str, Any]], hosts: Sequence[int], bandwidth: float) -> list[dict[str, Any]]:
    """For each timed problem whose busiest link takes more than `LEAST`: set, kind of plan, and times over the limit.

    Args:
        records: of `bench cluster`.
        hosts: of every device.
        bandwidth: bytes per second of a host's link in each direction.
    """
    rows = []
    for record in records:
        if "times" not in record or OURS not in record["times"]:
            continue
        problem = Problem.from_json(record["problem"])
        through = host_bytes(problem, hosts)
        if through >= LEAST:
            least = through / bandwidth
            ours, theirs = (statistics.median(record["times"][side]) / least for side in (OURS, XLA))
            rows.append({"set": set_name(record), "kind": kind(record["ours"]["steps"]), OURS: ours, XLA: theirs})
    return rows


def bandwidth(rate: str) -> float:
    """Bytes per second of a rate as `tc` takes it, in mbit or gbit."""
    return float(rate[:-4]) * {"mbit": 1e6, "gbit": 1e9}[rate[-4:]] / 8


def rows_of(records: Iterable[dict[str, Any]], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of `limits`, for records with these settings; none for results without hosts."""
    hosts = settings.get("hosts")
    return limits(records, hosts, bandwidth(settings["rate"])) if isinstance(hosts, list) else []
