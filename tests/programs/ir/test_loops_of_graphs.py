"""Loops of a graph as values, and no other place that reads what stands at their edges."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redistrib.programs.ir.graph import Graph
from redistrib.programs.ir.loops import CARRY, ENTRY, INNER, STACK, TEST
from redistrib.programs.ir.reference import run_nest
from redistrib.programs.rules.inline import trace
from redistrib.programs.rules.traced import TraceOptions

ROOM = Path(__file__).parents[3] / "redistrib" / "programs"
PLACE = "ir/loops.py"


def run(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """The outputs of a graph, its loops run by what they say of themselves."""
    env: dict[str, Any] = {array.name: arg for array, arg in zip(graph.inputs, args, strict=True)}
    _run(graph, range(len(graph.operations)), None, env)
    return [env[name] for name in graph.outputs]


def _run(graph: Graph, numbers: Sequence[int], scope: int | None, env: dict[str, Any]) -> None:
    """Run the operations that stand in one loop, and the loops in it, where these begin."""
    begins = {loop.first: number for number, loop in enumerate(graph.loops) if loop.parent == scope}
    for number in numbers:
        if number in begins:
            _loop(graph, begins[number], env)
        operation = graph.operations[number]
        if graph.scopes[number] != scope or not operation.edge.computes:
            continue
        nest = operation.nest
        held = {access.array: env[name] for access, name in zip(nest.reads, operation.ins, strict=True)}
        run_nest(nest, dict(nest.ranges), held)
        env |= {array.name: held[access.array] for access, array in zip(nest.writes, operation.outs, strict=True)}


def _loop(graph: Graph, number: int, env: dict[str, Any]) -> None:
    loop = graph.loops[number]
    inside = env | {one.start: env[one.initial] for one in loop.carried}
    stacked = {one.array: np.zeros(graph.arrays[one.array].shape) for one in loop.stacked}
    tests = range(loop.first, loop.first if loop.test is None else loop.test)
    steps = iter(reversed(range(loop.steps)) if loop.reverse else range(loop.steps))
    while True:
        _run(graph, tests, number, inside)
        if loop.test is not None and not inside[graph.operations[loop.test].ins[0]]:
            break
        step = next(steps, None) if loop.test is None else 0
        if step is None:
            break
        inside |= {one.entry: inside[one.array][step] for one in loop.entries}
        _run(graph, range(tests.stop, loop.last + 1), number, inside)
        for one in loop.stacked:
            stacked[one.array][step] = inside[one.entry]
        inside |= {one.start: inside[one.end] for one in loop.carried}
    env |= stacked | {one.result: inside[one.start] for one in loop.carried if one.result is not None}


def scanned(x: Any, w: Any, b: Any) -> Any:
    def step(state: Any, entry: Any) -> Any:
        total, kept = state
        own, shift = entry
        return (jnp.tanh(total @ own + shift), kept + shift.sum()), total.sum(0)

    (end, _), rows = jax.lax.scan(step, (x, jnp.float32(1.0)), (w, b), reverse=True)
    return end, rows


def counted(x: Any, w: Any, b: Any) -> Any:
    """A condition on two carried values, and one of them is no result."""
    return jax.lax.while_loop(
        lambda s: (s[0] < 5) & (s[1].max() > -1), lambda s: (s[0] + 1, s[1] @ w[0] + b[0]), (0, x)
    )[1]


def nested(x: Any, w: Any, b: Any) -> Any:
    def step(state: Any, own: Any) -> Any:
        grown = jax.lax.fori_loop(0, 3, lambda _, s: jnp.tanh(s @ own), state)
        _, rows = jax.lax.scan(lambda s, row: (s + row.sum(), row * s), grown.sum(), state)
        return grown, rows

    return jax.lax.scan(step, x, w)


@pytest.mark.parametrize("function", [scanned, counted, nested])
def test_a_loop_says_all_that_running_it_takes(function: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    args = [random.normal(size=shape).astype(np.float32) for shape in ((4, 4), (3, 4, 4), (3, 4))]
    graph = trace(function, args, ["x", "w", "b"], TraceOptions(opens_loops=True)).graph
    assert graph.loops
    for actual, expected in zip(run(graph, args), jax.tree.leaves(function(*args)), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_a_loop_of_a_graph_is_one_value() -> None:
    forms = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((4, 4), (3, 4, 4), (3, 4))]
    graph = trace(scanned, forms, ["x", "w", "b"], TraceOptions(opens_loops=True)).graph
    (loop,) = graph.loops
    assert (loop.steps, loop.reverse, loop.parent, loop.test) == (3, True, None, None)
    assert [one.array for one in loop.entries] == ["w", "b"]
    assert [one.initial for one in loop.carried if one.result is not None] == ["x"]
    assert [*loop.outs] == [*graph.outputs]
    assert [graph.scope_of(name) for name in loop.outs] == [None, None]
    assert all(graph.scope_of(name) == 0 for one in loop.carried for name in (one.start, one.end))
    assert loop.last == loop.stacked[0].number - 1


def test_a_carried_value_is_one_edge() -> None:
    """An operation makes it for each step and for after the loop; of a result that nothing reads no write is left."""
    forms = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((4, 4), (3, 4, 4), (3, 4))]
    graph = trace(nested, forms, ["x", "w", "b"], TraceOptions(opens_loops=True)).graph
    read = {*graph.outputs, *graph.readers}
    kept = [one.result is not None for loop in graph.loops for one in loop.carried]
    assert True in kept and False in kept
    for number, loop in enumerate(graph.loops):
        for one in loop.carried:
            operation = graph.operations[one.number]
            made = [one.start] if one.result is None else [one.start, one.result]
            assert (operation.ins, [array.name for array in operation.outs]) == ((one.initial, one.end), made)
            assert len(operation.nest.writes) == len(made) and {*made} <= read
            assert [graph.scope_of(name) for name in made] == [number, loop.parent][: len(made)]
            assert [graph.made_at(name) for name in made] == [one.number + 1, loop.stop][: len(made)]


# ------------------------------------------------------------------------------------------------------- the law

MAKERS = {"rules/loops.py", "time/kernels/unmoved.py"}  # of loops from a jaxpr, and from a program
EDGES = ("CARRY", "ENTRY", "TEST", "STACK")


def _named(tree: ast.Module) -> Iterator[str]:
    """The edges that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "redistrib.programs.ir.loops":
            yield from (alias.name for alias in node.names if alias.name in EDGES)


