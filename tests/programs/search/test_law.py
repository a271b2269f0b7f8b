"""One answer for one program: a search, a simulation of what it found, and the function that it returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import redistrib as rd
from redistrib.errors import MemoryLimitError, ProfileError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.data import KernelPart, Loop
from redistrib.programs.schedule.schedule import Schedule
from redistrib.programs.search import descent
from redistrib.programs.search.constants import FEWEST, PLANNED
from redistrib.programs.search.facts import Facts
from redistrib.programs.search.moves import Moves
from redistrib.programs.search.problem import SearchProblem
from redistrib.programs.search.result import Candidate
from redistrib.programs.stages.models import mlp
from redistrib.programs.time.constants import MACHINES, machine
from redistrib.programs.time.kernels.compiled import compiled
from redistrib.programs.time.result import Simulation
from tests.programs.search import models, oracle
from tests.programs.search.test_large import problem as blocks
from tests.programs.search.test_loops import step
from tests.programs.search.test_peaks import LOOPS, require_equal

MESH = {"a": 2, "b": 2}
WAYS: dict[str, dict[str, Any]] = {
    "apart": {},
    "overlap": {"overlap": True},
    "limit": {"memory_limit": 0.8},
    "overlap and limit": {"overlap": True, "memory_limit": 0.8},
}
LAYERS = {"up": models.form(6, 64, 128), "down": models.form(6, 128, 64)}
SECONDS = 0.5  # of a search: whatever it finds, all figures agree
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "layers": (models.block_step, models.block_args(3, 8, 32, 64, 4), {"state": {"params": 0}}),
    "a loop": (step, (LAYERS, models.form(512, 64)), {}),
}


def required(found: Candidate, machine: str | None = None) -> Simulation:
    """The figures of a result, which are those of its program and of its function, on the machine by name too."""
    overlap, function = found.feasible.overlap, found.distributed
    window = None if overlap is None else overlap.window
    simulated = rd.simulate(found.program, machine or found.machine, overlap=overlap is not None, window=window)
    assert found.seconds == simulated.seconds == function.cost.seconds
    assert found.memory == max(simulated.peak_bytes.values()) == function.memory
    assert found.received_bytes == sum(simulated.received_bytes.values()) == function.cost.received_bytes
    return simulated


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "v5e" else pytest.mark.long) for n in MACHINES])
@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_search_a_simulation_and_a_function_agree(case: str, name: str, way: str) -> None:
    function, args, more = FUNCTIONS[case]
    options: dict[str, Any] = {"machine": name, "limit": SECONDS, "progress": False, **more}
    how = dict(WAYS[way])
    if "memory_limit" in how:
        how["memory_limit"] = int(how["memory_limit"] * rd.search(function, args, MESH, **options)[0].memory)
    try:
        found = rd.search(function, args, MESH, **options, **how)[0]
    except MemoryLimitError:
        assert "memory_limit" in how  # nothing smaller exists: the free one was the least
        return
    assert isinstance(found, Candidate)
    required(found, name)
    schedule = Schedule.from_json(found.schedule.to_json())
    for on in (name, found.machine):
        same = rd.distribute(function, args, MESH, schedule=schedule, machine=on)
        assert (str(same.program), same.memory) == (str(found.program), found.distributed.memory)
        assert same.cost.seconds == found.seconds
    assert same.cost == found.distributed.cost
    assert found.memory <= how.get("memory_limit", math.inf)
    for most in {how.get("memory_limit", found.memory), found.memory, found.memory - 1}:
        try:
            less = rd.distribute(function, args, MESH, schedule=schedule, memory_limit=most, machine=name)
        except MemoryLimitError:
            assert most < found.memory
        else:
            assert less.memory <= most


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["tpu", *(pytest.param(n, marks=pytest.mark.long) for n in ("cpu", "v5p", "h100"))])
@pytest.mark.parametrize(
    "mesh",
    [
        {"a": 4, "b": 4, "c": 4},
        *(pytest.param(mesh, marks=pytest.mark.long) for mesh in ({"a": 16, "b": 4}, {"a": 1024, "b": 8})),
    ],
)
def test_they_agree_on_many_devices(mesh: dict[str, int], name: str, way: str) -> None:
    """There a search prices moves by formulas, and their plans may take less time, and more bytes."""
    function, args, more = FUNCTIONS["layers"]
    options: dict[str, Any] = {"machine": name, "limit": SECONDS, "progress": False, **more}
    how = _limited(way, function, args, mesh, options)
    found = rd.search(function, args, mesh, **options, **how)[0]
    assert isinstance(found, Candidate)
    required(found, name)
    assert found.memory <= how.get("memory_limit", math.inf)
    most = how.get("memory_limit")
    same = rd.distribute(function, args, mesh, schedule=found.schedule, memory_limit=most, machine=name)
    assert (same.memory, same.cost.seconds) == (found.memory, found.seconds)


def _limited(
    way: str, function: Callable[..., Any], args: tuple[Any, ...], mesh: dict[str, int], options: dict[str, Any]
) -> dict[str, Any]:
    """The options of a way; its limit is 0.85 of what a schedule without one holds."""
    how = dict(WAYS[way])
    if "memory_limit" in how:
        how["memory_limit"] = int(0.85 * rd.search(function, args, mesh, **options)[0].memory)
    return how


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["v5e", *(pytest.param(name, marks=pytest.mark.long) for name in ("h100", "cpu"))])
def test_they_agree_where_layers_are_decided_once(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent, "ALONE", 0)  # in place of more than 2,000 operations
    function, args = models.block_step, models.block_args(FEWEST, 8, 32, 64, 4)
    options: dict[str, Any] = {"machine": name, "limit": SECONDS, "progress": False, "state": {"params": 0}}
    how = _limited(way, function, args, MESH, options)
    found = rd.search(function, args, MESH, **options, **how)[0]
    assert isinstance(found, Candidate)
    assert found.feasible.problem.folded is not None
    required(found, name)
    assert found.memory <= how.get("memory_limit", math.inf)


@pytest.mark.parametrize("overlap", [False, True])
def test_sums_that_a_compiler_widens_count_as_elements(overlap: bool) -> None:
    """XLA for CPUs adds bfloat16 in float32: what it moves is a figure of its own."""
    w = {"up": jax.ShapeDtypeStruct((48, 1600), "bfloat16"), "down": jax.ShapeDtypeStruct((1600, 48), "bfloat16")}
    args = w, jax.ShapeDtypeStruct((16, 48), "bfloat16")
    options: dict[str, Any] = {"memory_limit": 60_000, "overlap": overlap, "progress": False}  # a weight is cut
    found = rd.search(lambda w, x: x @ w["up"] @ w["down"], args, {"d": 8}, machine="cpu", **options)[0]
    assert isinstance(found, Candidate)
    required(found)
    assert found.distributed.compiled_received_bytes == 2 * found.received_bytes > 0


def test_a_window_is_one_of_overlap() -> None:
    program = rd.search(lambda x: x @ x.T, (models.form(64, 64),), {"d": 2}, machine="gpu", progress=False)[0].program
    with pytest.raises(ProfileError, match="window=3 says how early moves are issued"):
        rd.simulate(program, "gpu", window=3)


# ---------------------------------------------------------------------------- the walk of a search, and the program


def on(problem: SearchProblem, name: str) -> SearchProblem:
    """The problem on another machine, with moves at the prices of their plans."""
    moves = Moves(problem.moves.mesh, machine(name))
    moves.__dict__["by_axes"] = None
    assert problem.moves.mesh.size <= PLANNED
    return replace(problem, facts=Facts(problem.graph, machine(name), moves))


@pytest.mark.parametrize("name", ["v5e", "h100"])
def test_of_kernels_in_a_transformer(name: str) -> None:
    """Bytes are equal to the byte, seconds but for the shapes that prices of plans are kept for."""
    require_equal(on(blocks(1, Mesh.of({"d": 4})), name), count=1)


@pytest.mark.parametrize("name", ["v5e", "h100"])
@pytest.mark.parametrize("case", ["a training step", "loops in loops", "an initial value", "a while"])
def test_of_kernels_in_loops(case: str, name: str) -> None:
    require_equal(on(oracle.traced(*LOOPS[case], "{d:4}"), name))


def elementwise(seed: int) -> Callable[[Any], Any]:
    """A function of products, sums along dimensions and chains of element-wise operations."""

    def function(x: Any) -> Any:
        random, known = Random(seed), [x]
        for _ in range(random.randint(4, 12)):
            one, other = random.choice(known), random.choice(known)
            known.append(
                random.choice(
                    [
                        lambda a, b: jnp.tanh(a) * b,
                        lambda a, b: a + b.T,
                        lambda a, b: a @ b,
                        lambda a, b: a - jnp.max(b, axis=1, keepdims=True),
                        lambda a, b: jnp.exp(a) / jnp.sum(jnp.exp(a), axis=0),
                        lambda a, b: a[::-1],
                    ]
                )(one, other)
            )
        return known[-1], jnp.sum(known[-2])

    return function


def _of_seeds(seeds: range) -> int:
    return sum(
        require_equal(on(oracle.traced(elementwise(seed), (models.form(64, 64),), "{x:2,y:2}"), name), seed)
        for seed in seeds
        for name in ("v5p", "h100")
    )


def test_of_kernels_in_random_functions() -> None:
    assert _of_seeds(range(2)) > 6


@pytest.mark.long
def test_of_kernels_in_many_random_functions() -> None:
    assert _of_seeds(range(2, 22)) > 40


def _agrees(seed: int) -> None:
    """A search of a random function, on each machine and in each way in turn."""
    name, way = [*MACHINES][seed % len(MACHINES)], [*WAYS][seed % len(WAYS)]
    options: dict[str, Any] = {"machine": name, "limit": SECONDS, "progress": False}
    how, args = dict(WAYS[way]), (models.form(64, 64),)
    if "memory_limit" in how:
        free = rd.search(elementwise(seed), args, MESH, **options)[0].memory
        how["memory_limit"] = int((1.0 - 0.2 * (seed % 3) / 2) * free)
    try:
        found = rd.search(elementwise(seed), args, MESH, **options, **how)[0]
    except MemoryLimitError:
        assert "memory_limit" in how
        return
    assert isinstance(found, Candidate)
    required(found)
    assert found.memory <= how.get("memory_limit", math.inf)


def test_of_random_functions() -> None:
    for seed in range(4):
        _agrees(seed)


@pytest.mark.long
def test_of_two_hundred_random_functions() -> None:
    for seed in range(4, 204):
        _agrees(seed)


@pytest.mark.parametrize("name", ["v100", "h100", "v5e"])
def test_a_grid_of_layouts_is_timed_as_each_of_its_programs(name: str) -> None:
    program, batch = mlp(2, 256, 512), {"x": 0, "y": 0}
    found = rd.ir.grid(program, batch, machine(name), devices=4, most=2)
    assert {"1/4/1/1", "1/2/2/2", "4/1/1/1"} <= {str(layout) for layout, _, _ in found}
    for layout, seconds, peak in found:
        simulated = rd.simulate(rd.ir.spread(program, batch, layout).program, name)
        assert (seconds, peak) == (simulated.seconds, max(simulated.peak_bytes.values()))


# ------------------------------------------------------------------------------------------ programs of kernels


def test_a_program_of_kernels_stores_what_other_kernels_read() -> None:
    """Two products and what lies between them: on TPUs it follows the first, on GPUs it is read by the second."""
    args = (jax.ShapeDtypeStruct((256, 256), "float32"),) * 2
    program = rd.distribute(lambda x, w: jnp.tanh(x @ w) @ w, args, {"d": 1}).program
    for name, launches in (("v5e", 2), ("h100", 3), ("tpu", 3)):
        ops = [op for op in compiled(program, machine(name)).ops if not isinstance(op, Loop)]
        seconds = [op.seconds for op in ops if isinstance(op, KernelPart)]
        launch = machine(name).rates.launch  # type: ignore[union-attr]
        if name == "tpu":
            assert compiled(program, machine(name)) is program
        else:
            assert sum(second >= launch for second in seconds) == launches
    program = rd.distribute(lambda x: jnp.exp(x) * jnp.sin(x), args[:1], {"d": 1}).program
    apart, together = (rd.simulate(program, replace(machine("v5e"), fuses=fuses)) for fuses in (False, True))
    assert (apart.peak_bytes, together.peak_bytes) == ({0: 4 * 256 * 256 * 4}, {0: 2 * 256 * 256 * 4})
    assert together.seconds < apart.seconds


def test_a_program_of_a_kernel_is_the_same_from_its_text() -> None:
    args = (jax.ShapeDtypeStruct((64, 64), "float32"),) * 2
    program = rd.search(lambda x, w: jnp.tanh(x @ w) @ w, args, {"d": 4}, machine="h100", progress=False)[0].program
    read = rd.ir.parse(rd.ir.to_text(program))
    assert rd.simulate(read, "h100").seconds == rd.simulate(program, "h100").seconds
