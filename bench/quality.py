"""What plans are worth, counted: bytes against the lower bound, tiles against the larger end, collectives.

Under `"exact"` a plan is to receive the lower bound on every problem, with no more than the paper's algorithm, nor than
what XLA compiled where `python -m bench xla-cpu` or `cluster` met the same problem. How often the paper's algorithm
finds what the TPU preset models as faster is counted too. Problems that need not move anything are drawn as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import Any

from bench import results
from bench.children import progress
from bench.library import plan_of
from bench.problems import DEFAULT_SEED, SETS, Problem, problem_set
from bench.stats import geomean
from bench.summary import XLA

COUNTS = {"U222": 300, "H222": 300, "U2222": 60, "U88": 60, "U444": 60, "U234": 60, "U46": 60, "S234": 100,
          "layouts": 15, "paper": 4}  # fmt: skip
ROUNDED = 1e-6  # the results of other benches keep seven digits
LEVELS = (1, 2, 4, 8)


def compiled_by_xla() -> Generator[tuple[Problem, dict[str, Any]]]:
    """Problems that XLA compiled in another bench, and what it made of them."""
    for bench in ("xla_cpu", "cluster"):
        found = results.load(bench)
        for record in found["records"] if found else []:
            if "received" in record.get(XLA, {}):
                yield Problem.from_json(record["problem"]), record[XLA]


def of_set(name: str, problems: list[Problem]) -> dict[str, Any]:
    """Counts over one set: of problems, unless the key says otherwise."""
    exact = [plan_of(p, {"cost_model": "exact"})[0] for p in problems]
    paper = [plan_of(p, {"cost_model": "exact", "algorithm": "paper"})[0] for p in problems]
    tpu = [plan_of(p, {"cost_model": "tpu"})[0] for p in problems]
    paper_tpu = [plan_of(p, {"cost_model": "tpu", "algorithm": "paper"})[0] for p in problems]
    moved = [sum(t.received) / sum(t.lower_bound) for t in tpu if sum(t.lower_bound)]
    pairs = list(zip(exact, paper, strict=True))
    return {
        "set": name,
        "problems": len(problems),
        "still": sum(not sum(e.lower_bound) for e in exact),
        "off_bound": sum(e.received != e.lower_bound for e in exact),
        "taller": sum(p.height > max(p.before.tile_size, p.after.tile_size) for p in (*exact, *tpu)),
        "more_than_paper": sum(sum(e.received) > sum(p.received) for e, p in pairs),
        "tie_more_collectives": sum(
            sum(e.received) == sum(p.received) and e.collectives > p.collectives for e, p in pairs
        ),
        "at_most": {str(k): sum(e.collectives <= k for e in exact) / len(exact) for k in LEVELS},
        "most": max(e.collectives for e in exact),
        "tpu_over_bound": geomean(moved),
        "tpu_at_most": {str(k): sum(t.collectives <= k for t in tpu) / len(tpu) for k in LEVELS},
        "tpu_dearer_than_paper": sum(t.cost > p.cost * (1 + 1e-9) for t, p in zip(tpu, paper_tpu, strict=True)),
    }


def against_xla() -> dict[str, Any]:
    """Plans under `"exact"` against what XLA compiled."""
    more = tie = count = 0
    for problem, theirs in compiled_by_xla():
        plan, _ = plan_of(problem, {"cost_model": "exact"})
        mine = sum(plan.received) * plan.itemsize / len(plan.received)
        count += 1
        more += mine > theirs["received"] * (1 + ROUNDED)
        same = abs(mine - theirs["received"]) <= ROUNDED * mine
        tie += same and plan.collectives > sum(theirs["kinds"].values())
    return {"set": "XLA", "problems": count, "more_than_xla": more, "tie_more_collectives": tie}


def measure(seed: int) -> Generator[dict[str, Any]]:
    for name, count in progress(list(COUNTS.items()), "quality"):
        drawn = SETS[name].problems(seed, count, moving=False) if name in SETS else problem_set(name, seed, count)
        yield of_set(name, drawn)
    yield against_xla()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--full", action="store_true", help="changes nothing; taken for the sake of the others")
    parser.add_argument("--minutes", type=float, default=None, help="take no new set after this time")
    parser.add_argument("--name", default="quality", help="name of the results file")


def failures(record: dict[str, Any]) -> int:
    """Problems on which something is wrong that must not be, on any set."""
    keys = ("off_bound", "taller", "more_than_paper", "more_than_xla", "tie_more_collectives")
    return sum(record.get(key, 0) for key in keys)


def main(arguments: argparse.Namespace) -> int:
    records = results.collect(arguments.name, measure(arguments.seed), {"seed": arguments.seed}, arguments.minutes)
    for record in records:
        print(
            ", ".join(
                f"{key} {value:.3f}" if isinstance(value, float) else f"{key} {value}" for key, value in record.items()
            )
        )
    return 1 if any(map(failures, records)) else 0
