"""Seconds of the parts of the library, in about a minute: `make bench-quick` runs, saves and compares these.

By hand: `pytest bench/test_quick.py --benchmark-autosave --benchmark-compare`. At a first call the caches of the
library and of JAX are empty.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

import redistrib as rd
from bench.library import plan_of
from bench.problems import problem_set, swap_problem
from bench.programs.all import cases
from bench.stats import paired_ratio
from redistrib.lang.types import DistType
from redistrib.plans.plan import Plan

os.environ["REDISTRIB_VIA"] = "auto"  # as users have it, also where the tests' settings ask for collectives

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
        return rd.search(MLP.function, MLP.args, MLP.mesh, machine="cpu", limit=60.0, progress=False)

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


NOISE = 1.15  # that a row's median may take times `jax.device_put`'s, since the machine is shared
ROUNDS = (11, 61)  # of a row: as many as SECONDS hold, between these
SECONDS = 1.0
ATTEMPTS = 5  # other processes may have run in between


def _small_model(mesh: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of 4 layers, 13 MiB, cut for training and, the second, shardings for serving."""
    shapes = {"norm": (256,), "qkv": (256, 768), "out": (256, 256), "up": (256, 1024), "down": (1024, 256)}
    serve = {
        "norm": (),
        "qkv": (None, ("x", "y")),
        "out": (("x", "y"),),
        "up": (None, ("x", "y")),
        "down": (("x", "y"),),
    }
    train = NamedSharding(mesh, PartitionSpec(("x", "y")))
    names = [(layer, name) for layer in range(4) for name in shapes]
    tree = {f"{layer}/{name}": jax.device_put(np.ones(shapes[name], np.float32), train) for layer, name in names}
    return tree, {f"{layer}/{name}": NamedSharding(mesh, PartitionSpec(*serve[name])) for layer, name in names}


def _move(name: str) -> tuple[Any, Any]:
    """A tree and its target shardings."""
    mesh = jax.make_mesh((2, 4), ("x", "y"), devices=jax.devices()[:8])
    halves = [jax.make_mesh((4,), ("x",), devices=jax.devices()[k : k + 4]) for k in (0, 4)]
    kind, _, size = name.partition(" ")
    if kind == "tiny":
        return moved()
    if kind == "model":
        return _small_model(mesh)
    both, rows = ("x", "y"), int((float(size) * 2**20 / 4) ** 0.5) // 8 * 8
    sides = {
        "transpose": (mesh, PartitionSpec(both), mesh, PartitionSpec(None, both)),
        "swap": (mesh, PartitionSpec("x", "y"), mesh, PartitionSpec("y", "x")),
        "replicate": (mesh, PartitionSpec(both), mesh, PartitionSpec()),
        "scatter": (mesh, PartitionSpec(), mesh, PartitionSpec(None, both)),
        "disjoint": (halves[0], PartitionSpec("x"), halves[1], PartitionSpec(None, "x")),
    }
    before, source, after, target = sides[kind]
    array = jax.device_put(np.ones((rows, rows), np.float32), NamedSharding(before, source))
    return array, NamedSharding(after, target)


def _anew(tree: Any) -> Any:
    """The same buffers as new arrays: `jax.device_put` keeps a whole copy on the host with each array that it moves."""

    def array(leaf: Any) -> Any:
        tiles = [shard.data for shard in leaf.addressable_shards]
        return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, tiles)

    return jax.tree.map(array, tree)


_ON_SOME_PROCESSORS = pytest.mark.xfail(strict=False, reason="on some processors XLA copies columns more slowly")


@pytest.mark.parametrize(
    "name",
    [
        "tiny", "model", "disjoint 1", "disjoint 96", "transpose 0.01", "transpose 1", "transpose 16", "transpose 96",
        "swap 1", "swap 16", "replicate 1", "replicate 16",
        pytest.param("scatter 16", marks=_ON_SOME_PROCESSORS),
    ],
)  # fmt: skip
def test_reshard_beside_device_put(benchmark: Any, name: str) -> None:
    """Later calls beside `jax.device_put`; sizes in MiB. `extra_info` has `jax.device_put`'s time over ours.

    Each round is a call of both, and who begins alternates: the second finds the source in the caches. The ratio is the
    median of those of the rounds, with its interval at 95%. A row fails where the median of our times is above NOISE
    times the other's, or where all of the interval is below 1.

    A scatter by rows is not among them: `jax.device_put` then returns views of the source, and moves nothing.
    """
    tree, target = _move(name)
    theirs: list[float] = []
    ours: list[float] = []
    order = [(jax.device_put, theirs), (rd.reshard, ours)]

    def both() -> None:
        for move, times in order:
            fresh = _anew(tree)
            start = time.perf_counter()
            jax.block_until_ready(move(fresh, target))
            times.append(time.perf_counter() - start)
        order.reverse()

    both()
    both()
    rounds = max(ROUNDS[0], min(ROUNDS[1], int(SECONDS / (theirs[-1] + ours[-1]))))
    for attempt in range(ATTEMPTS):
        theirs.clear()
        ours.clear()
        if attempt == 0:
            benchmark.pedantic(both, rounds=rounds)
        else:
            for _ in range(rounds):
                both()
        medians, ratio = (statistics.median(theirs), statistics.median(ours)), paired_ratio(theirs, ours)
        if medians[1] <= NOISE * medians[0] and ratio.high >= 1:
            break
    benchmark.extra_info["device_put / reshard"] = str(ratio)
    of_both = [
        f"{1e3 * median:.3f} ms, least {1e3 * min(times):.3f}"
        for median, times in zip(medians, (theirs, ours), strict=True)
    ]
    print(f"{name}: device_put {of_both[0]}; reshard {of_both[1]}; ratio {ratio} of {len(ours)} rounds")
    assert medians[1] <= NOISE * medians[0]
    assert ratio.high >= 1


@pytest.mark.parametrize("layers", [2, 24, 80, 500])
def test_scanned_layers_compile_in_the_time_of_jit(benchmark: Any, layers: int) -> None:
    """Gradients of layers by `scan`, weights stored cut: at most 1.5 times the seconds of `jax.jit` with the same ends.

    The seconds that are saved are those of `distribute` and of compiling together.
    """

    def layer(x: Any, w: Any) -> tuple[Any, None]:
        return x + jnp.tanh(x @ w["up"]) @ w["down"], None

    function = jax.value_and_grad(lambda ws, x: jnp.mean(lax.scan(jax.checkpoint(layer), x, ws)[0] ** 2))
    weights = {name: np.ones((layers, *shape), np.float32) for name, shape in (("up", (64, 256)), ("down", (256, 64)))}
    args = weights, np.ones((64, 64), np.float32)
    schedule = [rd.along("d", {"x": 0}), rd.along("d", {"ws": 1})]

    def ours() -> Any:
        f = rd.distribute(function, args, {"d": 8}, schedule=schedule)
        f.lower().compile()
        return f

    def theirs(f: Any) -> float:
        jax.clear_caches()
        start = time.perf_counter()
        jitted = jax.jit(lambda *args: function(*args), in_shardings=f.in_shardings, out_shardings=f.out_shardings)
        jitted.lower(*args).compile()
        return time.perf_counter() - start

    f = benchmark.pedantic(ours, setup=jax.clear_caches, rounds=2)
    if benchmark.stats is not None:
        assert benchmark.stats["min"] <= 1.5 * min(theirs(f) for _ in range(2))
