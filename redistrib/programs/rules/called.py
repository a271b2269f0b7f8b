"""Calls of jitted functions that have a rule: which calls of that name compute the function itself.

JAX names the calls that it makes when it differentiates, maps or splits a function after the function: its tangent,
its transpose, the part that a loop does not repeat. Their operands may have the shapes of the function's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend import core as jex

from redistrib.backends.jax.private import TRACING_FILES, is_as_traced
from redistrib.programs.rules.equation import CallRule
from redistrib.programs.rules.identity import text_of

TRACING_FILES.add(__file__)


@dataclass
class JittedCalls:
    """The jitted functions that were met, by name: the text of each."""

    texts: dict[str, set[str]] = field(default_factory=dict)

    def is_call_of(self, eqn: Any, name: str, rule: CallRule) -> bool:
        """Whether an equation that calls a function of this name computes the function itself.

        It does if it is as the user's function was traced, or has the equations of a function that was, or those of
        the function that the rule runs.
        """
        closed = eqn.params["jaxpr"]
        texts = self.texts.setdefault(name, set())
        if is_as_traced(eqn):
            texts.add(_text(closed))
            return True
        text = _text(closed)
        return bool(text) and (text in texts or text == _traced(rule.run, closed.in_avals))


def _text(closed: jex.ClosedJaxpr) -> str:
    """Equal for functions of the same equations; empty for those with constants, of which the text says nothing."""
    return "" if closed.consts else text_of(closed.jaxpr)


def _traced(run: Any, avals: Any) -> str:
    """The text of a function for these operands; empty where it cannot be traced for them."""
    if run is None:
        return ""
    try:
        closed = jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals))
    except Exception:  # the function takes other operands, and may fail in any way
        return ""
    eqns = closed.jaxpr.eqns
    if len(eqns) == 1 and "jaxpr" in eqns[0].params and eqns[0].primitive.name in ("jit", "pjit"):
        closed = eqns[0].params["jaxpr"]  # the function is jitted
    return _text(closed)
