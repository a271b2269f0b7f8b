"""A sample of every ordered pair of types with and without partial axes, executed: all summands, and all collectives.

Plans on one mesh are compiled together, some dozens to a program, which takes arrays with all summands in front.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import redistrib as rd
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.synthesis.synthesize import synthesize
from redistrib.testing import all_partial_types
from tests.jax.summands import check

MESHES = ("x=4", "x=2,y=2", "x=2,y=3", "x=2,y=2,z=2")
TOGETHER = 50


def every_pair(mesh: Mesh) -> list[tuple[DistType, DistType]]:
    """Every ordered pair of types of N elements along each of at most two dimensions, some of them partial."""
    result = []
    for rank in range(3):
        types = list(all_partial_types(mesh, (mesh.size,) * rank))
        result += [(a, b) for a in types for b in types if a.partial or b.partial]
    return result


def drawn(mesh: str, count: int, seed: int) -> list[rd.Plan]:
    """Plans of pairs drawn without repetition, of sums mostly."""
    rng, over = random.Random(f"{mesh} {seed}"), Mesh.of(mesh)
    plans = []
    for ends in rng.sample(every_pair(over), count):
        kind = rng.choice(["sum", "sum", "sum", "max", "min"])
        source, target = (replace(end, reduction=kind) if end.partial else end for end in ends)
        order = rng.choice(["any", "fixed"])
        model = rng.choice(["exact", "exact", "tpu", "cpu"])
        plans.append(synthesize(source, over, target, over, dtype="int32", model=model, order=order))
    return plans


def test_some_pairs() -> None:
    for mesh in MESHES:
        check(drawn(mesh, 10, 0))


THOUSAND = {"x=4": len(every_pair(Mesh.of("x=4"))), "x=2,y=2": 250, "x=2,y=3": 250}
THOUSAND["x=2,y=2,z=2"] = 1000 - sum(THOUSAND.values())


@pytest.mark.long
@pytest.mark.parametrize("mesh", MESHES)
def test_a_thousand_pairs(mesh: str) -> None:
    plans = drawn(mesh, THOUSAND[mesh], 1)
    for k in range(0, len(plans), TOGETHER):
        check(plans[k : k + TOGETHER])
