"""What the report says of us against XLA: run times on two backends, and programs compiled and counted."""

from __future__ import annotations

from bench import verdicts, wire
from bench.markdown import table
from bench.results import Results
from bench.summary import (
    OURS,
    XLA,
    Record,
    by_set,
    fate,
    sides,
    speed,
    speed_table,
    timed,
)

CLUSTER = """## Emulated cluster

4 hosts as network namespaces on one machine, {devices_per_host} JAX CPU devices in each, links of {rate} in each
direction (token bucket), TCP Reno, XLA's gloo collectives; arrays of up to {megabytes:g} MB. Bytes that leave a host
cost what they would cost on such a network; the hosts share this machine's cores.
"""

CPU = """## Virtual CPU devices of one process

Here a collective is a copy in memory, so run times weigh local copies and launches, not a network. Arrays of up to
{megabytes:g} MB; sets of 64 devices and of tiny arrays are compiled and counted, not timed.
"""

COUNTED = """### Counted from the compiled programs

"Lost" are problems on which compiling killed the process (crash), passed the time limit or raised an error.
"""

TPU = """## The TPU compiler

Compiled by libtpu for topologies that are not attached; nothing ran. Arrays have their full size of 64 to 800 MB. Each
side had {limit_s:g} s. Compile seconds of ours include planning. The compiler keeps some small tiles on chip and
reports no scratch for them.
"""


def cluster(found: Results, times: str, ratios: str) -> list[str]:
    """The emulated cluster, with the pictures of its times and ratios."""
    records, settings = found.records("cluster"), found.settings("cluster")
    if not records:
        return []
    limits, spent = wire.table(records, settings), wire.spent(records, settings)
    return [CLUSTER.format(**settings), speed_table(records, 0.95), limits, spent, times, ratios,
            verdicts.noise(found, "cluster_null")]  # fmt: skip


def cpu(found: Results, bytes_received: str, scratch: str) -> list[str]:
    """Virtual CPU devices, with the pictures of bytes and scratch."""
    records = found.records("xla_cpu")
    if not records:
        return []
    return [CPU.format(**found.settings("xla_cpu")), speed_table(records, 0.9), verdicts.noise(found, "xla_cpu_null"),
            COUNTED, _counted(records), bytes_received, scratch]  # fmt: skip


def tpu(found: Results) -> list[str]:
    """What libtpu compiled, by topology."""
    records = found.records("tpu")
    if not records:
        return []
    parts = [TPU.format(**found.settings("tpu"))]
    for topology in dict.fromkeys(r["topology"] for r in records):
        parts += [f"**{topology}**\n", _counted([r for r in records if r["topology"] == topology])]
    return [*parts, verdicts.swap(found)]


def _counted(records: list[Record]) -> str:
    rows = []
    for name, group in by_set(records).items():
        for side, label in ((OURS, "ours"), (XLA, "XLA")):
            s = sides(group, side)
            lost = {f: n for f in ("crash", "limit", "error") if (n := sum(fate(r, side) == f for r in group))}
            rows.append(
                [name, label, str(s.problems), ", ".join(f"{n} {f}" for f, n in lost.items()) or "none",
                 " / ".join(f"{x:.2f}" for x in s.over_bound), f"{s.over_tile:.0%}",
                 " / ".join(f"{x:.2f}" for x in s.scratch), f"{s.scratch_total / 1e9:.2f}", f"{s.compile_s:.2f}"]
            )  # fmt: skip
    head = ["set", "", "compiled", "lost", "bytes/bound geomean / p90 / max", "over", "scratch/tile median / p90 / max",
            "scratch in all, GB", "compile s, median"]  # fmt: skip
    return table(head, rows)


def worst(found: Results) -> list[str]:
    """The ten problems on which ours does worst against XLA, of all timed ones, with the reason the counts give."""
    everything = [(bench, r) for bench in ("cluster", "xla_cpu") for r in timed(found.records(bench))]
    if not everything:
        return []
    everything.sort(key=lambda item: speed(item[1]).value)
    rows = []
    for bench, record in everything[:10]:
        problem = verdicts.problem_of(record)
        rows.append([bench, f"`{problem.source}` -> `{problem.target}` on {dict(problem.mesh)}".replace("'", ""),
                     str(speed(record)), verdicts.reason(record)])  # fmt: skip
    head = ["bench", "problem", "XLA's time / ours [noise]", "reason"]
    return ["## The ten problems where we are worst\n", table(head, rows)]
