"""Every rule of a primitive times every cut: rank by rank, whole, and JAX give the same integers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import jax
import numpy as np
import pytest

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.explain.profiling.inspect import inspect
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.graph import Graph
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.reference import run_by_rank, run_whole
from redistrib.programs.lower.emit import emit
from redistrib.programs.lower.versions import MovePlanner
from redistrib.programs.rules.equation import RULES
from redistrib.programs.rules.inline import trace
from redistrib.programs.run.arguments import leaf_names
from redistrib.programs.schedule.propagate import Propagation
from tests.programs.ir.nests import cuts
from tests.programs.rules.primitives import CASES, MORE

ALL = {**CASES, **MORE}
MESHES = [Mesh.of(text) for text in ("x=4", "x=2,y=3", "x=2,y=2")]


def choices(name: str, mesh: Mesh) -> list[tuple[Graph, int, DistType]]:
    """Every cut of every operation of a case."""
    function, args = ALL[name]
    graph = trace(function, args, leaf_names(function, args)).graph
    return [(graph, k, cut) for k, op in enumerate(graph.operations) for cut in cuts(op.nest, mesh)]


def programs(choices: Iterable[tuple[Graph, int, DistType]], mesh: Mesh) -> Iterator[tuple[str, Program]]:
    """A program for every cut, the others following from it; none for a factor below one that is not cut."""
    for graph, k, cut in choices:
        operation, found = graph.operations[k], Propagation(graph, mesh)
        with suppress(ProgramError):
            for axis in cut.axes:
                dims = zip(operation.nest.position, cut.dims, strict=True)
                found.cut_operation(k, axis, next(name for name, dim in dims if axis in dim.axes))
            for axis in mesh.names:
                found.spread(axis)
            yield f"{operation.name} cut {cut}", emit(found, MovePlanner("exact"))


def check(name: str, cut: str, program: Program) -> None:
    function, args = ALL[name]
    arrays = [np.asarray(arg) for arg in jax.tree.leaves(args)]
    wanted = [np.asarray(one) for one in jax.tree.leaves(function(*args))]
    for run in (run_whole, run_by_rank):
        for found, want in zip(run(program, arrays), wanted, strict=True):
            np.testing.assert_array_equal(found, want, f"{name}: {cut}, {run.__name__}")


@pytest.mark.parametrize("name", CASES)
def test_a_rule_holds_under_some_cuts(name: str) -> None:
    """One of them, by both axes where that can be; all below."""
    found = sorted(choices(name, MESHES[1]), key=lambda choice: len(choice[2].axes))
    for cut, program in programs(found[-1:], MESHES[1]):
        check(name, cut, program)


@pytest.mark.long
@pytest.mark.parametrize("mesh", [*MESHES[:2], pytest.param(MESHES[2], marks=pytest.mark.exhaustive)], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_a_rule_holds_under_every_cut(name: str, mesh: Mesh) -> None:
    for cut, program in programs(choices(name, mesh), mesh):
        check(name, cut, program)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_compiled_programs_receive_what_is_predicted(name: str) -> None:
    """The same on JAX; bytes are read off the compiled program."""
    function, args = CASES[name]
    mesh = Mesh.of("x=2,y=3")
    seen: set[str] = set()
    for cut, program in programs(choices(name, mesh), mesh):
        form = str([(value.name, str(value.type)) for value in program.values.values()])
        if form in seen:
            continue
        seen.add(form)
        _compare(function, args, program, cut)


def _compare(function: Any, args: Any, program: Program, cut: str) -> None:
    from redistrib.programs.run.jax.program import mapped, shardings

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:6]).reshape(2, 3), ("x", "y"))
    arrays = [jax.device_put(a, s) for a, s in zip(jax.tree.leaves(args), shardings(program.inputs, mesh), strict=True)]
    compiled = jax.jit(mapped(program, mesh)).lower(*arrays).compile()
    for found, want in zip(compiled(*arrays), jax.tree.leaves(function(*args)), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(want), cut)
    assert inspect(compiled).received_bytes == program.received_bytes, cut


def test_every_rule_has_a_case() -> None:
    """Of primitives that are not element by element, by the primitives that the cases are traced to."""
    met = set()
    for function, args in ALL.values():
        graph = trace(function, args, leaf_names(function, args)).graph
        met |= {operation.kind for operation in graph.operations if operation.nest.position}
    pointwise = {kind for kind, rule in RULES.items() if rule.__name__ == "_pointwise"}
    alike = {  # that nothing is lowered to here; each shares a rule with one that is met
        "expand_dims", "scatter_add", "scatter_mul", "select_and_gather_add", "geqrf", "householder_product",
        "geqp3", "ormqr", "select_and_scatter",
        "reduce_and", "reduce_or",  # of integers; of booleans they are the least and the largest of integers
    }  # fmt: skip
    effects = {kind for kind, rule in RULES.items() if rule.__module__.endswith(".effects")}  # see test_effects.py
    assert effects
    assert set(RULES) - pointwise - alike - effects - met == set()


def test_bits_of_a_part_are_those_of_the_whole() -> None:
    def drop(key: Any, x: Any) -> Any:
        return x * jax.random.bernoulli(key, 0.5, x.shape)

    key, x = jax.random.key(11), np.ones((8, 16), np.float32)
    f = rd.distribute(drop, (key, x), {"d": 8}, schedule=[rd.along("d", {"x": 0})])
    assert not f.program.moves
    np.testing.assert_array_equal(f(key, x), drop(key, x))


def test_a_rule_of_ones_own_comes_first() -> None:
    """A sort along rows, which the library keeps whole, replaced by a rule that leaves everything whole."""
    x = np.arange(32.0, dtype=np.float32)[::-1].reshape(4, 8)
    whole = rd.distribute(lambda x: jax.numpy.sort(x, 1), (x,), {"d": 4}, rules={"sort": lambda equation: None})
    assert [name for name, _, why in whole.opaque] == []  # 32 elements are not worth telling
    np.testing.assert_array_equal(whole(x), np.sort(x, 1))


def test_types_of_operations_are_pulled_back() -> None:
    a, b = CASES["matmul"].args
    f = rd.distribute(lambda a, b: a @ b.T, (a, b), {"d": 4}, schedule=rd.work("d", {"dot_general": "m0"}))
    assert [value.type for value in f.program.inputs] == [DistType.of("[3{d}12, 24]"), DistType.of("[12, 24]")]
    assert math.prod(f(a, b).shape) == 144


@pytest.mark.parametrize("value", [0, 1])
def test_summands_are_padded_with_nothing_alone(value: int) -> None:
    """What pads a sum is added once for each summand, unless it is added up first."""
    x, w = (np.arange(12, dtype=np.float32).reshape(shape) for shape in ((3, 4), (4, 3)))
    padded = rd.distribute(
        lambda x, w: jax.lax.pad(x @ w, np.float32(value), [(-1, 2, 0), (0, -1, 0)]),
        (x, w),
        {"d": 2},
        schedule=[rd.along("d", {"x": 1, "w": 0})],
    )
    wanted = np.pad((x @ w)[1:, :2], ((0, 2), (0, 0)), constant_values=value)
    np.testing.assert_array_equal(np.asarray(padded(x, w)), wanted)
