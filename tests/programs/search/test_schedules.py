"""Schedules that are found for JAX functions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.programs.schedule.schedule import Schedule
from tests.programs.run import models as small
from tests.programs.search import models


def agree(found: Any, wanted: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


ARGS = (small.MLP_PARAMS, small.whole(16, 8), small.whole(16, 16))


@pytest.mark.parametrize("profile", ["gpu", "tpu"])
def test_what_is_found_computes_the_function(profile: str) -> None:
    found = rd.search(small.sgd, ARGS, {"a": 2, "b": 4}, state={"params": 0}, machine=profile)
    agree(found.distributed(*ARGS), small.sgd(*ARGS))
    ends = {value.name: value.type for value in found[0].program.inputs}
    outs = [found[0].program.values[name].type for name in found[0].program.outputs]
    assert outs[:3] == [ends[f"params/{name}"] for name in ("b1", "w1", "w2")]


def test_the_schedule_distributes_the_function_the_same_way() -> None:
    found = rd.search(small.sgd, ARGS, {"d": 8}, state={"params": 0}, machine="gpu")
    again = Schedule.from_json(found.schedule.to_json())
    assert again == found.schedule
    f = rd.distribute(small.sgd, ARGS, {"d": 8}, schedule=again, machine="gpu")
    assert str(f.program) == str(found[0].program)
    agree(f(*ARGS), small.sgd(*ARGS))


def test_auto_is_a_search() -> None:
    f = rd.distribute(small.mlp, ARGS[:2], {"d": 8}, schedule="auto", out_shardings=P("d"))
    agree(f(*ARGS[:2]), small.mlp(*ARGS[:2]))
    assert f.out_shardings.spec == P("d", None)


def test_the_price_is_what_the_simulator_says() -> None:
    found = rd.search(models.block_step, models.block_args(1, 1), {"t": 4}, state={"params": 0}, machine="tpu")[0]
    assert found.seconds == pytest.approx(found.result.price, rel=3e-4)
    assert found.result.bound <= found.result.price * (1 + 1e-6)


def test_constraints_inside_the_function_hold() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def turned(x: Any) -> Any:
        held = jax.lax.with_sharding_constraint(x * 2, jax.sharding.NamedSharding(mesh, P(None, "d")))
        return held + 1

    x = small.whole(8, 8)
    found = rd.search(turned, (x,), {"d": 4}, in_shardings=P("d"), out_shardings=P("d"), machine="gpu")[0]
    forms = {str(value.type) for value in found.program.values.values()}
    assert "[8, 2{d}8]" in forms
    agree(found.distributed(x), x * 2 + 1)
