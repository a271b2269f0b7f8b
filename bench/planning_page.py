"""What the report says of planning: what plans cost, counted, and what finding them costs."""

from __future__ import annotations

from bench.markdown import table
from bench.quality import failures
from bench.results import Results
from bench.summary import Record

QUALITY = """## Plans, counted

`cost_model="exact"`, and where the column says so the latency-bandwidth preset `"tpu"`. Shares are of a set's problems;
"still" are those whose lower bound is zero, which no other bench draws. "Wrong" adds up problems on which a plan under
`"exact"` misses the lower bound, has a tile above the larger of source and target, receives more than the paper's
algorithm or needs more collectives at equal bytes. The last column counts problems on which the paper's algorithm,
given all the time it wants, finds what the preset models as faster; `"best"` runs it on a short leash.
"""

PLANNING = """## Planning, problem by problem

Wall time of one call of `synthesize`, from the text of the types to a verified plan, a problem's quickest of three
passes over all problems (pytest-benchmark, `bench/test_planning.py`). Sets U and H as above; rank 6 on 4,096 devices;
65,536 devices of two to four mesh axes. "paper" is `algorithm="paper"`. The peak is that of the whole process so far,
in MiB.
"""

SCALING = """## Planning at scale

Processor seconds to plan one problem, which is one thread's work.
"Ours" weighs exact bytes, "latency model" the TPU profile, for which few collectives may be worth more than bytes.
DTensor's memoisation is cleared before each. Below, received bytes over the lower bound of what was planned.
"""


def quality(found: Results) -> list[str]:
    """Plans, counted."""
    records = found.records("quality")
    return [QUALITY, _quality(records)] if records else []


def planning(found: Results, picture: str) -> list[str]:
    """The time of one plan, problem by problem, and at scale."""
    records = found.records("planning")
    problems = [PLANNING, _planning(records)] if records else []
    return [*problems, *([SCALING, picture] if found.records("scaling") else [])]


def _quality(records: list[Record]) -> str:
    rows = []
    for r in (r for r in records if "at_most" in r):
        shares = [f"{100 * r['at_most'][k]:.0f}%" for k in r["at_most"]]
        tpu = [f"{r['tpu_over_bound']:.3f}", *(f"{100 * r['tpu_at_most'][k]:.0f}%" for k in ("1", "2"))]
        dearer = str(r["tpu_dearer_than_paper"])
        rows.append(
            [r["set"], str(r["problems"]), str(r["still"]), str(failures(r)), *shares, str(r["most"]), *tpu, dearer]
        )
    levels = [f"at most {k}" for k in next((r["at_most"] for r in records if "at_most" in r), {})]
    tpu_head = ["TPU: bytes/bound", "TPU: at most 1", "TPU: at most 2", "TPU: paper's faster"]
    head = ["set", "problems", "still", "wrong", *levels, "most", *tpu_head]
    text = table(head, rows)
    for r in (r for r in records if "more_than_xla" in r):
        text += (
            f"\n\nAgainst what XLA compiled on {r['problems']} problems of the benches above: more bytes on "
            f"{r['more_than_xla']}, more collectives at equal bytes on {r['tie_more_collectives']}.\n"
        )
    return text


def _planning(records: list[Record]) -> str:
    rows = []
    for r in records:
        name, _, way = r["test"].removeprefix("test_").rstrip("]").partition("[")
        seconds = [f"{1e3 * r[key]:.2f}" for key in ("median_s", "p99_s", "worst_s")]
        rows.append([f"{name.replace('_', ' ')}, {way}", str(r["problems"]), *seconds, f"{r['peak_mib']:.0f}"])
    return table(["what", "problems", "median, ms", "99%", "worst", "peak, MiB"], rows)
