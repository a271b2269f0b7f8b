"""How fast the parts are: parse, search, lower, verify, JSON, a planned problem, a cache hit.

`python -m bench compare` runs these and names what became slower; by hand, `pytest bench/test_speed.py`. Beside every
part a calibration loop of the same kind of work is timed, so that machines and moments can be compared by ratio.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from bench.library import plan_of
from bench.problems import Problem, problem_set, swap_problem
from redistrib.cost.model import prices_of
from redistrib.cost.presets import cost_model
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan
from redistrib.plans.verify import verify
from redistrib.synthesis.paper.lowering import lower_straight
from redistrib.synthesis.paper.search import Search, shortest_paths
from redistrib.synthesis.problem import Problem as Redistribution
from redistrib.theory.placement import placement_of

# Planning is one thread's arithmetic, so processor time is what it takes, whatever else the machine does.
pytestmark = pytest.mark.benchmark(timer=time.process_time)

CASES = {"U222": problem_set("U222", count=12), "U234": problem_set("U234", count=12)}
LARGE = swap_problem(16, 28, 16 * 28 * 4)


def calibration_loop() -> float:
    """Seconds of a fixed piece of work: dictionaries of tuples and small integer arrays, as planning has."""
    start = time.process_time()
    table: dict[tuple[int, ...], int] = {}
    rows = np.arange(64 * 3).reshape(64, 3)
    for i in range(1500):
        key = (i % 7, i % 11, i % 13)
        table[key] = table.get(key, 0) + i
        if i % 30 == 0:
            rows = (rows * 5 + i) % 97
            table[(int(rows.sum()),)] = len(np.unique(rows[:, 0]))
    return time.process_time() - start


@pytest.fixture
def calibrated(benchmark: Any) -> Iterator[Callable[..., Any]]:
    """`benchmark`, with the quickest of many calibration loops, before and after, in the record."""
    loops = [calibration_loop() for _ in range(40)]
    yield benchmark
    loops += [calibration_loop() for _ in range(40)]
    benchmark.extra_info["calibration"] = min(loops)


def _meaning(problem: Problem) -> Redistribution:
    mesh = Mesh.of(problem.axes)
    ends = (placement_of(DistType.parse(text), mesh) for text in (problem.source, problem.target))
    return Redistribution.plain(*ends)


def _paths(problem: Problem) -> list[Any]:
    meaning = _meaning(problem)
    prices = prices_of(cost_model("paper"), 4, meaning.topology)
    found = []
    for path in shortest_paths(meaning.space, meaning.before.grid, meaning.after.grid, prices, Search()):
        found.append(path)
        if len(found) == 4:
            break
    return found


@pytest.mark.parametrize("name", CASES)
def test_parse(calibrated: Callable[..., Any], name: str) -> None:
    texts = [text for p in CASES[name] for text in (p.source, p.target)]
    types = calibrated(lambda: [DistType.parse(text) for text in texts])
    assert [str(t) for t in types] == texts


@pytest.mark.parametrize("name", CASES)
def test_search(calibrated: Callable[..., Any], name: str) -> None:
    paths = calibrated(lambda: [_paths(p) for p in CASES[name]])
    assert all(paths)


@pytest.mark.parametrize("name", CASES)
def test_lower(calibrated: Callable[..., Any], name: str) -> None:
    work = [(path.grids, _meaning(p)) for p in CASES[name] for path in _paths(p)]
    lowered = calibrated(lambda: [lower_straight(grids, problem) for grids, problem in work])
    assert any(steps is not None for steps in lowered)


@pytest.mark.parametrize("name", CASES)
def test_verify(calibrated: Callable[..., Any], name: str) -> None:
    plans = [plan_of(p)[0] for p in CASES[name]]
    assert calibrated(lambda: [verify(plan) for plan in plans]) == plans


@pytest.mark.parametrize("name", CASES)
def test_plan(calibrated: Callable[..., Any], name: str) -> None:
    plans = calibrated(lambda: [plan_of(p)[0] for p in CASES[name]])
    assert all(plan.steps for plan in plans)


def test_plan_448_devices(calibrated: Callable[..., Any]) -> None:
    plan, _ = calibrated(lambda: plan_of(LARGE, {"cost_model": "exact"}))
    assert plan.received == plan.lower_bound


@pytest.mark.parametrize("name", CASES)
def test_json(calibrated: Callable[..., Any], name: str) -> None:
    plans = [plan_of(p)[0] for p in CASES[name]]
    assert calibrated(lambda: [Plan.from_json(plan.to_json()) for plan in plans]) == plans


def test_cache_hit(calibrated: Callable[..., Any]) -> None:
    """A tree of 64 leaves of four kinds that has been planned and compiled for before."""
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec

    import redistrib as rd

    if len(jax.devices()) < 8:
        pytest.skip("needs 8 devices: XLA_FLAGS=--xla_force_host_platform_device_count=8 JAX_PLATFORMS=cpu")
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    source, target = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (("x", "y"), ("y", "x")))
    tree = {(k, i): jax.device_put(np.zeros((8 * k, 8), np.float32), source) for k in (1, 2, 3, 4) for i in range(16)}
    planned = rd.reshard_plan(tree, target)
    misses = [info.misses for info in rd.cache_info().values()]
    again = calibrated(lambda: rd.reshard_plan(tree, target))
    assert [batch.program for batch in again.batches] == [batch.program for batch in planned.batches]
    assert [info.misses for info in rd.cache_info().values()] == misses
