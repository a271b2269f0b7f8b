"""The twenty programs searched, with the pins that XLA has, beside the bytes that XLA receives.

`python -m bench.programs.searched` prints a row for each: bytes by XLA, by the schedule written by hand, and by the one
found, all of which `bench/results/programs_searched.json` keeps. XLA's figures are those of
`bench/results/programs.json`. Every product is cut by every axis that can cut it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from typing import Any

from bench import results
from bench.stats import geomean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs with this in their names")
    parser.add_argument("--profile", default="gpu", help="the machine that they are searched for")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each search")
    parser.add_argument("--name", default="programs_searched", help="name of the results file")
    chosen = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    settings = {"profile": chosen.profile, "limit_s": chosen.limit}
    records = results.collect(chosen.name, searched(chosen.only, chosen.profile, chosen.limit), settings)
    for record in records:
        figures = (f"{record[key]:,}" for key in ("xla", "ours", "received"))
        print(" | ".join((record["name"], *figures, f"{record['received'] / record['xla']:.2f}")))
    print(f"geometric mean of {len(records)}: {geomean([r['received'] / r['xla'] for r in records]):.2f}")


def searched(only: str, profile: str, limit: float) -> Generator[dict[str, Any]]:
    """A record for each program with this in its name."""
    import redistrib as rd
    from bench.programs.all import cases

    counted = results.load("programs")
    assert counted is not None, "run `python -m bench programs` first"
    known = {record["name"]: record["full"] for record in counted["records"]}
    for name, case in cases("full").items():
        if only not in name:
            continue
        found = rd.search(
            case.function, case.args, case.mesh, in_shardings=case.ins, out_shardings=case.outs,
            objective="bytes", profile=profile, limit=limit, progress=False,
        )[0]  # fmt: skip
        yield {
            "name": name,
            **{who: known[name][who]["received"] for who in ("xla", "ours")},
            "received": found.received_bytes,
            "bound": found.bound,
            "complete": found.found.complete,
        }


if __name__ == "__main__":
    main()
