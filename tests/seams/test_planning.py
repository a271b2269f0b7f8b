"""Plans of every public call over meshes with and without devices, in every context: one and the same, or refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.programs.ir.text import digest_of
from redistrib.programs.stages.layout import Layout
from tests.seams.cells import CONTEXTS, MESH, NUMBERS, layer

ABSTRACT = AbstractMesh((2, 2), ("a", "b"))
SCHEDULE = [rd.along("a", {"x": 0}), rd.along("b", {"x": 1})]


def _leaf(mesh: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((4, 4), NUMBERS.dtype, sharding=NamedSharding(mesh, P("a", "b")))


PLANNED: dict[str, Callable[[Any], Any]] = {
    "reshard": lambda mesh: str(rd.reshard_plan(_leaf(mesh), NamedSharding(mesh, P("b", "a")))),
    "reshard of trees": lambda mesh: str(rd.reshard_plan({"w": [_leaf(mesh)] * 2}, {"*": P("b")}, mesh=mesh)),
    "reshard through": lambda mesh: str(
        rd.reshard_plan({"w": _leaf(mesh)}, {"*": P("b")}, mesh=mesh, through=lambda t: {"w": t["w"].T * 2})
    ),
    "to_jax": lambda mesh: str(rd.synthesize(_leaf(mesh).sharding, NamedSharding(mesh, P("b", "a")), shape=(4, 4))),
    "distribute": lambda mesh: digest_of(rd.distribute(layer, (NUMBERS,), mesh, schedule=SCHEDULE).program),
    "search": lambda mesh: digest_of(rd.search(layer, (NUMBERS,), mesh, progress=False)[0].program),
    "pipeline": lambda mesh: digest_of(
        rd.pipeline(
            layer,
            (NUMBERS,),
            {"x": 0},
            Layout(data=2, microbatches=2),
            devices=None if mesh is ABSTRACT else jax.devices()[:2],
        ).program
    ),
}


@cache
def _without_context(name: str) -> Any:
    return PLANNED[name](MESH)


@pytest.mark.parametrize("mesh", [MESH, ABSTRACT], ids=["devices", "abstract"])
@pytest.mark.parametrize("name", PLANNED)
def test_plans_in_every_context_are_those_in_none(name: str, mesh: Any) -> None:
    for context in CONTEXTS:
        with CONTEXTS[context]():
            assert PLANNED[name](mesh) == _without_context(name), context
