"""What the report says of hosts whose devices are not numbered one host after the other."""

from __future__ import annotations

from bench import wire
from bench.markdown import table
from bench.results import Results
from bench.stats import Interval, geomean
from bench.summary import OURS, XLA, Record, speed_of, timed

NAMES = {"hosts_interleaved": "interleaved", "hosts_unequal": "of 1, 2, 2 and 3 devices"}
MOST_BETWEEN, LEAST_GAIN = 1.05, 1.3  # bytes between hosts over their bound; times the plan under a false assumption

TEXT = """### Hosts in another order

The same moves where device d is on another host than its number suggests, planned for the hosts as they are, and for
hosts of two consecutive devices each, which is false; paired as above. Bytes between hosts are those of the plans, over
the least that must cross, where any must.
"""


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    made = [name for name in NAMES if found.records(name)]
    if not made:
        return []
    head = ["hosts of the devices", "problems", "between hosts over the bound, geomean / max", "planned for others",
            "their time over ours, geomean [95%]", "where they send more between hosts"]  # fmt: skip
    rows = []
    for name in made:
        records = found.records(name)
        ours, theirs = (between(records, side) for side in (OURS, XLA))
        gain = gain_where_more(records)
        rows.append([
            ", ".join(map(str, found.settings(name)["hosts"])), str(len(timed(records))),
            *(f"{geomean(values):.3f} / {max(values):.2f}" for values in (ours, theirs)),
            str(speed_of(records)), f"{gain[0]} ({gain[1]})" if gain else "none",
        ])  # fmt: skip
    return [TEXT, table(head, rows), *(wire.table(found.records(name), found.settings(name)) for name in made)]


def between(records: list[Record], side: str) -> list[float]:
    """Bytes that a side's plans send between hosts over the least that must cross, where any must."""
    pairs = [r[side]["between_hosts"] for r in records if r.get(side, {}).get("between_hosts")]
    return [sent / bound for sent, bound in pairs if bound]


def gain_where_more(records: list[Record]) -> tuple[Interval, int] | None:
    """Their time over ours on the problems where the false assumption sends more between hosts, and how many."""
    more = [r for r in timed(records) if r[XLA].get("between_hosts", [0])[0] > r[OURS].get("between_hosts", [0])[0]]
    return (speed_of(more), len(more)) if more else None
