"""Moves whose programs may index a few elements only, so that offsets are as large to them as those beyond 32 bits.

The problems are those of `tests.fuzz.problems` on few devices: plans by `to_jax`, and arrays by `reshard`, eagerly, one
or several, in a traced function, and through one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import redistrib as rd
from redistrib.backends.jax import cross_mesh, execute
from redistrib.backends.jax.buckets import compiled
from redistrib.backends.jax.context import LoweringContext, context_of
from redistrib.programs.run.jax import program
from redistrib.resharding.through import planning
from redistrib.resharding.through.programs import ThroughProgram
from tests.fuzz import problems
from tests.fuzz.guard import Failure, attempt
from tests.fuzz.problems import Problem, Side

MOST_DEVICES = 8
LEAST_ELEMENTS, MOST_ELEMENTS = 16, 4096
LARGEST = (0, 0, 1, 2, 3, 5, 17)
DTYPES = ("int32", "uint8", "bfloat16", "float32", "complex64", "bool", "int4")
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {  # of NumPy or jax.numpy, and an array of at least one dimension
    "flip": lambda np_, x: np_.flip(x),
    "roll": lambda np_, x: np_.concatenate([x[1:], x[:1]]),
    "add": lambda np_, x: x + np_.flip(x, -1),
}


def check(seed: int, index: int) -> str:
    """Move the arrays of this number: the way they went, or "refused" by an error of the library.

    Raises:
        Failure: if a device holds something else, or anything but a `RedistribError` comes out.
    """
    rng = random.Random(f"offsets/{seed}/{index}")
    problem = replace(_small_problem(seed, index), dtype=rng.choice(DTYPES))
    ways = {"to_jax": _by_plan, "eager": _eagerly, "jit": _traced, "through": _through}
    if problem.source.axes != problem.target.axes or problem.source.order != problem.target.order:
        del ways["to_jax"]
    if not problem.shape or problem.dtype in ("bool", "int4"):
        del ways["through"]
    way, largest = rng.choice(sorted(ways)), rng.choice(LARGEST)
    told = f"{way} of {problem} on JAX with a largest index of {largest}"
    with _with_largest(largest):
        pairs = attempt(lambda: ways[way](problem, rng), told)
    if pairs is None:
        return "refused"
    for moved, expected, target in pairs:
        if (moved.shape, moved.dtype) != (expected.shape, expected.dtype):
            raise Failure("wrong", f"{moved.dtype}{list(moved.shape)}", case=told)
        if moved.size and not moved.sharding.is_equivalent_to(target, moved.ndim):  # under jit JAX cuts no empty array
            raise Failure("wrong", f"on {moved.sharding}", case=told)
        for shard in moved.addressable_shards:
            if not np.array_equal(np.asarray(shard.data), expected[shard.index]):
                raise Failure("wrong", f"{shard.device} holds other elements", case=told)
    return way


@contextmanager
def _with_largest(largest: int) -> Iterator[None]:
    """All programs made within have this largest index, and none outlives it."""

    def small(*args: Any) -> LoweringContext:
        return replace(context_of(*args), largest_index=largest)

    with ExitStack() as stack:
        for module in (execute, compiled, cross_mesh, program):
            stack.enter_context(mock.patch.object(module, "context_of", small))
        stack.enter_context(
            mock.patch.object(planning, "ThroughProgram", partial(ThroughProgram, largest_index=largest))
        )
        rd.clear_caches()
        stack.callback(rd.clear_caches)
        yield


def _small_problem(seed: int, index: int) -> Problem:
    """The next problem that JAX's devices here can hold, without summands and without a flaw, whose tiles change."""
    number = 1000 * index
    while True:
        problem = problems.draw(seed, number)
        is_plain = not problem.flaw and not problem.partial and problem.source != problem.target
        if is_plain and problem.devices <= MOST_DEVICES and LEAST_ELEMENTS <= math.prod(problem.shape) <= MOST_ELEMENTS:
            return problem
        number += 1


Moved = list[tuple[Any, np.ndarray, NamedSharding]]  # what came out, what was to, and where


def _by_plan(problem: Problem, rng: random.Random) -> Moved:
    f = rd.to_jax(problem.plan(), _mesh(problem.source), schedule=rng.choice((None, "overlap", "sequential")))
    values = _values(rng, problem)
    run = rng.choice((f, jax.jit(f)))
    return [(run(jax.device_put(values, f.source_sharding)), values, f.target_sharding)]


def _eagerly(problem: Problem, rng: random.Random) -> Moved:
    """One array or several of one kind, which travel together."""
    source, target = _shardings(problem)
    values = [_values(rng, problem) for _ in range(rng.choice((1, 1, 2, 3)))]
    moved = rd.reshard([jax.device_put(value, source) for value in values], target, via="collectives")
    return [(array, value, target) for array, value in zip(moved, values, strict=True)]


def _traced(problem: Problem, rng: random.Random) -> Moved:
    source, target = _shardings(problem)
    values = _values(rng, problem)
    move = jax.jit(lambda x: rd.reshard(x, target, source=source))
    return [(move(jax.device_put(values, source)), values, target)]


def _through(problem: Problem, rng: random.Random) -> Moved:
    source, target = _shardings(problem)
    values, function = _values(rng, problem), FUNCTIONS[rng.choice(sorted(FUNCTIONS))]
    moved = rd.reshard(jax.device_put(values, source), target, through=partial(function, jnp))
    return [(moved, function(np, values), target)]


def _shardings(problem: Problem) -> tuple[NamedSharding, NamedSharding]:
    source, target = (
        NamedSharding(_mesh(side), PartitionSpec(*(names[::-1] or None for names in side.cut)))
        for side in (problem.source, problem.target)
    )
    return source, target


def _mesh(side: Side) -> Mesh:
    devices = np.array(jax.devices())[list(side.order)]
    return Mesh(devices.reshape([size for _, size in side.axes]), tuple(name for name, _ in side.axes))


def _values(rng: random.Random, problem: Problem) -> np.ndarray:
    """Small integers, of which all types have every sum."""
    drawn = np.random.default_rng(rng.randrange(2**32)).integers(0, 2 if problem.dtype == "bool" else 7, problem.shape)
    return np.asarray(drawn).astype(jnp.dtype(problem.dtype))
