"""A kind of loop of one's own: a rule for its primitive, and no room is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive

import redistrib as rd
from redistrib import ir
from redistrib.programs.ir.program import Loop
from redistrib.programs.rules.equation import form_of
from redistrib.programs.rules.loops import LOOPS, OpenLoop, kind_of_loop

# It hands a value on as long as it is small, but no further than there are entries.
trail_p = Primitive("trail")
trail_p.multiple_results = True
trail_p.def_abstract_eval(lambda x, rows, *, step: (x, rows))


def step(x: Any, row: Any) -> Any:
    return jnp.tanh(x @ row), row * 2


def trail(x: Any, rows: Any) -> Any:
    """Each step reads an entry, makes an entry, and hands a value on."""
    entry = jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype)
    return trail_p.bind(x, rows, step=jax.make_jaxpr(step)(x, entry))


def expected(x: Any, rows: Any) -> Any:
    """The entries are taken from the last to the first."""
    made = [0] * len(rows)
    for k in reversed(range(len(rows))):
        x, made[k] = step(x, rows[k])
    return x, jnp.stack(made)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    @kind_of_loop("trail")
    def rule(tracer: Any, eqn: Any, ins: Sequence[Any], source: str) -> list[Any]:
        forms = [form_of(var.aval) for var in eqn.invars]
        start, rows = (tracer.materialized(atom, form) for atom, form in zip(ins, forms, strict=True))
        entry = forms[1]._replace(shape=forms[1].shape[1:])
        loop = OpenLoop(tracer, "trail", forms[1].shape[0], source, reverse=True)
        carried = loop.carry(start, forms[0])
        end, made = tracer.inlined(eqn.params["step"], [carried, loop.entry(rows, forms[1])], source)
        (left,) = loop.close_carries([tracer.materialized(end, forms[0])])
        stacked = loop.stack(tracer.materialized(made, entry), forms[1])
        loop.end()
        return [left, stacked]

    yield
    del LOOPS["trail"]


def function(x: Any, rows: Any) -> Any:
    end, made = trail(x * 2, rows)
    return end.sum(), made


ARGS = (jnp.linspace(-1, 1, 64).reshape(8, 8), jnp.linspace(-1, 1, 192).reshape(3, 8, 8))


@pytest.mark.parametrize("cuts", [{"x": 0}, {"x": 1}, {"rows": 1}, {"rows": 2}])
def test_it_is_cut_and_run_as_a_loop(cuts: dict[str, int]) -> None:
    f = rd.distribute(function, ARGS, {"d": 4}, schedule=[rd.along("d", cuts)])
    (loop,) = (op for op in f.program.ops if isinstance(op, Loop))
    assert (loop.steps, loop.reverse, loop.carried, loop.condition) == (3, True, 1, None)
    end, made = expected(ARGS[0] * 2, ARGS[1])
    for actual, wanted in zip(f(*ARGS), (end.sum(), made), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_it_is_searched_timed_and_written_as_a_loop() -> None:
    (found, *_) = rd.search(function, ARGS, {"d": 4}, machine="v5e")
    f = rd.distribute(function, ARGS, {"d": 4}, schedule=found.schedule, machine="v5e")
    assert rd.simulate(f.program, "v5e").seconds > 0
    again = ir.parse(ir.to_text(f.program))
    assert [op.form for op in again.ops if isinstance(op, Loop)] == [(0, 1, 3, True)]
    np.testing.assert_allclose(f(*ARGS)[1], expected(*ARGS)[1], rtol=1e-5)


def test_no_loop_is_made_of_it_without_the_rule() -> None:
    del LOOPS["trail"]
    try:
        f = rd.distribute(function, ARGS, {"d": 4}, schedule=[rd.along("d", {"x": 0})])
        assert not any(isinstance(op, Loop) for op in f.program.ops)
    finally:
        LOOPS["trail"] = lambda *_: []
