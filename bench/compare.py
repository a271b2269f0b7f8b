"""The speed tests of the parts against their stored baseline, by ratio to a calibration loop timed in the same run.

What a part takes divided by what the loop takes is nearly the same on any machine; a part is named as slower where this
quotient grew by more than `--factor`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench import machine
from bench.speed_run import run
from bench.xla_cpu import environment

BASELINE = Path(__file__).parent / "speed_baseline.json"


def quotients() -> dict[str, float]:
    """Each test's quickest time over the quickest calibration loop beside it, from a run made now."""
    records = run("bench/test_speed.py", "--benchmark-disable-gc", **environment(8))
    return {r["name"]: r["stats"]["min"] / r["extra_info"]["calibration"] for r in records}


def slower(now: dict[str, float], baseline: dict[str, float], factor: float) -> dict[str, float]:
    """The tests whose quotient grew by more than `factor`, with the growth; worst first."""
    growth = {name: now[name] / baseline[name] for name in now if name in baseline}
    return {name: g for name, g in sorted(growth.items(), key=lambda item: -item[1]) if g > factor}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--factor", type=float, default=1.5, help="growth from which a part is called slower")
    parser.add_argument("--store", action="store_true", help="make this run the new baseline")


def main(arguments: argparse.Namespace) -> int:
    now = quotients()
    if arguments.store:
        rounded = {name: round(quotient, 3) for name, quotient in now.items()}
        text = json.dumps({"machine": machine.describe(), "quotients": rounded}, indent=1)
        BASELINE.write_text(text + "\n")
        print(f"wrote {BASELINE}")
        return 0
    baseline: dict[str, float] = json.loads(BASELINE.read_text())["quotients"]
    for name, quotient in now.items():
        old = baseline.get(name)
        print(f"{name:32} {quotient:9.3f}" + (f"   {quotient / old:5.2f} x the baseline" if old else "   new"))
    missing = sorted(set(baseline) - set(now))
    if missing:
        print(f"no longer measured: {', '.join(missing)}")
    found = slower(now, baseline, arguments.factor)
    for name, growth in found.items():
        print(f"SLOWER: {name} takes {growth:.2f} times as long as the baseline, relative to the calibration loop")
    return 1 if found or missing else 0
