"""Every argument of a search has an effect on each way through it, or is refused."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.cost.presets import PRESETS
from redistrib.errors import ChoiceError, CutError, MemoryLimitError, MeshError, ProgramError, RedistribError
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.program import Loop
from redistrib.programs.rules.equation import RULES, Equation
from redistrib.programs.search.staged import Staged
from redistrib.programs.stages.layout import Layout
from redistrib.report import seconds_text
from tests.programs.search import models

X, W = models.form(16, 64), models.form(64, 64)
SLOW = replace(PRESETS["gpu"], name="slow", bandwidth=1e6)


def product(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def gradient(x: Any, w: Any) -> Any:
    return jax.grad(lambda w: (product(x, w) ** 2).sum())(w)


def looped(x: Any, w: Any) -> Any:
    return lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, length=200)[0]


# ---------------------------------------------------------------------------------------------- donate


def test_a_schedule_that_is_searched_gives_arguments_up() -> None:
    x = jnp.ones((16, 64))
    f = rd.distribute(lambda x: x + 1, (x,), {"d": 2}, schedule="auto", donate="x")
    placed = jax.device_put(x, f.in_shardings[0])
    jax.block_until_ready(f(placed))
    assert placed.is_deleted()
    with pytest.raises(CutError, match="no argument is called so"):
        rd.distribute(lambda x: x + 1, (x,), {"d": 2}, schedule="auto", donate="y")


def test_a_search_counts_memory_without_what_is_given_up() -> None:
    def thrice(x: Any) -> Any:
        return jnp.tanh(jnp.tanh(jnp.tanh(x)))

    free, kept = (rd.search(thrice, (X,), {"d": 2}, donate=donate)[0] for donate in (["x"], []))
    assert free.memory < kept.memory
    assert free.memory == free.distributed.memory
    rd.search(thrice, (X,), {"d": 2}, donate="x", memory_limit=free.memory)
    with pytest.raises(MemoryLimitError):
        rd.search(thrice, (X,), {"d": 2}, memory_limit=free.memory)
    f = rd.distribute(thrice, (X,), {"d": 2}, schedule="auto", donate="x", memory_limit=free.memory)
    assert f.memory == free.memory


def refused(equation: Equation) -> None:
    raise ProgramError(equation.kind, "", "Rule", "this rule is asked")


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "fn": (lambda x: x, TypeError, "takes 1 positional argument"),
    "args": ((X,), TypeError, "missing 1 required positional argument"),
    "mesh": ({"d": 0}, MeshError, "positive integer number of devices"),
    "schedule": ("best", CutError, "tactic"),
    "in_shardings": ("[2{e}2]", RedistribError, "e"),
    "out_shardings": ("[2{e}2]", RedistribError, "e"),
    "memory_limit": (1, MemoryLimitError, "1 bytes"),
    "machine": ("exact", RedistribError, "seconds"),
    "rules": ({"tanh": refused}, ProgramError, "this rule is asked"),
    "donate": (["nothing"], CutError, "no argument is called so"),
    "exact": ("yes", ProgramError, "exact is 'yes'; give True or False"),
    "trip_count": (-1, ProgramError, "trip_count is -1; give the steps of a while"),
    "ahead": ("yes", ProgramError, "ahead is 'yes'; give True or False"),
}


@pytest.mark.parametrize("argument", inspect.signature(rd.distribute).parameters)
def test_every_argument_of_distribute_is_read_beside_a_searched_schedule(
    argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong one is refused."""
    monkeypatch.setattr(jax, "devices", lambda *_: jax.local_devices()[:2])
    right = {"fn": product, "args": (X, W), "mesh": {"d": 2}, "schedule": "auto"}
    value, error, text = WRONG[argument]
    with pytest.raises(error, match=text):
        rd.distribute(**(right | {argument: value}))


# ------------------------------------------------------------------------------------------- pipelines


def stages(**options: Any) -> list[Staged]:
    found = rd.search(product, (X, W), devices=2, pipeline=True, batch={"x": 0}, **options)
    return [one for one in found if isinstance(one, Staged)]


def test_a_pipeline_runs_the_program_that_was_simulated() -> None:
    for one in stages(machine="gpu", microbatches=(2, 2)):
        assert one.distributed.program is one.program
    x, w = (np.arange(n * 64, dtype=np.float32).reshape(n, 64) / 999 for n in (16, 64))
    first = stages(machine="gpu", microbatches=(2, 2))[0]
    np.testing.assert_allclose(first.distributed(x, w), product(x, w), rtol=1e-5)


