"""A search begins with the schedules that people write, so that there is one to return whenever the time is up."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import redistrib as rd
from redistrib.errors import MemoryLimitError
from redistrib.lang.mesh import Mesh
from redistrib.programs.run.prepared import prepare
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.schedule.tactics import apply
from redistrib.programs.search.descent import searched
from redistrib.programs.search.entry import tied
from redistrib.programs.search.evaluation import evaluated
from redistrib.programs.search.fitting import feasible_result
from redistrib.programs.search.found import program_of
from redistrib.programs.search.held_bounds import least_held
from redistrib.programs.search.moves import Moves
from redistrib.programs.search.options import problem_of
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.starting import starting
from redistrib.programs.time.constants import machine
from redistrib.report import seconds_text
from tests.programs.search import models, oracle

MESH = Mesh.of({"d": 2, "t": 4})
MEGATRON = {"wq": 1, "wk": 1, "wv": 1, "wo": 0, "up": 1, "down": 0}
DATA = {"x": 0, "y": 0}


def problem(state: bool = True, pins: Any = (), layers: int = 2) -> SearchProblem:
    args = models.block_args(layers, 8, 32, 64, 4)
    given = prepare(models.block_step, args, MESH, None, None, None)
    back = tied(models.block_step, given, {"params": 0} if state else {})
    return problem_of(given, MESH, pins, back, machine("gpu"), "seconds")


def arguments(own: SearchProblem, *tactics: Any) -> dict[str, Any]:
    """The types of all arguments that tactics lead to."""
    found = Propagation(own.graph, MESH)
    apply(tactics, found)
    return {array.name: {*found.input_type(array.name).axes} for array in own.graph.inputs}


@pytest.mark.parametrize("state", [True, False])
def test_what_people_write_is_among_the_schedules_to_start_from(state: bool) -> None:
    """Data parallel, FSDP, Megatron and their products; with state and without, each as its tactics say."""
    own = problem(state)
    written = {
        "data": [rd.along("d", DATA), rd.along("t", DATA)],
        "fsdp": [rd.along("d", DATA), rd.along("t", DATA), rd.along("d", {"params": "first"})],
        "megatron": [rd.along("d", DATA), rd.along("t", MEGATRON)],
        "fsdp x megatron": [rd.along("d", DATA), rd.along("t", MEGATRON), rd.along("d", {"params": "first"})],
    }
    found = [
        {name: {*at} for name, at in decisions.ends.items() if str(name).rpartition("/")[2] in (*MEGATRON, "x", "y")}
        for decisions in starting(own)
    ]
    for name, tactics in written.items():
        wanted = arguments(own, *tactics)
        assert any(all(wanted[key] == axes for key, axes in one.items()) for one in found), name


def test_pins_hold_in_all() -> None:
    pins = [rd.along("d", {"x": 1}), rd.along("t", {"params/0/up": None}), rd.work("t", {"dot_general": "n0"})]
    own = problem(pins=pins)
    listed = list(starting(own))
    assert len(listed) > 1
    for decisions in listed:
        assert decisions.ends["x"]["d"] == 1
        assert "t" not in decisions.ends["params/0/up"]
        assert decisions.cuts[own.graph.operations.index(_called(own, "dot_general"))]["t"] == "n0"
        program_of(own, decisions, "p")


def _called(own: SearchProblem, name: str) -> Any:
    return next(operation for operation in own.graph.operations if operation.name == name)


def test_no_schedule_holds_less_than_is_said() -> None:
    for seed in range(40):
        own = oracle.problem(oracle.program(Random(seed)), "x=4")
        floor, _ = least_held(own.graph, 4, {})
        for decisions in starting(own):
            assert floor <= oracle.peak(program_of(own, decisions, "p")), seed
        try:
            feasible_result(own, "p", floor)
        except MemoryLimitError as error:
            assert not error.proved, seed
            assert error.least > floor, seed
        with pytest.raises(MemoryLimitError) as caught:
            feasible_result(own, "p", floor - 1)
        assert caught.value.proved, seed


class Clock:
    """Time that passes only as moves are priced: an hour each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, price = 0.0, Moves._price

        def slow(*args: Any) -> Any:
            self.now += 3600.0
            return price(*args)

        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(Moves, "_price", slow)


def test_there_is_a_schedule_that_fits_though_no_axis_was_decided_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    args, options = models.block_args(1, 8), {"state": {"params": 0}, "machine": "gpu"}
    whole = rd.search(models.block_step, args, {"d": 1, "t": 1}, limit=0, **options)[0]  # as all devices would run it
    Clock(monkeypatch)
    for share in (None, 0.6, 0.3):
        limit = None if share is None else int(whole.memory * share)
        found = rd.search(models.block_step, args, MESH, limit=60, memory_limit=limit, **options)[0]
        assert found.stopped
        assert "stopped at the limit of 60 s: this is the best so far" in str(found)
        assert found.seconds < whole.seconds
        assert limit is None or found.memory <= limit
        assert found.joint_bound <= found.bound <= found.seconds


def test_what_was_not_found_in_time_is_not_said_not_to_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    args, options = models.block_args(1, 8, 32, 64, 4), {"state": {"params": 0}, "machine": "gpu"}
    own = problem(layers=1)
    floor, _ = least_held(own.graph, MESH.size, {})
    Clock(monkeypatch)
    with pytest.raises(
        MemoryLimitError, match="was found before the time was up; the smallest of those found"
    ) as caught:
        rd.search(models.block_step, args, MESH, limit=60, memory_limit=floor + 1000, **options)
    assert not caught.value.proved
    found = rd.search(models.block_step, args, MESH, limit=60, memory_limit=caught.value.least, **options)[0]
    assert found.memory <= caught.value.least
    with pytest.raises(MemoryLimitError, match=f"{floor:,} bytes are held at .* by every one") as caught:
        rd.search(models.block_step, args, MESH, limit=60, memory_limit=floor - 1, **options)
    assert caught.value.proved


