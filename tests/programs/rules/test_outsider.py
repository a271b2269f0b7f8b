"""A primitive of one's own: its rule and how it is fused, in one call from outside of the package."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from jax.extend.core import Primitive
from jax.interpreters import mlir

import redistrib as rd
from redistrib import ir
from redistrib.errors import ProgramError

X = jnp.arange(2.0**22).reshape(2048, 2048) / 2**22
triple_p = Primitive("triple")
triple_p.def_impl(lambda x: x * 3)
triple_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(triple_p, mlir.lower_fun(lambda x: x * 3, multiple_results=False))


def _with(triple: Any) -> Any:
    return lambda x: triple(jnp.tanh(x)) + 1


def _distributed(function: Any, size: int = 2048, **rules: Any) -> Any:
    return rd.distribute(function, (X[:size],), {"d": 4}, schedule=[rd.along("d", {"x": 0})], rules=rules)


@pytest.mark.parametrize("machine", ["v5e", "h100"])
def test_a_primitive_of_ones_own_is_cut_and_fused_as_its_class_says(machine: str) -> None:
    fused, alone = (
        _distributed(_with(triple_p.bind), triple=rd.rule("rows columns -> rows columns", fusion=fusion))
        for fusion in ("nest", "alone")
    )
    known = _distributed(_with(lambda x: x * 3))
    for f in (fused, alone):
        assert not f.opaque and f.program.received_bytes == 0
        assert jnp.allclose(f(X), known(X))
    in_one, in_three, of_library = (rd.simulate(f.program, machine).seconds for f in (fused, alone, known))
    assert in_one == pytest.approx(of_library)
    assert in_three > 1.5 * in_one  # its operand and its result are stored


def test_the_class_stays_in_the_text_of_a_program() -> None:
    alone = _distributed(_with(triple_p.bind), triple=rd.rule("rows columns -> rows columns", fusion="alone"))
    again = ir.parse(ir.to_text(alone.program))
    assert rd.simulate(again, "v5e").seconds == rd.simulate(alone.program, "v5e").seconds


def test_a_primitive_of_ones_own_may_have_uneven_tiles() -> None:
    f = _distributed(_with(triple_p.bind), 2047, triple=rd.rule("rows columns -> rows columns"))
    assert "uneven_tiles" in str(f.program) and jnp.allclose(f(X[:2047]), _with(lambda x: x * 3)(X[:2047]))


@pytest.mark.parametrize(("option", "name"), [("fusion", "scatter"), ("work", "heavy")])
def test_another_class_is_refused(option: str, name: str) -> None:
    with pytest.raises(ProgramError, match=f"no class '{name}' of {option}; take one of"):
        rd.rule("rows -> rows", **{option: name})
