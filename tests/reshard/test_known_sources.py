"""`reshard` of traced arrays on Auto axes, where the operation that made them asks for a sharding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import private
from redistrib.errors import TracedError
from redistrib.explain.profiling.inspect import inspect
from tests.reshard.meshes import AUTO, EXPLICIT, on

NUMBERS = np.arange(64, dtype=np.float32).reshape(8, 8)
HERE, THERE = on(AUTO, "x", None), on(AUTO, None, "x")


def by_shard_map(x: Any, **options: Any) -> Any:
    return jax.shard_map(lambda tile: tile * 1, mesh=AUTO, in_specs=HERE.spec, out_specs=HERE.spec, **options)(x)


MAKERS: dict[str, tuple[Callable[[Any], Any], NamedSharding]] = {
    "with_sharding_constraint": (lambda x: lax.with_sharding_constraint(x, HERE), HERE),
    "reshard": (lambda x: rd.reshard(x, HERE, source=on(AUTO, "y")), HERE),
    "device_put": (lambda x: jax.device_put(x, HERE), HERE),
    "jit": (jax.jit(lambda x: x * 1, out_shardings=HERE), HERE),
    "the second of two results": (lambda x: jax.jit(lambda x: (x[0], x * 1), out_shardings=(None, HERE))(x)[1], HERE),
    "shard_map": (by_shard_map, HERE),
}
FROM_NOTHING = {"zeros": lambda: jnp.zeros((8, 8)), "iota": lambda: lax.broadcasted_iota(np.float32, (8, 8), 1)}
UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "an argument": lambda x: x,
    "a sum": lambda x: lax.with_sharding_constraint(x, HERE) + 1,
    "another result": lambda x: jax.jit(lambda x: (x * 1, x * 2), out_shardings=(None, HERE))(x)[0],
    "a dimension as XLA likes": lambda x: lax.with_sharding_constraint(x, on(AUTO, P.UNCONSTRAINED, "y")),
    "a shard_map of some axes": lambda x: by_shard_map(x, axis_names={"x"}),
}


@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_the_operation_says_the_source(name: str, transformed: bool) -> None:
    """The program is that of the same `source=`."""
    make, source = MAKERS[name]
    programs = []
    for options in ({}, {"source": source}):

        def f(x: Any, options: Any = options) -> Any:
            return rd.reshard(make(x), THERE, **options)

        programs.append(jax.jit(jax.grad(lambda x, f=f: (f(x) ** 2).sum()) if transformed else f))
    array = jax.device_put(NUMBERS, on(AUTO, "y"))
    known, said = (inspect(program.lower(array).compile()) for program in programs)
    assert known.kinds == said.kinds
    assert np.array_equal(programs[0](array), 2 * NUMBERS if transformed else NUMBERS)


@pytest.mark.parametrize("name", FROM_NOTHING)
def test_numbers_made_from_nothing_are_not_sent(name: str) -> None:
    program = jax.jit(lambda: rd.reshard(FROM_NOTHING[name](), THERE))
    assert not inspect(program.lower().compile()).kinds
    assert np.array_equal(program(), FROM_NOTHING[name]()) and program().sharding.is_equivalent_to(THERE, 2)


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("transformed", [False, True])
def test_what_comes_from_elsewhere_is_moved_by_xla(name: str, transformed: bool) -> None:
    """The program is that of a sharding constraint."""
    programs = [
        jax.jit(
            jax.grad(lambda x, f=f: (f(UNKNOWN[name](x)) ** 2).sum())
            if transformed
            else lambda x, f=f: f(UNKNOWN[name](x))
        )
        for f in (lambda x: rd.reshard(x, THERE), lambda x: lax.with_sharding_constraint(x, THERE))
    ]
    array = jax.device_put(NUMBERS, on(AUTO, "y"))
    ours, theirs = (inspect(program.lower(array).compile()) for program in programs)
    assert ours.kinds == theirs.kinds
    assert np.array_equal(programs[0](array), programs[1](array))


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_comes_from_elsewhere_has_no_plan(name: str) -> None:
    with pytest.raises(TracedError, match="say it with source="):
        jax.jit(lambda x: rd.reshard(UNKNOWN[name](x), THERE, memory_limit="1MiB"))(NUMBERS)


def test_on_an_abstract_mesh_that_is_set() -> None:
    with jax.set_mesh(AUTO):
        made = jax.shard_map(lambda tile: tile * 1, in_specs=HERE.spec, out_specs=HERE.spec)
        assert np.array_equal(jax.jit(lambda x: rd.reshard(made(x), THERE.spec))(NUMBERS), NUMBERS)


def test_to_explicit_axes() -> None:
    known = jax.jit(lambda x: rd.reshard(lax.with_sharding_constraint(x, HERE), on(EXPLICIT, None, "x")))(NUMBERS)
    assert np.array_equal(known, NUMBERS) and known.sharding.is_equivalent_to(THERE, 2)


def test_a_jax_that_does_not_say_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "operation_of", lambda array: None)
    with pytest.raises(TracedError, match="say it with source="):
        jax.jit(lambda x: rd.reshard(MAKERS["jit"][0](x), THERE, memory_limit="1MiB"))(NUMBERS)
