"""What plans are lowered to for JAX, kept from one version to the next: the collectives of sixty, and their groups.

    python -m tests.jax.kept_lowered      # from the root of the repository: lowers them all anew

The plans are among those of `tests/synthesis/kept_plans_long.jsonl`. Only the order, the kinds and the groups of
collectives are kept, which do not depend on the version of JAX.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from tests.synthesis import kept_plans

KEPT = Path(__file__).with_name("kept_lowered.json")
PLANS = 60
DEVICES = 24
DTYPES = ("float32", "int32", "int8", "uint8", "float16", "bfloat16", "bool", "complex64")
COLLECTIVE = re.compile(r'"stablehlo\.(all_gather|all_to_all|all_reduce|collective_permute|reduce_scatter)"')
GROUPS = re.compile(r"(?:replica_groups|source_target_pairs) = dense<([^>]*)>")


def answers() -> list[dict[str, Any]]:
    """The collectives of each plan, with the number of its call in the file of plans."""
    from redistrib.backends.jax.execute import require_plan
    from redistrib.errors import RedistribError

    result: list[dict[str, Any]] = []
    calls = [call for call, was in kept_plans.kept(kept_plans.LONG) if was.get("steps")]
    for number, call in enumerate(calls):
        if len(result) == PLANS:
            break
        if number % 2:
            continue
        try:
            plan = kept_plans.plan_of(call)
            require_plan(plan)
            lowered = collectives(plan) if plan.devices <= DEVICES and plan.dtype in DTYPES else []
        except RedistribError:  # over two meshes, or of tiles that JAX has no arrays of
            continue
        if lowered:
            result.append({"call": number, "collectives": lowered})
    return result


def collectives(plan: Any) -> list[str]:
    """Each collective of a plan's lowered program, in order, with a digest of its groups or pairs."""
    import jax
    import numpy as np
    from jax.sharding import Mesh

    from redistrib.backends.jax.execute import to_jax

    mesh = plan.source_mesh
    devices = np.array(jax.devices())[list(mesh.devices)].reshape(mesh.shape)
    sums = bool(plan.source.partial or plan.target.partial)
    move = to_jax(plan, Mesh(devices, mesh.names), stacked=sums)
    shape = plan.source.padded_shape
    if plan.source.partial:
        shape = (plan.before.summands, *shape)
    argument = jax.ShapeDtypeStruct(shape, plan.dtype, sharding=move.source_sharding)
    text = jax.jit(move).lower(argument).as_text()
    found = []
    for line in text.splitlines():
        kind = COLLECTIVE.search(line)
        groups = GROUPS.search(line)
        if kind is not None and groups is not None:
            found.append(f"{kind[1]} {hashlib.sha256(groups[1].encode()).hexdigest()[:8]}")
    return found


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={DEVICES}")
    found = answers()
    rows = ",\n".join(json.dumps(row) for row in found)
    KEPT.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    print(f"{KEPT.name}: {len(found)} plans")


if __name__ == "__main__":
    main()
