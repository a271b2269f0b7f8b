"""Names of the library's programs in profilers, by `jax.named_scope`."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax

from redistrib.plans.plan import Plan

REDISTRIBUTE = "redistribute"  # the primitive of a move of a traced array


def scope_name(text: str) -> str:
    """A text for names of operations in XLA: without braces, quotes, spaces and slashes.

    >>> scope_name("[3{x}12, 2~{y}12] -> [12, 12]")
    '[3x12,2~y12]->[12,12]'
    """
    return re.sub(r"[^\w.,:~\[\]+>-]", "", text, flags=re.ASCII) or "_"


def named(program: Callable[[jax.Array], jax.Array], plan: Plan) -> Callable[[jax.Array], jax.Array]:
    """The program of a plan in a scope named after its types, with a scope for each step."""
    name = scope_name(f"redistrib:{plan.source}->{plan.target}")

    def run(tile: jax.Array) -> jax.Array:
        with jax.named_scope(name):
            return program(tile)

    return run
