"""Searches kept from one version to the next: each with what was found, what it takes, and what mattered.

    python -m tests.programs.search.kept_searches      # from the root of the repository: searches them all anew

Whoever changes the search sees in the file's difference which schedules became other ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

KEPT = Path(__file__).with_name("kept_searches.json")
PROGRAMS = 60


def searches() -> dict[str, Callable[[], list[str]]]:
    """What is searched, by name."""
    import jax
    import jax.numpy as jnp

    import redistrib as rd
    from redistrib.cost.presets import PRESETS
    from tests.programs.search import models

    square, few, x = models.form(64, 64), [models.form(256, 256)] * 3, models.form(256, 256)
    row = (models.form(64, 256), models.form(256, 256))
    slow = replace(PRESETS["gpu"], name="slow", bandwidth=1e9)

    def product(x: Any, w: Any) -> Any:
        return x @ w

    def step(params: Any, x: Any) -> Any:
        grads = jax.grad(lambda p: jnp.sum(models.chain(p, x)))(params)
        return jax.tree.map(lambda p, g: p - g, params, grads)

    def case(function: Any, args: Any, mesh: Any, **options: Any) -> Callable[[], list[str]]:
        def search() -> list[str]:
            try:
                return told(rd.search(function, args, mesh, **options)[0])
            except rd.RedistribError as error:
                return [str(error)]

        return search

    def staged() -> list[str]:
        given = {"pipeline": True, "batch": {"x": 0}, "microbatches": (2, 4), "machine": "v100"}
        return rd.search(models.chain, ([square] * 4, square), devices=4, **given).table(12).splitlines()

    pins = [rd.along("d", {"x": 1}), rd.work("d", {"dot_general": "n0"})]
    two = {"d": 2, "t": 2}
    return {
        **{f"product, {name}": case(product, row, {"d": 4}, machine=name) for name in ("gpu", "tpu", "cpu", "v100")},
        "product, links of its own": case(product, row, {"d": 4}, machine=slow),
        "product, bytes": case(product, row, {"d": 4}, machine="gpu", objective="bytes"),
        "product, pinned": case(product, row, {"d": 4}, machine="gpu", pins=pins),
        "product, given types": case(
            product, row, two, machine="gpu", in_shardings=("[32{d}64, 256]", None), out_shardings="[64, 128{t}256]"
        ),
        "chain": case(models.chain, (few, x), two, machine="gpu"),
        "chain, turned": case(models.turned, (few, x), two, machine="gpu"),
        "chain, bytes": case(models.chain, (few, x), two, machine="gpu", objective="bytes"),
        "step": case(step, (few[:2], x), two, machine="gpu", state={"params": 0}),
        "step, bytes": case(step, (few[:2], x), two, machine="gpu", objective="bytes"),
        **{
            f"step, {limit}": case(step, (few[:2], x), two, machine="gpu", memory_limit=limit, state={"params": 0})
            for limit in ("1.2MB", "900kB", "600kB")
        },
        **{
            f"long step, {limit}": case(step, (few, x), two, machine="gpu", memory_limit=limit, state={"params": 0})
            for limit in ("1.6MB", "1.4MB")
        },
        "step, bytes in 900kB": case(
            step, (few[:2], x), {"d": 4}, machine="gpu", objective="bytes", memory_limit="900kB"
        ),
        "chain on any mesh, and in stages": staged,
    }


def told(found: Any) -> list[str]:
    """What a candidate says of itself, its schedule, and what its pins cost."""
    form = hashlib.sha256(found.schedule.to_json().encode()).hexdigest()[:12]
    return [*str(found).splitlines(), *map(str, found.pin_costs()), f"schedule {form}"]


def program(seed: int) -> list[str]:
    """What is found of a random program, on one axis or two."""
    from redistrib.programs.lower.emit import emit
    from redistrib.programs.lower.versions import MovePlanner
    from redistrib.programs.search.descent import searched
    from tests.programs.search import oracle

    random = Random(seed)
    graph, mesh, profile = oracle.program(random), random.choice(["x=4", "x=2,y=2"]), random.choice(["gpu", "tpu"])
    problem = oracle.problem(graph, mesh, profile, ties=random.choice([0.0, 1e-4]))
    found = searched(problem, "p").result
    cuts = found.decisions.copy()
    cuts.ends, cuts.sources = {}, None  # as tactics leave them
    made = emit(cuts, MovePlanner(problem.machine.links))
    values = ", ".join(str(value.type) for value in made.values.values())
    form = hashlib.sha256(values.encode()).hexdigest()[:12]
    return [mesh, profile, f"{found.price:.6g}", f"{found.bound:.6g}", form]


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    import jax

    lines = {name: search() for name, search in searches().items()}
    found = {"jax": jax.__version__, "searches": lines, "programs": [" ".join(program(k)) for k in range(PROGRAMS)]}
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{KEPT.name}: {len(lines)} searches, {PROGRAMS} programs")


if __name__ == "__main__":
    main()
