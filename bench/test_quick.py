"""Seconds of the parts of the library, in about a minute: `make bench-quick` runs, saves and compares these.

By hand: `pytest bench/test_quick.py --benchmark-autosave --benchmark-compare`. At a first call the caches of the
library and of JAX are empty.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from bench.library import plan_of
from bench.problems import problem_set, swap_problem
from bench.programs.all import cases
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan

PROBLEMS = {name: problem_set(name, count=12) for name in ("U222", "U234")}
LARGE = swap_problem(16, 28, 16 * 28 * 4)
MLP = cases("small")["MLP"]


@pytest.mark.parametrize("name", PROBLEMS)
def test_parse(benchmark: Any, name: str) -> None:
    texts = [text for problem in PROBLEMS[name] for text in (problem.source, problem.target)]
    assert [str(t) for t in benchmark(lambda: [DistType.parse(text) for text in texts])] == texts


@pytest.mark.parametrize("name", PROBLEMS)
def test_plan(benchmark: Any, name: str) -> None:
    plans = benchmark(lambda: [plan_of(problem)[0] for problem in PROBLEMS[name]])
    assert all(plan.steps for plan in plans)


def test_plan_448_devices(benchmark: Any) -> None:
    plan, _ = benchmark(plan_of, LARGE, {"cost_model": "exact"})
    assert plan.received == plan.lower_bound


@pytest.mark.parametrize("name", PROBLEMS)
def test_read_and_verify(benchmark: Any, name: str) -> None:
    texts = [plan_of(problem)[0].to_json() for problem in PROBLEMS[name]]
    assert all(plan.steps for plan in benchmark(lambda: [Plan.from_json(text) for text in texts]))


def test_trace(benchmark: Any) -> None:
    traced = benchmark(lambda: jax.make_jaxpr(lambda *args: MLP.function(*args))(*MLP.args))  # a new function each time
    assert traced.eqns


def test_distribute(benchmark: Any) -> None:
    mesh = MLP.mesh_of(jax.devices())
    f = benchmark.pedantic(lambda: MLP.distributed(mesh), setup=rd.clear_caches, rounds=5)
    assert f.program.received_bytes > 0


def test_simulate(benchmark: Any) -> None:
    program = MLP.distributed(MLP.mesh_of(jax.devices())).program
    assert benchmark(rd.simulate, program, "cpu", record=False).seconds > 0


def test_search(benchmark: Any) -> None:
    def search() -> Any:
        return rd.search(MLP.function, MLP.args, MLP.mesh, profile="cpu", limit=60.0, progress=False)

    assert benchmark.pedantic(search, rounds=1)


def moved() -> tuple[dict[str, Any], Any]:
    """A tree of 64 leaves of four shapes, and its target sharding."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), devices=jax.devices()[:8])
    source, target = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (("x", "y"), ("y", "x")))
    kinds = [(k, i) for k in (1, 2, 3, 4) for i in range(16)]
    return {f"{k}/{i}": jax.device_put(np.zeros((8 * k, 8), np.float32), source) for k, i in kinds}, target


def test_first_call_of_reshard(benchmark: Any) -> None:
    tree, target = moved()

    def forget() -> None:
        rd.clear_caches()
        jax.clear_caches()

    benchmark.pedantic(lambda: jax.block_until_ready(rd.reshard(tree, target)), setup=forget, rounds=3)


def test_later_call_of_reshard(benchmark: Any) -> None:
    tree, target = moved()
    jax.block_until_ready(rd.reshard(tree, target))
    before = [info.misses for info in rd.cache_info().values()]
    benchmark(lambda: jax.block_until_ready(rd.reshard(tree, target)))
    assert [info.misses for info in rd.cache_info().values()] == before
