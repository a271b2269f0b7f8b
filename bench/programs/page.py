"""What the report says of programs."""

from __future__ import annotations

from typing import Any

from bench.markdown import table
from bench.results import Results
from bench.stats import geomean
from bench.summary import OURS, XLA, Record, slower_than, speed, speed_of, timed

TEXT = """## Programs

Twenty programs by `rd.distribute` and by `jax.jit` with the same pins: where arguments begin, where results end, and
what else the schedule names. Bytes are those that all devices receive, counted from both programs as compiled for
virtual CPU devices; nothing of this size ran. The same programs, smaller, ran on both sides, and every result was held
against the undistributed function. "Predicted" is what the printed program says before anything is compiled. The peak
is arguments, results and temporaries of one device: as predicted, and as the compiler counts them.
"""

CLUSTER = """Run on the emulated cluster, small, paired as above; above 1 ours is faster:
"""

SEARCHED = """The same programs, pins on arguments and results alone, by `rd.search` with bytes as the objective, every
product cut by every axis that can cut it. "Found" is predicted; "at least" is what no cuts along the axis that was
decided last go below, the other axes being as they are:
"""

_FFT = "FFT by transposes"
WHY = {
    _FFT: "XLA does not partition `fft`, and gathers the whole array for each transform",
    "mixture of experts": "XLA gathers what the experts have made, where tokens are put together again",
    "RNN by scan": "XLA adds up the gradients of the weights in every step, we once at the end",
    "block, Megatron": "XLA adds up three times what queries, keys and values ask for, we their sum",
    "block, data parallel": "the gradients of all weights are added up on both sides, and nothing else moves",
}


def parts(found: Results) -> list[str]:
    """The parts of the page."""
    made: list[str] = []
    if records := found.records("programs"):
        head, *body = rows(records)
        made += [TEXT, table(head, body), verdict(records), *notes(records)]
    if records := found.records("programs_searched"):
        made += [SEARCHED, table(*searched(records)), searched_verdict(records)[0] + ".\n"]
    if records := timed(found.records("programs_cluster")):
        times = [[record["name"], str(speed(record))] for record in records]
        made += [CLUSTER, table(["program", "XLA's time / ours [noise]"], times), _pace(records)]
    return made


def ratio(record: Record, size: str = "full") -> float | None:
    """Bytes that ours receives over XLA's; None where one was not compiled."""
    ours, xla = (record.get(size, {}).get(side, {}).get("received") for side in (OURS, XLA))
    if ours is None or xla is None:
        return None
    return float(ours) / float(xla) if xla else (1.0 if not ours else float("inf"))


def rows(records: list[Record]) -> list[list[str]]:
    """Head and rows of a table, a row for each program."""
    head = ["program", "mesh", "ours, MB", "XLA, MB", "ours / XLA", "predicted", "peak, MB: predicted / ours / XLA"]
    made = [head]
    for record in records:
        ours, xla = (record.get("full", {}).get(side, {}) for side in (OURS, XLA))
        mesh = " x ".join(f"{axis}={size}" for axis, size in record["mesh"].items())
        share = ratio(record)
        same = ours.get("predicted") == ours.get("received")
        peaks = " / ".join(_mb(each) for each in (ours.get("predicted_peak"), ours.get("peak"), xla.get("peak")))
        made.append(
            [
                record["name"],
                mesh,
                _mb(ours.get("received")),
                _mb(xla.get("received")),
                "none" if share is None else f"{share:.3f}",
                "equal" if same else _mb(ours.get("predicted")),
                peaks,
            ]
        )
    return made


def searched(records: list[Record]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: bytes of XLA's, of the schedule written by hand, and of the one found."""
    head = ["program", "XLA, MB", "written, MB", "found, MB", "at least, MB", "found / XLA"]
    return head, [
        [r["name"], *(_mb(r[key]) for key in ("xla", "ours", "received", "bound")), f"{r['received'] / r['xla']:.3f}"]
        for r in records
    ]


def searched_verdict(records: list[Record]) -> tuple[str, bool | None]:
    """What was found over XLA's: at most 0.7 times in geometric mean, and never more."""
    if not records:
        return "", None
    shares = [r["received"] / r["xla"] for r in records]
    more = sum(share > 1 for share in shares)
    text = f"geometric mean {geomean(shares):.3f} over {len(records)} programs, more than XLA's on {more}"
    return text, geomean(shares) <= 0.7 and not more


def _mb(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value / 1e6:.1f}" if value >= 1e6 else f"{value / 1e6:.4f}"


def verdict(records: list[Record]) -> str:
    """One line: how often no more, and the geometric mean."""
    shares = [share for record in records if (share := ratio(record)) is not None]
    no_more = sum(share <= 1 for share in shares)
    equal = sum(record["full"][OURS].get("predicted") == record["full"][OURS].get("received") for record in records)
    wrong = sum(bool(record["small"].get("wrong", True)) for record in records)
    return (
        f"No more bytes than XLA's on {no_more} of {len(records)}, geometric mean {geomean(shares):.3f}; predicted\n"
        f"and compiled bytes equal on {equal}; results that differ on {wrong}.\n"
    )


def notes(records: list[Record]) -> list[str]:
    """Why some rows are as they are."""
    without = [share for record in records if record["name"] != _FFT and (share := ratio(record)) is not None]
    known = {record["name"] for record in records}
    said = [f"- {name}: {why}.\n" for name, why in WHY.items() if name in known]
    return ["".join(said), f"Without {_FFT} the geometric mean is {geomean(without):.3f}.\n"]


def _pace(records: list[Record]) -> str:
    slow = ", ".join(record["name"] for record in slower_than(records, 1.0)) or "none"
    return f"Geometric mean {speed_of(records)}; slower than XLA's beyond noise: {slow}.\n"
