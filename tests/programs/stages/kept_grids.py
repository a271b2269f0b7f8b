"""DistIR's grids, kept from one version to the next: seconds and peak bytes of every layout of six models.

python -m tests.programs.stages.kept_grids      # from the root of the repository: simulates them all anew
"""

from __future__ import annotations

import json
from pathlib import Path

from bench.distir import GPT2, MLP, simulated

KEPT = Path(__file__).with_name("kept_grids.json")
EXAMPLES = (16, 2048)  # of a microbatch
Grid = dict[str, list[str | int]]  # by batch size and layout: seconds and bytes


def jobs() -> list[tuple[str, int]]:
    """Models, each with a size of its microbatches."""
    return [(model, examples) for model in (*MLP, *GPT2) for examples in EXAMPLES]


def answer(model: str, examples: int) -> Grid:
    """All layouts of a model with microbatches of so many examples."""
    records, _ = simulated((model, examples))
    return {
        f"{record['batch']} {record['layout']}": [f"{record['seconds']:.9g}", record["peak_bytes"]]
        for record in sorted(records, key=lambda record: (record["batch"], record["layout"]))
    }


def kept() -> dict[str, Grid]:
    grids: dict[str, Grid] = json.loads(KEPT.read_text(encoding="utf-8"))
    return grids


def main() -> None:
    grids = {f"{model}, {examples}": answer(model, examples) for model, examples in jobs()}
    rows = (f" {json.dumps(name)}: {json.dumps(grid)}" for name, grid in grids.items())
    KEPT.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    print(f"{KEPT.name}: {sum(map(len, grids.values()))} layouts")


if __name__ == "__main__":
    main()
