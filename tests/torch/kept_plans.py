"""Plans of PyTorch's model states, kept from one version to the next in `kept_plans.json`.

    python tests/torch/kept_plans.py      # from the root of the repository: plans them all anew

Whoever changes how tensors are packed, ordered or counted sees in the file's difference what becomes of which tree.
"""

from __future__ import annotations

import json
from pathlib import Path

from ranks import Ranks

KEPT = Path(__file__).with_name("kept_plans.json")


def answers(ranks: Ranks) -> dict[str, list[str]]:
    """The lines of each plan as rank 0 prints them and, where they differ, as rank 3 does, on which more bytes stay."""
    told = ranks.run("kept.plans", [0, 3])
    return {**told[0], **{f"{name}, on rank 3": lines for name, lines in told[3].items() if told[0].get(name) != lines}}


def kept() -> dict[str, list[str]]:
    result: dict[str, list[str]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return result


def main() -> None:
    with Ranks(8) as ranks:
        found = answers(ranks)
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{KEPT.name}: {len(found)} plans")


if __name__ == "__main__":
    main()
