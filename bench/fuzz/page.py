"""The fuzzer's section of the report."""

from __future__ import annotations

from typing import Any

from bench.fuzz.kinds import KINDS
from bench.markdown import table
from bench.results import Results

TEXT = """## Random problems, forged plans, hostile texts

Each case is made by the seed and its number; `python -m bench fuzz --seed {seed} --kind KIND --only NUMBER` makes one
again. *Problems* are drawn over meshes of 1 to 256 devices in any order, source and target on one mesh or two, ranks 0
to 6, dimensions of size 0 up to 2^63, all cost models, profiles with hosts of 1 to 8 devices, both algorithms, memory
limits from impossible to ample{summands}. The JSON of each plan is carried out element by element by an interpreter
that uses nothing of the library, and must receive and hold what the plan says. *Forged* are plans changed at random and
most of them sealed again: whatever is accepted must still be right by that interpreter. *Texts* go to all that reads
text. *Trees* go through `reshard`, with aliases, leaves that fail, donation, limits and interruptions; no array may be
lost. Failed is whatever is wrong, raises anything but a `RedistribError`, warns, or takes more than {limit:g} s of
processor time ({trees:g} s for trees, compilers included). {minutes:.0f} minutes on {jobs} processes.
"""

SUMMANDS = """; in a fifth of them tiles are summands at one end or both, of sums, maxima or minima, and
the interpreter counts how often each summand is in what a device holds"""


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    records = found.records("fuzz")
    return [text(found.settings("fuzz")), table(*rows(records))] if records else []


def text(settings: dict[str, Any]) -> str:
    """What was done, for the settings of a results file."""
    summands = SUMMANDS if settings.get("summands") else ""
    limits = {"limit": KINDS["problems"].limit, "trees": KINDS["trees"].limit}
    return TEXT.format(**{**settings, **limits, "summands": summands})


def rows(records: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table."""
    head = ["kind", "cases", "failed", "outcomes", "mean, ms", "slowest, s (number)", "failures"]
    body = []
    for r in records:
        outcomes = ", ".join(f"{count:,} {name}" for name, count in sorted(r["outcomes"].items()))
        seconds, index = r["slowest"]
        failures = "; ".join(
            f"{entry['count']} x `{signature.replace('|', '/')}` ({entry['shown'][0][0]})"
            for signature, entry in r["failures"].items()
        )
        mean = 1e3 * r["seconds"] / max(1, r["cases"])
        slowest = f"{seconds:.2f} ({index:.0f})"
        body.append(
            [r["kind"], f"{r['cases']:,}", str(r["failed"]), outcomes, f"{mean:.1f}", slowest, failures or "none"]
        )
    return head, body
