"""Write docs/benchmarks.md, its pictures and docs/real-size.md from the saved results; the first lists suites without.

The texts of the pages are in `page.md` and `real_size.md`, beside this module. A line `{{ NAME }}` there stands for the
table of a suite, or for one of `PARTS`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from bench import goals, tables
from bench.children import ROOT
from bench.distir import differing, figures, speedups
from bench.results import DIRECTORY, Results
from bench.results import load as load_file
from bench.stats import spearman

PAIRED = ("cluster", "partial_cluster", "cluster_mpi", "xla_cpu", "cluster_null", "xla_cpu_null")
TEXT = Path(__file__).parent / "page.md"
REAL_SIZE = Path(__file__).parent / "real_size.md"


def verdicts(results: Results) -> str:
    """A row per goal."""
    rows = [[goal.name, goal.measured, goal.verdict] for goal in goals.every(results)]
    return str(tables.Table(["goal", "measured", "holds"], rows))


def worst(results: Results) -> str:
    """The problems on which ours is slowest against XLA."""
    return str(tables.worst(results))


def paired(results: Results) -> str:
    """All run times beside those of XLA or of a plain call."""
    return str(tables.paired(results, *PAIRED))


def counted(results: Results) -> str:
    """Counts of the programs compiled for virtual CPU devices and for TPUs."""
    return str(tables.counted(results, "xla_cpu", "tpu"))


def distir(results: Results) -> str:
    """The number of DistIR's winners that are ours."""
    records, memory = results.records("distir"), results.settings("distir").get("memory", 0)
    if not records:
        return ""
    n, (theirs, ours) = figures(records, memory), speedups(records)
    return (
        f"Of the {n['rows']} rows of Table 2 ours is theirs on {n['same']}; theirs is within 5% of ours on "
        f"{n['near']}, among our ten fastest on {n['ten']}. Where theirs has no stages, ours receives the least on "
        f"{n['least']} of {n['flat']}. Of {n['cells']} cells of pure layouts {n['fit']} fit or do not as DistIR found. "
        f"What its winner gains on pure layouts has a Spearman correlation of {spearman(ours, theirs):.2f} with what "
        f"it measured, over {len(theirs)} cells.\n"
    )


def distir_rows(results: Results) -> str:
    """The rows of DistIR's tables whose winner is another than ours."""
    rows = differing(results.records("distir"), results.settings("distir").get("memory", 0))
    header = ["model", "batch", "theirs", "ours", "time of theirs / ours", "received by theirs / ours"]
    return str(tables.Table(header, rows))


def provenance(results: Results) -> str:
    """First and last date of the results, and which of them were cut short; their files have the commits."""
    dates = sorted({file["machine"]["date"] for file in results.files.values()})
    cut_short = [name for name, file in sorted(results.files.items()) if file["settings"].get("unfinished")]
    return f"Measured from {dates[0]} to {dates[-1]}. Cut short: {', '.join(cut_short) or 'none'}.\n" if dates else ""


def not_run(results: Results) -> str:
    """The suites without results."""
    missing = [name for name in tables.TABLES if name not in results.files]
    return f"Not run: {', '.join(missing)}.\n" if missing else ""


PARTS: dict[str, Callable[[Results], str]] = {
    "goals": verdicts, "worst": worst, "counted": counted, "paired": paired, "distir": distir, "provenance": provenance,
    "not run": not_run, "distir rows": distir_rows,
}  # fmt: skip


def load() -> Results:
    """All saved results."""
    names = sorted(path.stem for path in DIRECTORY.glob("*.json"))
    return Results({name: file for name in names if (file := load_file(name))})


def page(results: Results, template: Path = TEXT) -> str:
    """The text of a page with its tables."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        return (PARTS[name](results) if name in PARTS else tables.of(name, results)).rstrip()

    text = re.sub(r"^\{\{ (.+) \}\}$", part, template.read_text(), flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text)


def write(results: Results, path: Path) -> None:
    """Write the page, and beside it real-size.md and the folder `benchmarks` with pictures."""
    from bench import pictures  # imports matplotlib, which the page does not need

    pictures.draw(results, path.parent / "benchmarks")
    path.write_text(page(results))
    (path.parent / "real-size.md").write_text(page(results, REAL_SIZE))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md", help="where to write the page")


def main(arguments: argparse.Namespace) -> int:
    results = load()
    if not results.files:
        print(f"no results in {DIRECTORY}; run a suite first")
        return 1
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    write(results, arguments.page)
    print(f"wrote {arguments.page}")
    return 0
