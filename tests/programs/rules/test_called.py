"""Rules of jitted functions, where JAX differentiates, maps and splits the calls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.errors import ProgramError
from redistrib.programs.ir.program import Compute
from tests.messages import exactly
from tests.programs.run.models import whole


@jax.jit
def turned(x: Any, w: Any) -> Any:
    """Its transpose takes operands of the same shapes, and turns them back."""
    return jnp.cumsum(x, 1) * jnp.sin(w)


@jax.custom_vjp
def kernel(x: Any, w: Any) -> Any:
    return turned(x, w)


kernel.defvjp(
    lambda x, w: (turned(x, w), (x, w)),
    lambda kept, back: (
        lax.cumsum(back * jnp.sin(kept[1]), 1, reverse=True),
        back * jnp.cumsum(kept[0], 1) * jnp.cos(kept[1]),
    ),
)


def loss(x: Any, ws: Any, step: Any = turned) -> Any:
    """A checkpointed scan, of a call with an operand that no step changes and of one that is another at each."""
    carry, _ = lax.scan(jax.checkpoint(lambda c, w: (step(c, ws[0]) + step(c, w), None)), x, ws)
    return (carry**2).sum()


X, WS = whole(4, 8) / 32, whole(2, 4, 8) / 64
DIFFERENTIATED = {
    "value": loss,
    "gradient": jax.grad(loss, argnums=(0, 1)),
    "tangent": lambda x, ws: jax.jvp(loss, (x, ws), (x, ws)),
    "transpose": lambda x, ws: jax.linear_transpose(lambda x: turned(x, ws[0]), x)(x),
    "linearized": lambda x, ws: jax.linearize(lambda x: turned(x, ws[0]), x)[1](x),
    "mapped": lambda x, ws: jax.vmap(turned, (None, 0))(x, ws),
    "mapped within": lambda x, ws: jax.vmap(lambda x, w: turned(x[None], w[None])[0])(x, ws[0]),
    "kernel": jax.value_and_grad(lambda x, ws: loss(x, ws, kernel), argnums=(0, 1)),
}


@pytest.mark.parametrize("kind", ["rule", "proxy"])
@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_a_rule_is_of_the_function_and_not_of_what_jax_makes_of_it(name: str, kind: str) -> None:
    function = DIFFERENTIATED[name]
    rule = rd.rule("r ., r . -> r .", run=turned) if kind == "rule" else rd.proxy(turned.__wrapped__, run=turned)
    f = rd.distribute(function, (X, WS), {"d": 2}, schedule=rd.along("d", {"x": 0}), rules={"turned": rule})
    for found, wanted in zip(*(jax.tree.leaves(run(X, WS)) for run in (f, function)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_kernel_in_a_scan_of_a_gradient_keeps_its_rule() -> None:
    """JAX has lost the names of its arguments there."""

    def stack(x: Any, ws: Any) -> Any:
        return lax.scan(jax.checkpoint(lambda c, w: (kernel(c, w), None)), x, ws)[0].sum()

    f = rd.distribute(
        jax.value_and_grad(stack), (X, WS), {"d": 2}, schedule=rd.along("d", {"x": 0}),
        rules={"turned": rd.rule("r ., r . -> r .", run=turned)},
    )  # fmt: skip
    steps = [op for loop in f.program.ops if hasattr(loop, "program") for op in loop.program.ops]
    assert [op.name for op in steps if isinstance(op, Compute) and op.name.startswith("turned")] == ["turned"]


def test_a_proxy_of_other_operands_is_refused() -> None:
    said = (
        "operation 'turned': its proxy cannot be traced for float32[4, 8], float32[4, 8]: "
        "test_a_proxy_of_other_operands_is_refused.<locals>.<lambda>() takes 1 positional argument but 2 were given; "
        "give a function of its operands"
    )
    with pytest.raises(ProgramError, match=exactly(said)):
        rd.distribute(turned, (X, X), {"d": 2}, rules={"turned": rd.proxy(lambda x: x, run=turned)})