def _compared(tree: ast.Module) -> Iterator[int]:
    """The lines on which the edge of an operation, or the kind of one, is compared."""
    for node in ast.walk(tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            sides = [*node.args[:1]]  # by a table
        elif isinstance(node, ast.Subscript):
            sides = [node.slice]
        for side in sides:
            attributes = {one.attr for one in ast.walk(side) if isinstance(one, ast.Attribute)}
            is_kind = isinstance(side, ast.Attribute) and side.attr == "edge"
            if is_kind or {"edge", "kind"} <= attributes:
                yield node.lineno


def test_edges_of_loops_are_told_apart_in_one_place() -> None:
    makers, compared = set(), set()
    for path in ROOM.rglob("*.py"):
        name, tree = str(path.relative_to(ROOM)), ast.parse(path.read_text())
        makers |= {name for _ in _named(tree)}
        compared |= {(name, line) for line in _compared(tree)}
    assert (makers, compared) == (MAKERS, set())


@pytest.mark.parametrize(
    "text",
    [
        "a = op.edge is CARRY",
        "a = op.edge.kind == 'carry'",
        "a = graph.operations[k].edge in (STACK, CARRY)",
        "match op.edge:\n    case _: pass",
        "a = {CARRY: 0}.get(op.edge)",
        "a = table[op.edge.kind]",
    ],
)
def test_what_tells_them_apart_elsewhere_is_found(text: str) -> None:
    assert [*_compared(ast.parse(text))]


def test_operands_of_loops_are_split_in_one_place() -> None:
    """No other file adds the constants of a loop to what it carries, or reads from a jaxpr how many there are."""
    added, counted = set(), set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                sides = {side.attr for side in (node.left, node.right) if isinstance(side, ast.Attribute)}
                added |= {str(path.relative_to(ROOM))} if sides == {"constants", "carried"} else set()
            if isinstance(node, ast.Constant) and node.value in ("cond_nconsts", "num_consts", "num_carry"):
                counted.add(str(path.relative_to(ROOM)))
    assert (added, counted) == ({PLACE}, {"rules/equation.py"})


def test_each_edge_does_one_thing() -> None:
    """What leads into a loop and out of it is carried; what does neither ends it."""
    does = [[edge.computes, edge.carries, edge.slices, edge.stacks] for edge in (INNER, CARRY, ENTRY, STACK, TEST)]
    assert does == [[k == n for k in range(4)] for n in range(5)]
    outside = [[edge.makes_outside(write) for write in range(2)] for edge in (INNER, CARRY, ENTRY, STACK)]
    assert outside == [[False, False], [False, True], [False, False], [True, True]]
