"""Plans of trees, kept from one version to the next: thirty tables of `rd.reshard_plan`, with and without a function.

    python -m tests.reshard.kept_trees      # from the root of the repository: plans them all anew

Whoever changes how arrays are packed, ordered or counted sees in the file's difference what becomes of which tree.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("kept_trees.json")
THROUGH = ("as it is", "cast", "fused, rows", "stacked", "heads", "split", "summed", "padded", "tiled", "constant")
OPTIONS: tuple[dict[str, Any], ...] = ({}, {"donate": True}, {"memory_limit": "64KiB"}, {"machine": "exact"})
MESHES = (
    ((("x", 8),), (("a", 2), ("b", 4))),
    ((("x", 2), ("y", 4)), (("a", 4), ("b", 2))),
    ((("x", 2), ("y", 2), ("z", 2)), (("a", 8),)),
    ((("x", 6),), (("a", 3), ("b", 2))),
    ((("x", 4),), (("a", 8),)),
)


def answers() -> dict[str, list[str]]:
    """The lines of each table, by the tree's name."""
    return {**{f"tree {number}": planned(number) for number in range(20)}, **{name: through(name) for name in THROUGH}}


def planned(number: int) -> list[str]:
    """The plan of a tree of parameters and the state of their optimizer, drawn from its number."""
    import jax

    import redistrib as rd

    rng = random.Random(number)
    meshes = [jax.make_mesh([n for _, n in axes], [a for a, _ in axes]) for axes in MESHES[number % len(MESHES)]]
    order = "fixed" if number % 7 == 6 else None
    params: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    for leaf in range(rng.randint(1, 6)):
        shape = tuple(rng.choice((24, 48, 96)) for _ in range(rng.randint(1, 3)))
        dtype = rng.choice(("float32", "bfloat16", "int8"))
        source, target = (jax.NamedSharding(mesh, _spec(rng, mesh, len(shape))) for mesh in meshes)
        params[f"w{leaf}"] = jax.ShapeDtypeStruct(shape, dtype, sharding=source)
        targets[f"w{leaf}"] = target
    state = {"params": params, "opt": {"mu": params, "nu": params}}
    wanted = {"params": targets, "opt": {"mu": targets, "nu": targets}}
    try:
        return str(rd.reshard_plan(state, wanted, order=order, **OPTIONS[number % len(OPTIONS)])).splitlines()
    except rd.errors.MemoryLimitError as error:
        return str(error).splitlines()


def _spec(rng: random.Random, mesh: Any, rank: int) -> Any:
    from jax.sharding import PartitionSpec

    cut: list[list[str]] = [[] for _ in range(rank)]
    for name in mesh.axis_names:
        if rng.random() < 0.8:
            rng.choice(cut).append(name)
    return PartitionSpec(*(tuple(names) or None for names in cut))


def through(name: str) -> list[str]:
    """The plan of a tree with a function on the way."""
    from jax.sharding import NamedSharding

    import redistrib as rd
    from tests.reshard.test_through import FUNCTIONS, TARGET, tree

    function, spec = FUNCTIONS[name]
    return str(rd.reshard_plan(tree(), NamedSharding(TARGET, spec), through=function)).splitlines()


def kept() -> dict[str, list[str]]:
    result: dict[str, list[str]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return result


def main() -> None:
    import conftest  # noqa: F401 - peaks are those that XLA has under the flags of the tests

    found = answers()
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{KEPT.name}: {len(found)} trees")


if __name__ == "__main__":
    main()
