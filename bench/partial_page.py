"""What the report says of arrays whose tiles are summands."""

from __future__ import annotations

from bench import wire
from bench.markdown import table
from bench.problem import Problem
from bench.results import Results
from bench.stats import geomean
from bench.summary import XLA, Record, by_set, bytes_ratio, compiled, fate, speed_table, timed

OURS_BY = {"exact": 'ours, "exact"', "default": "ours, default"}
XLA_ON = {"cpu": "XLA, CPU", "tpu": "XLA, TPU v5e 2x4"}

COUNTED = """## Summands

Sets P8 on (2, 2, 2) and P24 on (2, 3, 4): types drawn as for U, with each mesh axis that does not cut the source
partial with odds one half, one of them at least. Bytes received are counted over the lower bound, plans under `"exact"`
and under the default cost model. XLA's are those of `jax.sharding.reshard` from `unreduced`, compiled for CPU and, P8,
for TPU v5e 2x4, each problem within {limit_s:g} s. Where the bound cannot be reached while all tiles of a placement are
of one size, problems are counted apart, and listed with the least that such plans receive, found by trying all of them.
"""

CLUSTER = """Run on the emulated cluster (4 hosts of {devices_per_host} devices, {rate}, arrays of at most
{megabytes:g} MB), paired as above:
"""


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    made = []
    if records := found.records("partial"):
        head, *rows = counted(records)
        listed, *apart = unreachable(records)
        made += [COUNTED.format(**found.settings("partial")), table(head, rows), table(listed, apart)]
    if records := found.records("partial_cluster"):
        settings = found.settings("partial_cluster")
        made += [CLUSTER.format(**settings), speed_table(_by_target(records), 0.95), wire.table(records, settings)]
    return made


def _is_reachable(record: Record) -> bool:
    """Whether plans whose tiles are of one size can receive no more than the bound."""
    return bool(record["reachable"] <= record["bound"] * (1 + 1e-6))


def over_bound(records: list[Record], side: str, reachable: bool | None = None) -> list[float]:
    """Bytes received over the bound, of all problems or of those where it can be reached, or cannot; of XLA's programs,
    where they compiled."""
    chosen = [r for r in records if reachable in (None, _is_reachable(r))]
    if side in OURS_BY:
        return [bytes_ratio(r, side) for r in chosen]
    return [r[side][XLA]["received"] / r["bound"] for r in chosen if compiled(r.get(side, {}), XLA)]


def counted(records: list[Record]) -> list[list[str]]:
    """Head and rows of a table, a row for each set and side."""
    rows = [["set", "", "problems", "lost", "bytes/bound geomean / max", "where it can be reached", "where it cannot"]]
    for name, group in by_set(records).items():
        for side, label in (OURS_BY | XLA_ON).items():
            chosen = [r for r in group if side in r]
            if not chosen:
                continue
            fates = [fate(r[side], XLA) for r in chosen] if side in XLA_ON else []
            lost = ", ".join(f"{n} {f}" for f in ("crash", "limit", "error") if (n := fates.count(f))) or "none"
            parts = [over_bound(chosen, side, reachable) for reachable in (None, True, False)]
            figures = [f"{geomean(part):.3f} / {max(part):.2f} ({len(part)})" if part else "none" for part in parts]
            rows.append([name, label, str(len(chosen)), lost, *figures])
    return rows


def unreachable(records: list[Record]) -> list[list[str]]:
    """Head and rows of a table of the problems whose bound no plan with tiles of one size reaches."""
    rows = [["problem", "", "least with tiles of one size, over the bound", "ours"]]
    for record in records:
        if not _is_reachable(record):
            problem = Problem.from_json(record["problem"])
            least, ours = (x / record["bound"] for x in (record["reachable"], record["exact"]["received"]))
            ends = f"`{problem.source}` -> `{problem.target}`"
            rows.append([problem.name, ends, f"{least:.3f}", f"{ours:.3f}"])
    return rows


def split(records: list[Record]) -> dict[str, list[Record]]:
    """Timed records by what the target is."""
    found: dict[str, list[Record]] = {"replicated": [], "cut": []}
    for record in timed(records):
        found["replicated" if Problem.from_json(record["problem"]).replicates else "cut"].append(record)
    return found


def _by_target(records: list[Record]) -> list[Record]:
    """Timed records under the names of sets that tell what the target is."""
    return [
        {**record, "problem": {**record["problem"], "name": f"P8, target {kind}/{number}"}}
        for kind, group in split(records).items()
        for number, record in enumerate(group)
    ]