def test_of_pipelines_too_it_is_only_said_that_none_was_found() -> None:
    """What every schedule on a mesh holds, a stage of a pipeline need not hold."""
    args = ([models.form(8, 8)] * 2, models.form(8, 8))
    options = {"batch": {"x": 0}, "microbatches": (2, 2), "machine": "v100", "memory_limit": 50}
    with pytest.raises(MemoryLimitError, match="no schedule and no pipeline of chain that fits in 50 bytes") as caught:
        rd.search(models.chain, args, devices=2, pipeline=True, **options)
    assert not caught.value.proved


# ------------------------------------------------------------------------------------------------ sequences and experts


def chosen_by(own: SearchProblem, *tactics: Any) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The axes of all arguments, and the cuts of products with much work, that tactics lead to."""
    found = Propagation(own.graph, own.moves.mesh)
    apply(tactics, found)
    heavy = [cuts for cuts, heavy in zip(found.cuts, own.facts.heavy, strict=True) if heavy]
    return {array.name: found.input_type(array.name).axes for array in own.graph.inputs}, heavy


def start_with(own: SearchProblem, *tactics: Any) -> bool:
    """Whether a schedule to start from lays arguments out, and cuts products, as tactics do."""
    arguments_, products = chosen_by(own, *tactics)
    for decisions in starting(own):
        at = {name: tuple(sorted(cuts)) for name, cuts in decisions.ends.items() if isinstance(name, str)}
        heavy = [cuts for cuts, heavy in zip(decisions.cuts, own.facts.heavy, strict=True) if heavy]
        if at == {name: tuple(sorted(axes)) for name, axes in arguments_.items()} and heavy == products:
            return True
    return False


def mixture_problem() -> SearchProblem:
    mesh = Mesh.of({"d": 4})
    given = prepare(models.mixture_step, models.mixture_args(16, 64, 64, 256, 8), mesh, None, None, None)
    back = tied(models.mixture_step, given, {"params": 0})
    return problem_of(given, mesh, (), back, machine("gpu"), "seconds")


def test_megatron_with_sequences_and_context_parallel_are_among_the_starts() -> None:
    own = problem()
    sequence = rd.along("t", {"x": 1, "y": 1})
    assert start_with(own, rd.along("d", DATA), rd.along("t", MEGATRON), sequence)
    assert start_with(own, sequence, rd.along("d", DATA))


def test_expert_parallel_is_among_the_starts() -> None:
    """Examples outside, experts in their products: forward and backward, and in the gradients of weights."""
    own = mixture_problem()
    experts = [
        k for k, one in enumerate(own.graph.operations) if own.facts.heavy[k] and "8" in map(str, one.nest.sizes)
    ]
    products = {}
    for k in experts:
        nest = own.graph.operations[k].nest
        dim = nest.reads[0].dims[0][0]
        if nest.size(dim) == 8 and all((dim,) in access.dims for access in (*nest.reads, *nest.writes)):
            products[own.graph.operations[k].name] = dim
    assert (
        len(products) == 5
    )  # two products forward, and for each the gradients of what it reads, less that of the input
    assert start_with(own, rd.work("d", products), rd.along("d", DATA))
    priced = [evaluated(own, decisions).price("seconds") for decisions in starting(own)]
    found = feasible_result(own, "p", None)
    assert found.price <= min(priced)


def test_each_improvement_on_the_starts_is_reported() -> None:
    """On a machine of today: of a mixture and of attention, the first of them is a schedule that people write."""
    for function, args in (
        (models.mixture_step, models.mixture_args(64, 512, 1024, 4096, 16)),
        (models.block_step, models.block_args(1, 64)),
    ):
        lines: list[str] = []
        found = rd.search(
            function, args, {"d": 8, "t": 2}, state={"params": 0}, machine="v5p", progress=False, limit=600
        )[0]
        prices = [one.price for one in found.improvements]
        assert prices == sorted(prices, reverse=True)
        assert prices[-1] == found.rank[0]
        assert [one.elapsed for one in found.improvements] == sorted(one.elapsed for one in found.improvements)
        searched(found.problem.whole or found.problem, "p", None, report_progress=lines.append)
        assert [line.split(", ")[0] for line in lines if "on a device" in line] == [*map(seconds_text, prices)]


def test_the_cache_of_a_step_of_decoding_has_examples_and_is_no_weight() -> None:
    """Though it is state: weights are cut, and the cache by examples, where an axis has both (sharded)."""

    def decode(w: Any, cache: Any, x: Any) -> Any:
        cache = jnp.concatenate([cache[:, 1:], (x @ w["k"])[:, None]], 1)
        scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", x @ w["q"], cache))
        return cache, jnp.einsum("bt,btd->bd", scores, cache) @ w["o"]

    args = ({name: models.form(64, 64) for name in "qko"}, models.form(16, 32, 64), models.form(16, 64))
    given = prepare(decode, args, MESH, None, None, None)
    own = problem_of(given, MESH, (), tied(decode, given, {"cache": 0}), machine("gpu"), "seconds")
    sharded = [one for one in starting(own) if all(one.ends[f"w/{name}"] for name in "qko") and one.ends["cache"]]
    assert any(one.ends["cache"].get("d") == 0 and "d" in one.ends["w/q"] for one in sharded)
