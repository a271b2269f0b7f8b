"""Loops in a search: the body decided once, at the price of all its steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.programs.ir.program import Loop, Program
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.axes import AxesProblem
from redistrib.programs.search.classes import classes_of
from redistrib.programs.search.evaluation import evaluated
from redistrib.programs.search.found import program_of
from redistrib.programs.search.held_bounds import least_held
from redistrib.programs.search.layers import fold, unfold
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.starting import starting
from redistrib.programs.time.entry import simulate
from redistrib.programs.time.kernels.fusion import kernels_of
from tests.programs.search import oracle

LAYERS = 6
MESH = {"d": 4}


def normal(*shape: int) -> Any:
    return np.random.default_rng(math.prod(shape)).normal(size=shape).astype("float32") / 8


def stack(params: Any, x: Any) -> Any:
    return lax.scan(lambda x, own: (x + jax.nn.relu(x @ own["up"]) @ own["down"], None), x, params)[0]


def step(params: Any, x: Any) -> Any:
    gradients = jax.grad(lambda params, x: (stack(params, x) ** 2).mean())(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def of_layers(layers: int = LAYERS) -> tuple[Any, Any]:
    return {"up": normal(layers, 32, 64), "down": normal(layers, 64, 32)}, normal(64, 32)


def accumulated(w: Any, xs: Any) -> Any:
    """Gradients of microbatches, added up."""
    gradient = jax.grad(lambda w, x: ((x @ w) ** 2).mean())
    return lax.scan(lambda total, x: (total + gradient(w, x), None), jnp.zeros_like(w), xs)[0]


def recurrent(w: Any, u: Any, xs: Any) -> Any:
    def loss(w: Any, u: Any) -> Any:
        def one(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x @ u)
            return h, h

        return (lax.scan(one, jnp.zeros((xs.shape[1], w.shape[0])), xs)[1] ** 2).mean()

    return jax.grad(loss, (0, 1))(w, u)


def decoded(w: Any, x: Any) -> Any:
    def goes_on(state: Any) -> Any:
        return (state[0] < 10) & (jnp.abs(state[1]).sum() < 1e9)

    return lax.while_loop(goes_on, lambda state: (state[0] + 1, jnp.tanh(state[1] @ w)), (0, x))[1]


def nested(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, _: (lax.fori_loop(0, 3, lambda k, d: jnp.tanh(d @ w) + k, c), c.sum()), x, length=5)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a training step": (step, of_layers()),
    "microbatches": (accumulated, (normal(32, 32), normal(4, 64, 32))),
    "a recurrent network": (recurrent, (normal(32, 32), normal(16, 32), normal(8, 64, 16))),
    "decoding": (decoded, (normal(32, 32), normal(64, 32))),
    "loops in loops": (nested, (normal(64, 32), normal(32, 32))),
}


def same(found: Any, wanted: Any) -> None:
    for own, other in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-4, atol=1e-5)


def looped(program: Program) -> list[Loop]:
    return [op for op in program.ops if isinstance(op, Loop)]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("objective", ["seconds", "bytes"])
def test_what_is_found_is_right_and_takes_what_it_says(case: str, objective: Any) -> None:
    function, args = CASES[case]
    (found,) = rd.search(function, args, MESH, objective=objective, trip_count=10, progress=False)
    assert looped(found.program)
    same(found.distributed(*args), jax.jit(function)(*args))
    guess = evaluated(found.problem, found.result.decisions)
    assert guess.received == found.received_bytes == found.program.received_bytes
    assert guess.memory == pytest.approx(found.memory, rel=0.02)
    assert objective == "bytes" or guess.seconds == pytest.approx(found.seconds, rel=1e-9)
    assert found.bound <= found.rank[0]


def _drawn(function: Any, args: Any, seed: int, profile: str = "gpu") -> tuple[SearchProblem, Propagation, float]:
    """A schedule drawn at random, and its price as the search has it."""
    random, problem = Random(seed), oracle.traced(function, args, "{d:4}")
    axis = AxesProblem(problem, problem.undecided(), ["d"], classes_of(problem))
    while True:
        choice = [random.randrange(len(own)) for own in axis.options]
        price = axis.choices.price(choice)
        if math.isfinite(price):
            return problem, axis.chosen(choice), price


@pytest.mark.parametrize("case", CASES)
def test_the_price_of_any_schedule_is_what_its_program_takes(case: str) -> None:
    function, args = CASES[case]
    for seed in range(4):
        problem, decisions, price = _drawn(function, args, seed)
        program = program_of(problem, decisions, "p")
        seconds = simulate(program, problem.machine, record=False).seconds
        assert price == pytest.approx(seconds, rel=1e-9), seed
        assert evaluated(problem, decisions).received == program.received_bytes


def test_the_prices_of_starts_know_the_steps() -> None:
    few, many = (oracle.traced(step, of_layers(layers), "{d:4}") for layers in (4, 40))
    for one, other in zip(starting(few), starting(many), strict=True):
        program, evaluation = program_of(many, other, "p"), evaluated(many, other)
        assert evaluation.price("seconds") > 5 * evaluated(few, one).price("seconds")
        assert evaluation.received == program.received_bytes
        assert least_held(many.graph, 4, {}, ())[0] <= oracle.peak(program)


def test_a_search_does_not_grow_with_the_steps() -> None:
    """The same decisions whatever the number of steps, which the price is linear in."""
    found = {steps: rd.search(decoding_of(steps), CASES["decoding"][1], MESH)[0] for steps in (2, 127, 128, 129, 500)}
    assert len({len(one.problem.graph.operations) for one in found.values()}) == 1
    assert len({repr(one.result.decisions.cuts) for one in found.values()}) == 1
    each = found[129].seconds - found[128].seconds
    assert each > 0
    assert found[500].seconds == pytest.approx(found[128].seconds + 372 * each, rel=1e-9)
    (loop,) = looped(found[500].program)
    assert loop.steps == 500


def decoding_of(steps: int) -> Any:
    return lambda w, x: lax.fori_loop(0, steps, lambda k, x: jnp.tanh(x @ w), x)


def test_a_while_counts_as_often_as_is_said() -> None:
    one, ten = (rd.search(decoded, CASES["decoding"][1], MESH, trip_count=count)[0].seconds for count in (1, 10))
    assert 5 * one < ten < 10 * one


def test_no_schedule_that_people_write_is_better() -> None:
    args = of_layers()
    (found,) = rd.search(step, args, MESH, state={"params": 0})
    for cuts in ({"x": 0}, {"up": 1, "down": 1}, {"up": 2, "down": 1}):
        f = rd.distribute(step, args, MESH, schedule=rd.along("d", cuts))
        assert found.seconds <= simulate(f.program, found.problem.machine).seconds * (1 + 1e-9)


def test_the_weights_of_steps_are_cut_as_they_are_stored() -> None:
    """A schedule to start from cuts stacked weights, but not along the steps; and one cuts hidden units."""
    problem = oracle.traced(step, of_layers(), "{d:4}")
    ways = [{str(end).partition("/")[2]: at.get("d") for end, at in own.ends.items()} for own in starting(problem)]
    assert {"up": 1, "down": 1} in [{key: one[key] for key in ("up", "down")} for one in ways]
    assert {"up": 2, "down": 1} in [{key: one[key] for key in ("up", "down")} for one in ways]


def test_a_limit_of_bytes_is_kept() -> None:
    args = of_layers()
    free = rd.search(step, args, MESH, state={"params": 0})[0]
    tight = rd.search(step, args, MESH, state={"params": 0}, memory_limit=free.memory * 3 // 4)[0]
    assert tight.memory <= free.memory * 3 // 4
    assert tight.seconds >= free.seconds
    same(tight.distributed(*args), jax.jit(step)(*args))


def test_auto_keeps_loops() -> None:
    args = of_layers(3)
    f = rd.distribute(step, args, MESH, schedule="auto")
    assert [loop.steps for loop in looped(f.program)] == [3, 3]
    same(f(*args), jax.jit(step)(*args))


def test_a_schedule_is_written_and_read_with_its_loops() -> None:
    from redistrib.programs.schedule.schedule import Schedule

    args = of_layers()
    (found,) = rd.search(step, args, MESH)
    read = Schedule.from_json(found.schedule.to_json())
    f = rd.distribute(step, args, MESH, schedule=read)
    assert f.program.received_bytes == found.received_bytes
    same(f(*args), jax.jit(step)(*args))


def test_layers_with_loops_in_them_are_folded() -> None:
    def layer(own: Any, x: Any) -> Any:
        rows = x.reshape(4, -1, 32)
        return x + lax.scan(lambda c, row: (c, jax.nn.relu(row @ own["up"]) @ own["down"]), 0.0, rows)[1].reshape(
            64, 32
        )

    def loss(params: Any, x: Any) -> Any:
        for own in params:
            x = layer(own, x)
        return (x**2).mean()

    params = [{"up": normal(32, 64), "down": normal(64, 32)} for _ in range(12)]
    problem = oracle.traced(jax.grad(loss), (params, normal(64, 32)), "{d:4}")
    own = fold(problem)
    assert len(own.graph.operations) < 0.6 * len(problem.graph.operations)
    assert {loop.steps for loop in own.graph.loops} == {4}
    for decisions in starting(own):
        whole, every = unfold(own, decisions)
        few, many = evaluated(own, decisions), evaluated(whole, every)
        assert few.seconds == pytest.approx(many.seconds, rel=0.05)
        assert evaluated(whole, every).received == program_of(whole, every, "p").received_bytes


def test_nothing_is_fused_into_the_steps_of_a_loop() -> None:
    def function(x: Any, w: Any) -> Any:
        y = jnp.sqrt(x)
        return lax.scan(lambda c, _: (c * 2 + y, None), w, length=9)[0]

    graph = oracle.traced(function, (normal(8, 8), normal(8, 8)), "{d:4}").graph
    kernels = dict(zip((operation.name for operation in graph.operations), kernels_of(graph), strict=True))
    assert kernels["sqrt"].stores
    assert not any(kernels[operation.name].runs for operation in graph.operations if not operation.edge.computes)
