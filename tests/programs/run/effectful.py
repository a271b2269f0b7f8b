"""Functions with effects, drawn: statements that print, log or ask a host, wherever a function may have them.

A drawn function is told by `record` what to call. `recorded` runs it and gives what its calls have seen, in order, so
that two ways to run it can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax
from jax.experimental import io_callback

KINDS = ("print", "debug", "io", "answer")
WRAPPERS = (
    "plain", "jit", "scan", "long scan", "while", "condition of while", "cond", "remat", "custom_jvp", "nested",
    "switch", "cond in scan", "scan in cond", "vmap", "gradient", "gradient of scan", "gradient of cond",
)  # fmt: skip
_DERIVED = ("remat", "custom_jvp", "gradient", "gradient of scan", "gradient of cond")
ENTRIES: list[tuple[str, Any]] = []


@dataclass(frozen=True)
class Statement:
    """A statement with an effect.

    Attributes:
        kind: `"print"` and `"debug"` show a value, `"io"` hands it to a host, and `"answer"` reads a value from there.
        wrapper: what stands around it.
        whole: whether it sees the array, and not its sum.
        ordered: whether it asks for its place in the order of calls.
    """

    kind: str = "debug"
    wrapper: str = "plain"
    whole: bool = False
    ordered: bool = False

    def __call__(self, x: Any, tag: str) -> Any:
        """The array after the statement, which `"answer"` alone changes."""
        return _WRAPPED[self.wrapper](lambda value: self._call(value, tag), x)

    def _call(self, x: Any, tag: str) -> Any:
        seen = x if self.whole else x.sum()

        def note(value: Any) -> None:
            ENTRIES.append((tag, np.asarray(value)))

        def answer(value: Any) -> Any:
            note(value)
            return np.asarray(np.asarray(value).sum() % 5 - 2, np.float32)

        match self.kind:
            case "print":
                jax.debug.print("{tag} {value}", tag=_Noted(tag), value=seen, ordered=self.ordered)
            case "debug":
                jax.debug.callback(note, seen, ordered=self.ordered)
            case "io":
                io_callback(note, None, seen, ordered=self.ordered)
            case "answer":
                return x + io_callback(answer, jax.ShapeDtypeStruct((), jnp.float32), seen, ordered=self.ordered)
        return x


class _Noted:
    """A part of a printed text that notes that it is printed."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def __format__(self, spec: str) -> str:
        ENTRIES.append((self.tag, np.zeros(())))
        return self.tag


Body = Callable[[Any], Any]


def _scan(length: int) -> Callable[[Body, Any], Any]:
    return lambda body, x: lax.scan(lambda carry, k: (body(carry + k), None), x, jnp.arange(length, dtype=x.dtype))[0]


def _while(body: Body, x: Any) -> Any:
    return lax.while_loop(lambda state: state[0] < 3, lambda state: (state[0] + 1, body(state[1] + 1)), (0, x))[1]


def _condition(body: Body, x: Any) -> Any:
    return lax.while_loop(
        lambda state: body(state[1]).sum() * 0 + state[0] < 2, lambda state: (state[0] + 1, state[1] * 2), (0, x)
    )[1]


def _custom(body: Body, x: Any) -> Any:
    @jax.custom_jvp
    def run(x: Any) -> Any:
        return body(x)

    run.defjvp(lambda primals, tangents: (run(*primals), tangents[0]))
    return run(x)


def _rows(body: Body, x: Any) -> Any:
    """Row by row, as one of many."""
    return jax.vmap(body)(x)


def _gradient(around: Callable[[Body, Any], Any]) -> Callable[[Body, Any], Any]:
    return lambda body, x: x + jax.grad(lambda x: around(body, x).sum())(x)


def _cond(body: Body, x: Any) -> Any:
    return lax.cond(x.sum() > 0, body, lambda x: x * 2, x)


def _switch(body: Body, x: Any) -> Any:
    return lax.switch(jnp.int32(x.sum()) % 3, [body, lambda x: body(x + 1), lambda x: x * 2], x)


_WRAPPED: dict[str, Callable[[Body, Any], Any]] = {
    "plain": lambda body, x: body(x),
    "jit": lambda body, x: jax.jit(body)(x),
    "scan": _scan(3),
    "long scan": _scan(130),
    "while": _while,
    "condition of while": _condition,
    "cond": _cond,
    "switch": _switch,
    "cond in scan": lambda body, x: _scan(3)(lambda x: _cond(body, x), x),
    "scan in cond": lambda body, x: _cond(lambda x: _scan(3)(body, x), x),
    "vmap": _rows,
    "gradient": _gradient(lambda body, x: body(x)),
    "gradient of scan": _gradient(_scan(3)),
    "gradient of cond": _gradient(_cond),
    "remat": lambda body, x: jax.checkpoint(body)(x),
    "custom_jvp": _custom,
    "nested": lambda body, x: _while(lambda x: lax.cond(x.sum() > 0, body, lambda x: x - 1, x), x),
}


def is_allowed(one: Statement) -> bool:
    """Whether JAX takes the statement: derivatives have no input and output, and rows no order."""
    if one.wrapper == "vmap":
        return not one.ordered
    return one.wrapper not in _DERIVED or one.kind in ("print", "debug")


def statements() -> st.SearchStrategy[Statement]:
    """Any statement that JAX takes."""
    kinds, wrappers = st.sampled_from(KINDS), st.sampled_from([one for one in WRAPPERS if one != "long scan"])
    return st.builds(Statement, kinds, wrappers, st.booleans(), st.booleans()).filter(is_allowed)


@dataclass(frozen=True)
class Function:
    """Statements between products and sums; a function of an array and a matrix."""

    statements: tuple[Statement, ...] = field(default=())

    def __call__(self, x: Any, w: Any) -> Any:
        for k, statement in enumerate(self.statements):
            x = statement(x, f"s{k}")
            x = x @ w if k % 2 else x * 2 + x.sum(0)
        return x


def functions() -> st.SearchStrategy[Function]:
    """Functions of a few statements."""
    return st.lists(statements(), min_size=1, max_size=4).map(tuple).map(Function)


def recorded(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, list[tuple[str, Any]]]:
    """The results of a call, and what its statements have seen, in order."""
    ENTRIES.clear()
    results = jax.block_until_ready(function(*args))
    jax.effects_barrier()
    entries = list(ENTRIES)
    ENTRIES.clear()
    return results, entries
