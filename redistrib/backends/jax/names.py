"""Names that profilers show for what the library runs on devices, by `jax.named_scope`."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax

from redistrib.plans.plan import Plan


def scope_name(text: str) -> str:
    """A text as a part of the name of an operation in XLA: without braces, quotes, spaces and slashes.

    >>> scope_name("[3{x}12, 2~{y}12] -> [12, 12]")
    '[3x12,2~y12]->[12,12]'
    """
    return re.sub(r"[^\w.,:~\[\]+>-]", "", text, flags=re.ASCII) or "_"


def named(program: Callable[[jax.Array], jax.Array], plan: Plan) -> Callable[[jax.Array], jax.Array]:
    """The program of a plan, in a scope named after its types; each step has a scope of its own in it."""
    name = scope_name(f"redistrib:{plan.source}->{plan.target}")

    def run(tile: jax.Array) -> jax.Array:
        with jax.named_scope(name):
            return program(tile)

    return run
