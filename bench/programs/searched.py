"""The twenty programs searched, with the pins that XLA has, beside the bytes that XLA receives.

`python -m bench.programs.searched` prints a row for each: bytes by XLA, by the schedule written by hand, and by the one
found. XLA's figures are those of `bench/results/programs.json`. Every product is cut by every axis that can cut it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results" / "programs.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs with this in their names")
    parser.add_argument("--profile", default="gpu", help="the machine that they are searched for")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each search")
    chosen = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    import redistrib as rd
    from bench.programs.all import cases

    known = {record["name"]: record["full"] for record in json.loads(RESULTS.read_text())["records"]}
    ratios = []
    for name, case in cases("full").items():
        if chosen.only not in name:
            continue
        found = rd.search(
            case.function, case.args, case.mesh, in_shardings=case.ins, out_shardings=case.outs,
            objective="bytes", profile=chosen.profile, limit=chosen.limit, progress=False,
        )[0]  # fmt: skip
        xla, ours = (known[name][who]["received"] for who in ("xla", "ours"))
        ratios.append(found.received_bytes / xla)
        print(f"{name} | {xla:,} | {ours:,} | {found.received_bytes:,} | {ratios[-1]:.2f}", flush=True)
    print(f"geometric mean of {len(ratios)}: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