def test_a_pipeline_follows_rules_inside_loops_too() -> None:
    asked: list[str] = []

    def rule(equation: Equation) -> Any:
        asked.append(equation.kind)
        return RULES["tanh"](equation)

    found = rd.search(looped, (X, W), devices=2, pipeline=True, batch={"x": 0}, rules={"tanh": rule}, limit=0.1)
    assert set(asked) == {"tanh"}
    before = len(asked)
    found[0].distributed  # noqa: B018
    assert len(asked) == before, "it was traced once"


def test_a_loop_is_cut_by_its_rules_in_a_pipeline() -> None:
    x, w = (np.arange(n * 64, dtype=np.float32).reshape(n, 64) % 7 / 99 for n in (16, 64))
    f = rd.pipeline(looped, (x, w), {"x": 0}, Layout(data=2, microbatches=2))
    np.testing.assert_allclose(f(x, w), looped(x, w), rtol=1e-4)
    loops = [op for op in inlined(f.program).ops if isinstance(op, Loop)]
    assert len(loops) == 2
    for step in (loop.program for loop in loops):
        assert {dim.tile for value in step.inputs[-1:] for dim in value.type.dims[:1]} == {4}


def test_plans_of_a_pipeline_minimise_what_the_profile_says() -> None:
    found = rd.search(gradient, (X, W), devices=2, pipeline=True, batch={"x": 0}, machine=SLOW)
    programs = [one.distributed.program for one in found if isinstance(one, Staged)]
    assert {move.plan.cost_model for program in programs for move in program.moves if move.plan} == {"slow"}
    assert f"{gradient.__name__} on {found[0].name}, cpu: " in str(found)


def test_batches_count_dimensions_from_the_end_in_a_search_as_in_a_pipeline() -> None:
    found = rd.search(product, (X, W), devices=2, pipeline=True, batch={"x": -2}, microbatches=(2, 2))
    assert any(isinstance(one, Staged) for one in found)


def test_pipelines_are_ordered_by_the_objective() -> None:
    options: Any = {"devices": 2, "pipeline": True, "batch": {"x": 0}, "microbatches": (2, 2)}
    found = rd.search(gradient, (X, W), objective="bytes", **options)
    received = [one.received_bytes for one in found]
    assert received == sorted(received)
    assert all(one.rank == (one.received_bytes, one.name) for one in found)
    assert len(set(received)) > 1


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch": {"x": 0}}, ProgramError, "pipeline=True"),
        ({"microbatches": (2, 4)}, ProgramError, "pipeline=True"),
        ({"objective": "joules"}, ChoiceError, "no objective 'joules'; give one of 'seconds', 'bytes'"),
        ({"donate": "x", "pipeline": True, "batch": {"x": 0}}, ProgramError, "donate"),
    ],
)
def test_what_would_have_no_effect_is_refused(options: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        rd.search(product, (X, W), devices=2, **options)


# --------------------------------------------------------------------------------------------- reports


def test_what_a_pin_costs_is_printed_in_the_unit_of_the_objective() -> None:
    pin = rd.along("d", {"x": 1})
    (cost,) = rd.search(product, (X, W), {"d": 4}, pins=pin, objective="bytes")[0].pin_costs()
    assert cost.held > cost.free
    assert f"with it {cost.held:,.0f} bytes received, without {cost.free:,.0f}" in str(cost)
    (cost,) = rd.search(product, (X, W), {"d": 4}, pins=pin, machine="gpu")[0].pin_costs()
    assert f"with it {seconds_text(cost.held)}, without" in str(cost)


def test_constants_that_are_moved_for_a_pin_are_told_apart() -> None:
    one, other = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64)).astype("f4")), jnp.ones((64, 64)) * 2.5

    def function(x: Any) -> Any:
        return (x @ one) @ other

    pins = [rd.work("d", {"dot_general": "n0", "dot_general_1": "m0"}), rd.along("d", {"constant.*": 0})]
    found = rd.search(function, (X,), {"d": 4}, pins=pins)[0]
    moved = {name for cost in found.pin_costs() for name, _ in cost.moves}
    assert {"constant.0", "constant.1"} <= moved


def test_the_function_is_traced_once_for_all_meshes() -> None:
    calls = []

    def thrice(x: jax.Array) -> jax.Array:
        calls.append(x.shape)
        return 3 * x

    assert len(rd.search(thrice, (X,), devices=8)) > 1
    assert len(calls) == 1
