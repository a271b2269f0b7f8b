"""A function's jaxpr with the arrays that it captures: its structure, apart from their values, and without calls.

Arrays that a function captures are arguments here, so that calls which differ in their values alone share a plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from redistrib.backends.jax.private import INLINED, bind, source_line
from redistrib.backends.jax.values import is_packed
from redistrib.cache import Key
from redistrib.errors import ThroughError


@dataclass(frozen=True)
class Captured:
    """An array that a function reads and is not given.

    Attributes:
        value: of JAX or NumPy.
        aval: its abstract value in the function.
    """

    value: Any
    aval: Any

    @property
    def is_here(self) -> bool:
        """Whether this process has all of it."""
        return not isinstance(self.value, jax.Array) or self.value.is_fully_addressable

    @property
    def kind(self) -> Hashable:
        """Shape, element type and weak type, and where the array is."""
        sharding = self.value.sharding if isinstance(self.value, jax.Array) else None
        return self.aval.shape, str(self.aval.dtype), getattr(self.aval, "weak_type", False), sharding


class TracedFunction:
    """A jaxpr, and the arrays that it captures, also in the functions that it calls.

    Args:
        closed: the jaxpr.

    Raises:
        ThroughError: for a captured array that is traced, deleted, a key, or no array.

    Attributes:
        captured: each array once, in the order in which they are first met.
        structure: equal for jaxprs that differ in no more than the values of captured arrays.
    """

    def __init__(self, closed: Any) -> None:
        self._closed = closed
        self.captured: list[Captured] = []
        self._number: dict[int, int] = {}  # of each captured array, by its id: `captured` keeps them alive
        self._structures: dict[int, Hashable] = {}  # of the functions that are called, by the id of their jaxpr
        self.structure: Hashable
        try:
            self.structure = Key((self._structure(closed.jaxpr, closed.consts),))
        except TypeError:  # an operation's parameter has no hash, so no other call is known to be equal
            self.structure = object()

    def flat(self) -> tuple[Any, list[str]]:
        """A jaxpr without calls, and the source line of each of its equations.

        Its inputs are the function's, and behind them the captured arrays.
        """
        avals = [*(var.aval for var in self._closed.jaxpr.invars), *(each.aval for each in self.captured)]
        count, lines = len(self._closed.jaxpr.invars), list[str]()

        def run(*args: Any) -> list[Any]:
            return self._inlined(self._closed.jaxpr, self._closed.consts, args[:count], args[count:], lines, "")

        jaxpr = jax.make_jaxpr(run)(*map(abstract, avals)).jaxpr
        return jaxpr, lines if len(lines) == len(jaxpr.eqns) else [""] * len(jaxpr.eqns)

    def _structure(self, jaxpr: Any, consts: Sequence[Any]) -> Hashable:
        number: dict[Any, int] = {}

        def atom(item: Any) -> Hashable:
            if not is_literal(item):
                return number.setdefault(item, len(number))
            if item.aval.shape:
                return "captured", self._capture(item.val, item.aval)
            return np.asarray(item.val, item.aval.dtype).tobytes(), str(item.aval.dtype), item.aval.weak_type

        parts: list[Hashable] = [
            tuple((atom(var), var.aval.shape, str(var.aval.dtype), var.aval.weak_type) for var in jaxpr.invars),
            tuple(
                (atom(var), self._capture(const, var.aval)) for var, const in zip(jaxpr.constvars, consts, strict=True)
            ),
        ]
        for eqn in jaxpr.eqns:
            name = eqn.primitive.name
            if name in INLINED:
                inner = eqn.params[INLINED[name]]
                if id(inner) not in self._structures:
                    self._structures[id(inner)] = Key((self._structure(*_opened(inner)),))
                work: Hashable = self._structures[id(inner)]
            else:
                work = eqn.primitive, tuple((key, _hashable(value)) for key, value in sorted(eqn.params.items()))
            parts.append((work, tuple(map(atom, eqn.invars)), tuple(map(atom, eqn.outvars))))
        parts.append(tuple(map(atom, jaxpr.outvars)))
        return tuple(parts)

    def _capture(self, value: Any, aval: Any) -> int:
        if id(value) not in self._number:
            _check(value, aval)
            self._number[id(value)] = len(self.captured)
            self.captured.append(Captured(value, aval))
        return self._number[id(value)]

    def _inlined(
        self,
        jaxpr: Any,
        consts: Sequence[Any],
        args: Sequence[Any],
        captured: Sequence[Any],
        lines: list[str],
        where: str,
    ) -> list[Any]:
        """The results of a jaxpr, with calls in it followed; notes the source line of each equation."""
        env: dict[Any, Any] = dict(zip(jaxpr.invars, args, strict=True))
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            env[var] = captured[self._number[id(const)]]

        def read(atom: Any) -> Any:
            if is_literal(atom):
                return captured[self._number[id(atom.val)]] if atom.aval.shape else atom.val
            return env[atom]

        for eqn in jaxpr.eqns:
            values = [read(atom) for atom in eqn.invars]
            line, name = source_line(eqn) or where, eqn.primitive.name
            if name in INLINED:
                body, inside = _opened(eqn.params[INLINED[name]])
                outs = self._inlined(body, inside, values, captured, lines, line)
            else:
                lines.append(line)
                outs = bind(eqn.primitive, values, eqn.params)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]


@dataclass(frozen=True)
class Constants:
    """Values of a flat jaxpr that depend on captured arrays and on no input.

    Attributes:
        captured: variables of the captured arrays.
        equations: those that make the values, in order.
        atoms: the values.
    """

    captured: tuple[Any, ...]
    equations: tuple[Any, ...]
    atoms: tuple[Any, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Their element types."""
        return tuple(str(atom.aval.dtype) for atom in self.atoms)

    def values(self, captured: Sequence[Any]) -> list[np.ndarray]:
        """The values for captured arrays, on the host."""
        env: dict[Any, Any] = dict(zip(self.captured, captured, strict=True))

        def read(atom: Any) -> np.ndarray:
            """From the host: arrays on several sets of devices would not go into one operation."""
            return np.asarray(atom.val if is_literal(atom) else env[atom]).astype(atom.aval.dtype, copy=False)

        # As inside a compiled function, whose constants a guard does not concern.
        with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"):
            for eqn in self.equations:
                operands = [jnp.asarray(read(atom)) for atom in eqn.invars]
                env.update(zip(eqn.outvars, bind(eqn.primitive, operands, eqn.params), strict=True))
            return [read(atom) for atom in self.atoms]


