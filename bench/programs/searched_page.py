"""What the report says of searched schedules on the emulated cluster."""

from __future__ import annotations

import statistics
from typing import Any

from bench.markdown import table
from bench.programs.written import BATCH, FOUND
from bench.results import Results
from bench.stats import Interval, bootstrap_geomean, geomean, paired_ratio
from bench.summary import Record

TEXT = """## Searched schedules on the emulated cluster

The programs above, small; the eight rows of the transformer block are two programs, on four devices and on eight, and
these rows are layouts that users write. `rd.search` is given the cluster's links and nothing of where arguments begin;
parameters of a training step end as they begin, other results as above. Beside it runs XLA with inputs by batch, and in
every layout written by hand ({rounds} rounds, all of them in turn, each on arguments that lie as it wants them); the
best of these is the one that XLA runs fastest, so it is chosen after the fact. XLA's propagation here is Shardy's,
which JAX uses unless told otherwise. Predicted times are of one machine, the cluster's links and the preset for virtual
CPU devices; for written layouts they are those of `rd.distribute` from these pins. Bytes are counted from the compiled
programs; the peak is arguments, results and temporaries of one device, as the compiler counts them.
"""


def timed(records: list[Record]) -> list[Record]:
    """Those that ran on all sides that are compared."""
    return [record for record in records if FOUND in record.get("times", {}) and BATCH in record["times"]]


def best(record: Record) -> str:
    """The layout that XLA runs fastest."""
    times = {name: statistics.median(own) for name, own in record["times"].items() if name != FOUND}
    return min(times, key=times.__getitem__)


def speed(record: Record, layout: str) -> Interval:
    """XLA's time in a layout over that of the schedule found."""
    return paired_ratio(record["times"][layout], record["times"][FOUND])


def share(record: Record) -> float:
    """What the schedule found is predicted to take over the best of the written ones."""
    seconds = {name: own["seconds"] for name, own in record["predicted"].items()}
    return float(seconds.pop(FOUND) / min(seconds.values()))


def rows(records: list[Record]) -> list[list[str]]:
    """Head and rows of a table, a row for each program."""
    head = ["program", "mesh", "found, ms", "over (a): by batch", "best written (b)", "over (b)",
            "predicted: found / best written", "received, MB: found / (a) / (b)",
            "peak, MB: found / (a) / (b)"]  # fmt: skip
    made = [head]
    for record in timed(records):
        written = best(record)
        sides = [record.get(name, {}) for name in (FOUND, BATCH, written)]
        mesh = " x ".join(f"{axis}={size}" for axis, size in record["mesh"].items())
        made.append(
            [record["name"], mesh, f"{1e3 * statistics.median(record['times'][FOUND]):.0f}", str(speed(record, BATCH)),
             written, str(speed(record, written)), f"{share(record):.3f}",
             *(" / ".join(_mb(side.get(key)) for side in sides) for key in ("received", "peak"))]
        )  # fmt: skip
    return made


def goals(records: list[Record]) -> list[tuple[str, str, bool | None]]:
    """What must hold of searched schedules: goal, measured, whether it does."""
    names = (
        "searched schedules: predicted time never above the best written one's",
        "cluster, searched against XLA with inputs by batch: geomean at least 1.5x",
        "cluster, searched against XLA in the best written layout: not slower beyond noise",
    )
    ran = timed(records)
    if not ran:
        return [(name, "", None) for name in names]
    shares = [share(record) for record in records]
    above = sum(one > 1 + 1e-6 for one in shares)
    (first, second), slower = overall(ran), [record["name"] for record in ran if speed(record, best(record)).high < 1]
    lost = f", slower on {', '.join(slower)}" if slower else ""
    return [
        (names[0], f"above on {above} of {len(shares)}; geomean {geomean(shares):.3f}", not above),
        (names[1], f"{first} over {len(ran)} programs", first.value >= 1.5),
        (names[2], f"{second} over {len(ran)} programs{lost}", second.high >= 1),
    ]


def overall(ran: list[Record]) -> tuple[Interval, Interval]:
    """Geometric means of what the schedules found gain over (a) and over (b)."""
    batch = bootstrap_geomean([speed(record, BATCH).value for record in ran])
    return batch, bootstrap_geomean([speed(record, best(record)).value for record in ran])


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    records = found.records("searched_cluster")
    if not timed(records):
        return []
    head, *body = rows(records)
    wrong = [record["name"] for record in records if record.get("wrong")]
    failed = [f"{record['name']} ({record['failed']})" for record in records if "failed" in record]
    said = f"Results that differ from the undistributed function's: {', '.join(wrong) or 'none'}."
    said += f" Layouts that XLA failed on: {', '.join(failed)}." if failed else ""
    return [TEXT.format(**found.settings("searched_cluster")), table(head, body), said + "\n"]


def _mb(value: Any) -> str:
    return "none" if value is None else f"{value / 1e6:.2f}"
