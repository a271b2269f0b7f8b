"""Propagation looks only at what changed: it comes to what it comes to where it looks at everything."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from redistrib.errors import ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.programs.ir.graph import Graph
from redistrib.programs.run.prepared import prepare
from redistrib.programs.schedule.conflicts import reshard_instead
from redistrib.programs.schedule.propagate import Propagation
from tests.programs.search import models, oracle

MESH = Mesh.of("x=4,y=2")
DRAWN = 60  # graphs


def graphs() -> list[Graph]:
    drawn = [oracle.program(Random(seed), most=12) for seed in range(DRAWN)]
    of_split = (jax.ShapeDtypeStruct((4, 8), "float32"), jax.ShapeDtypeStruct((32,), "float32"))
    of_layers = (jax.ShapeDtypeStruct((3, 16, 16), "float32"), jax.ShapeDtypeStruct((8, 16), "float32"))
    steps = ((models.block_step, models.block_args(2, 4)), (layers, of_layers), (summed, of_layers), (split, of_split))
    return [*drawn, *(prepare(step, args, MESH, None, None, None).traced.graph for step, args in steps)]


def layers(weights: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x.sum(0)), x, weights)


def summed(weights: Any, x: Any) -> Any:
    return jax.lax.scan(lambda total, w: (total + x @ w, None), jnp.zeros_like(x), weights)[0]


def act(propagation: Propagation, random: Random) -> None:
    """Cut an argument, a result or an operation at random, spread an axis or cut operations in conflict."""
    graph, axis = propagation.graph, random.choice(MESH.names)
    match random.randrange(4):
        case 0:
            name = random.choice([*(array.name for array in graph.inputs), *graph.outputs])
            shape = propagation.arrays[name].shape
            if shape:
                propagation.cut_array(name, axis, random.randrange(len(shape)))
        case 1:
            number = random.randrange(len(graph.operations))
            dims = [*graph.operations[number].nest.position]
            if dims and propagation.may_cut(number, axis, dim := random.choice(dims)):
                propagation.cut_operation(number, axis, dim)
        case 2:
            reshard_instead(propagation, axis)
        case _:
            propagation.spread(axis)


def split(x: Any, y: Any) -> Any:
    bias = jnp.arange(8.0) * 2
    joined = (x + bias).reshape(32) * y
    return (joined.reshape(4, 2, 4) + 1).sum(1), joined


@pytest.mark.parametrize("part", range(4))
def test_only_what_changed_is_looked_at(part: int) -> None:
    spread = 0
    for number, graph in enumerate(graphs()):
        if number % 4 != part:
            continue
        for seed in range(12 if number < DRAWN else 100):
            own, whole = Propagation(graph, MESH), Propagation(graph, MESH)
            for step in range(8):
                own = own.copy() if step % 3 == 2 else own
                whole.settled.clear()
                for propagation in (own, whole):
                    with contextlib.suppress(ProgramError):
                        act(propagation, Random(100 * seed + step))
                        for axis in MESH.names:
                            propagation.spread(axis)
                assert (own.cuts, own.carries, own.choices) == (whole.cuts, whole.carries, whole.choices)
            spread += sum(len(cuts) for cuts in own.cuts)
    assert spread > 100


def test_readers_of_a_constant_that_now_has_a_place() -> None:
    """A value that depends on no input asks for no cut, as long as nothing that it is made of is cut by hand."""
    vector = jax.ShapeDtypeStruct((8,), "float32")
    graph = prepare(shared, (vector, vector), MESH, None, None, None).traced.graph
    propagation, numbers = Propagation(graph, MESH), {operation.kind: k for k, operation in enumerate(graph.operations)}
    propagation.cut_array(graph.inputs[0].name, "y", 0)
    propagation.spread("y")
    assert [len(propagation.cuts[numbers[kind]]) for kind in ("add", "mul", "sub")] == [1, 1, 0]
    propagation.cut_operation(numbers["iota"], "x", "d0")
    propagation.spread("y")
    assert [len(propagation.cuts[numbers[kind]]) for kind in ("add", "mul", "sub")] == [1, 1, 1]


def shared(x: Any, y: Any) -> Any:
    constant = jax.lax.iota("float32", 8) * jax.lax.iota("float32", 8)
    return x + constant, y - constant


def test_the_rest_of_the_examples_is_cut_in_steps_behind_another_reader() -> None:
    """What reads one row of each step comes first, and says nothing about the loop."""

    def rows(x: Any) -> Any:
        entries = 2 * x.reshape(2, 32, 16)
        return entries[:, 0], jax.lax.scan(lambda total, row: (total + row, None), jnp.zeros((32, 16)), entries)[0]

    mesh = Mesh.of("d=8")
    propagation = Propagation(
        prepare(rows, (jax.ShapeDtypeStruct((64, 16), "float32"),), mesh, None, None, None).traced.graph, mesh
    )
    propagation.cut_array(propagation.graph.inputs[0].name, "d", 0)
    reshard_instead(propagation, "d")
    assert [choice.why for choice in propagation.choices if "it cuts the rest of it in each" in choice.why]
