"""The page docs/zoo.md, from the results of the zoo."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "bench" / "results" / "zoo.jsonl", ROOT / "docs" / "zoo.md"

HEAD = """# Programs of public libraries

The Makefile's `zoo` installs the libraries in an environment of their own (pinned in `bench/zoo`), puts each
program through `rd.distribute` and through `jax.jit` with the same shardings of arguments and results, for 8 virtual
CPU devices, and compares the results with those of one device. This page is drawn from `bench/results/zoo.jsonl`.

**Bytes** are received by all devices in a call, read off both compiled programs; loops of a known length count with it,
others once. **Share** is the arithmetic of one device over that of the whole program on one device; 0.125 is an eighth.
**Compile** is seconds of tracing, planning and compiling, and XLA's of tracing and compiling, on a machine of 2 cores.
"""


def ratio(record: dict[str, Any]) -> float | None:
    """Bytes that ours receives over XLA's; None where XLA receives none."""
    ours, xla = record["ours"]["received"], record["xla"]["received"]
    return ours / xla if xla else None


def page(records: Sequence[dict[str, Any]]) -> str:
    """The text of docs/zoo.md."""
    rows = [
        "| library | program | bytes | XLA's | ratio | share | XLA's | compile | XLA's | whole |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    done = [record for record in records if "error" not in record]
    rows += map(_row, records)
    ratios = [value for record in done if (value := ratio(record))]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    right = sum(record["right"] for record in done)
    within = sum(record["ours"]["share"] <= 1.1 * record["xla"]["share"] for record in done)
    fewer = sum(record["ours"]["received"] <= record["xla"]["received"] for record in done)
    exact = sum(record["ours"]["received"] == record["predicted"] for record in done)
    libraries = len({record["library"] for record in done})
    notes = [f"- {record['name']}: {record['note']}" for record in done if record.get("note")]
    return "\n".join(
        [
            HEAD,
            f"Of {len(records)} programs of {libraries} libraries {len(done)} have figures, and {right} are right; "
            f"{within} do at most 1.1 times the share of work of XLA's; {fewer} receive no more bytes; {exact} receive "
            f"what is predicted. Where both receive some, the geometric mean of the ratios is {mean:.2f}.",
            "",
            *rows,
            "",
            *(["## Where XLA receives less", "", *notes, ""] if notes else []),
        ]
    )


def _row(record: dict[str, Any]) -> str:
    if "error" in record:
        return f"| {record.get('library', '')} | {record['name']} | {record['error']} | | | | | | | |"
    ours, xla, value = record["ours"], record["xla"], ratio(record)
    seconds = record["distribute_s"] + record["compile_s"]
    cells = [
        record["library"],
        record["name"] + ("" if record["right"] else f" (wrong by {record['away']:.1e})"),
        f"{ours['received']:,}",
        f"{xla['received']:,}",
        "" if value is None else f"{value:.2f}",
        f"{ours['share']:.3f}",
        f"{xla['share']:.3f}",
        f"{seconds:.1f}",
        f"{record['xla_compile_s']:.1f}",
        ", ".join(record["opaque"]),
    ]
    return f"| {' | '.join(cells)} |"