def abstract(aval: Any) -> jax.ShapeDtypeStruct:
    """Shape, element type and weak type of an abstract value or an array."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def is_literal(atom: Any) -> bool:
    """Whether an operand is a number in the jaxpr itself."""
    return isinstance(atom, jex.Literal)


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, jex.ClosedJaxpr) else (jaxpr, ())


def _hashable(value: Any) -> Hashable:
    """A parameter of an operation; those that are compared by identity are kept alive by the key that has them."""
    if isinstance(value, np.ndarray):
        return value.tobytes(), value.shape, str(value.dtype)
    if isinstance(value, Mapping):
        return tuple((key, _hashable(each)) for key, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _check(value: Any, aval: Any) -> None:
    """Check that a function may capture a value."""
    if isinstance(value, jax.core.Tracer):
        raise ThroughError(
            "",
            f"the function captures a traced array, {jax.typeof(value).str_short()}; through= goes with arrays outside "
            "jit, so call it there, or reshard the function's result under jit",
        )
    if not isinstance(aval, jax.core.ShapedArray):
        raise ThroughError("", f"the function captures {type(value).__name__}, which is no array; pass its value")
    shown = f"the function captures an array of {value.dtype}{list(value.shape)}"
    if jnp.issubdtype(value.dtype, jax.dtypes.extended) or is_packed(value.dtype):
        raise ThroughError("", f"{shown}, whose elements go through no function; leave it out")
    if not isinstance(value, jax.Array):
        return
    if value.is_deleted():
        raise ThroughError("", f"{shown} that has been donated or deleted; capture one that is alive")
    if getattr(getattr(value.sharding, "spec", None), "unreduced", None):
        raise ThroughError("", f"{shown} whose tiles are partial sums; reshard it without through= first")
