"""Programs kept from one version to the next: functions cut by tactics, each beside the moves that were derived for it.

    python -m tests.programs.run.kept_programs      # from the root of the repository: derives them all anew

Whoever changes how layouts are derived sees in the file's difference which moves became other ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("kept_programs.json")
MODELS = ("exact", "gpu")


def answers() -> dict[str, dict[str, Any]]:
    """What is derived today, by the program's name and the cost model's."""
    return {f"{name}, {model}": derived(case, model) for name, case in cases().items() for model in MODELS}


def cases() -> dict[str, Any]:
    """The programs of the bench, those that predictions of memory are tried on too."""
    from bench.programs.all import cases as compared
    from tests.programs.run import others

    return {**compared(), **{f"{case.name} (memory)": case for case in (*others.known(), *others.held_out())}}


def derived(case: Any, model: str) -> dict[str, Any]:
    """The moves of a program, and what its operations are cut by, as a digest."""
    import redistrib as rd
    from redistrib.programs.ir.program import Move

    function = case.distributed(machine=model)
    program = function.program
    moves = [op for op in program.ops if isinstance(op, Move)]
    table = re.sub(r" +\S+\.py:\d+|[ -]{2,}| +", " ", str(function))  # widths of columns depend on names of files
    simulated = rd.simulate(program, "gpu", record=False)
    return {
        "moves": [_told(move) for move in moves],
        "received_bytes": program.received_bytes,
        "memory": function.memory,
        "compiled_memory": function.compiled_memory,
        "cost": [function.cost.flops, function.cost.received_bytes, f"{function.cost.seconds:.6g}"],
        "seconds": f"{simulated.seconds:.6g}",
        "held_bytes": max(simulated.peak_bytes.values()),
        "table": hashlib.sha256(table.encode()).hexdigest()[:12],
    }


def _told(move: Any) -> str:
    kinds = "as overlapping tiles" if move.plan is None else " ".join(step.kind for step in move.plan.steps)
    return f"{move.out.name} {move.out.type}: {kinds}"


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=24")
    import jax

    found = {"jax": jax.__version__, "programs": answers()}
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{KEPT.name}: {len(found['programs'])} programs")


if __name__ == "__main__":
    main()
