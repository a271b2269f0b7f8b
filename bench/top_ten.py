"""DistIR's Table 3 on the emulated cluster: the layouts simulated to be fastest, measured, against the pure ones."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from bench.markdown import table
from bench.pipelines import measured
from bench.results import Results
from bench.summary import Record

TOP = 10
TEXT = """### The ten fastest as simulated, against pure strategies

As in DistIR's Table 3: of every batch size above, the ten layouts that are simulated to be fastest, of which the one
that is measured to be fastest is taken, beside replicas alone (D), tensor parts alone (T) and stages alone (P, with the
number of microbatches that is measured to be best). In ms; "-" was not run. "Place" is that of the one taken, as
simulated.
"""


class Choice(NamedTuple):
    """What is taken of a batch size.

    Attributes:
        batch: examples.
        taken: the record of the layout taken.
        place: of it as simulated, from 1.
        pure: seconds of D, T and P, where they ran.
    """

    batch: int
    taken: Record
    place: int
    pure: dict[str, float]


def choices(records: list[Record]) -> list[Choice]:
    """One for every batch size of which a pure strategy ran."""
    groups: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if "times" in record:
            groups[record["batch"]].append(record)
    found = []
    for batch, group in groups.items():
        top = sorted(group, key=lambda record: float(record["predicted"]))[:TOP]
        place = min(range(len(top)), key=lambda k: measured(top[k]))
        pure: dict[str, float] = {}
        for record in group:
            spread = dict(zip("DTP", map(int, record["layout"].split("/")), strict=False))
            (kind, *others) = [name for name, count in spread.items() if count > 1] or ["D"]
            if not others:
                pure[kind] = min(measured(record), pure.get(kind, float("inf")))
        if pure:
            found.append(Choice(batch, top[place], place + 1, pure))
    return found


def rows(found: list[Choice]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table."""
    head = ["batch", "D/T/P/K taken", "place", "measured", "pure D", "pure T", "pure P"]
    return head, [
        [str(one.batch), one.taken["layout"], str(one.place), f"{1e3 * measured(one.taken):.0f}",
         *(f"{1e3 * one.pure[kind]:.0f}" if kind in one.pure else "-" for kind in "DTP")]
        for one in found
    ]  # fmt: skip


def goal(records: list[Record]) -> tuple[str, str, bool | None]:
    """Goal, measured, whether it holds."""
    said = "pipelines on the emulated cluster: the best of the ten simulated fastest at least as fast as pure D, T, P"
    found = choices(records)
    if not found:
        return said, "", None
    gains = [min(one.pure.values()) / measured(one.taken) for one in found]
    each = ", ".join(f"batch {one.batch} {gain:.2f}x" for one, gain in zip(found, gains, strict=True))
    return said, f"the fastest pure one's time over its: {each}", all(gain >= 1 for gain in gains)


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    made = choices(found.records("pipelines"))
    return [TEXT, table(*rows(made))] if made else []
