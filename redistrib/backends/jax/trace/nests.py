"""Nests of equations by their rules; equal equations, as those of repeated layers, share one derivation."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from redistrib.backends.jax.trace import effects
from redistrib.backends.jax.trace.equation import RULES, Equation, Primitive, Rule, ValueRange, is_key, whole
from redistrib.backends.jax.trace.keys import nest_of_keys
from redistrib.backends.jax.trace.ranges import of_result
from redistrib.backends.jax.trace.sums import passing
from redistrib.programs.nest import Nest

_SMALL = 64  # elements of arrays of which an operation may run whole without a word


class Derived(NamedTuple):
    """An equation as a nest.

    Attributes:
        nest: the nest, under the name of the primitive.
        opaque: why the operation runs whole; empty where it may be cut, or is small.
        bounds: of the first result, where they are known.
    """

    nest: Nest
    opaque: str
    bounds: ValueRange | None


@dataclass
class Nests:
    """The nests of equations that were traced.

    Attributes:
        exact: whether no partial sum may pass an operation.
    """

    exact: bool
    _derived: dict[Hashable, Derived] = field(default_factory=dict)

    def of(self, equation: Equation, rule: Rule | None) -> Derived:
        """The nest of an equation by a rule; by none, of whole arrays."""
        key = _key(equation) if rule is not None and rule is RULES.get(equation.kind) else None
        if key is None:
            return self._by(equation, rule)
        if key not in self._derived:
            self._derived[key] = self._by(equation, rule)
        return self._derived[key]

    def _by(self, equation: Equation, rule: Rule | None) -> Derived:
        kind, forms = equation.kind, (*equation.ins, *equation.outs)
        keyed = any(form.key is not None for form in forms)
        nest = None if rule is None else nest_of_keys(equation, rule) if keyed else rule(equation)
        opaque, linear = "", nest.linear if nest is not None else ()
        small = all(np.prod(form.shape) <= _SMALL for form in forms)
        is_plain = nest is not None and not nest.ranges and isinstance(nest.body, Primitive)
        is_effect = nest is not None and not nest.ranges and equation.effectful and kind not in effects.CALLBACKS
        if nest is None or is_effect or (is_plain and not small):
            nest = nest or whole(equation)
            opaque = "" if small else f"no rule for {kind}" if rule is None else f"the rule of {kind} does not cover it"
        elif self.exact:
            linear = ()
        elif rule is RULES.get(kind) and not keyed:
            place = {k: number for number, k in enumerate(equation.reads)}
            linear = tuple(tuple(place[k] for k in group) for group in passing(equation))
        return Derived(renamed(nest, nest.name, linear), opaque, of_result(equation))


def renamed(nest: Nest, name: str, linear: tuple[tuple[int, ...], ...]) -> Nest:
    """The same nest under another name, with other linear groups of its reads; it is not checked again."""
    other = object.__new__(Nest)
    other.__dict__.update(nest.__dict__, name=name, linear=linear)  # cached properties depend on neither
    return other


def _key(equation: Equation) -> Hashable | None:
    """Equal for equations of equal nests; None where parameters cannot be compared, or literals are large."""
    literals = equation.literals.items()
    if equation.effectful or not all(_is_number(value) for _, value in literals):
        return None
    key = (
        equation.primitive,
        tuple((name, type(value), _told_apart(value)) for name, value in equation.params.items()),
        equation.ins,
        equation.outs,
        tuple((k, type(value), np.asarray(value).dtype, np.asarray(value).tobytes()) for k, value in literals),
        tuple((k, *map(repr, bounds)) for k, bounds in equation.ranges.items()),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _is_number(value: Any) -> bool:
    return np.size(value) <= 1 and not (hasattr(value, "dtype") and is_key(value))


def _told_apart(value: Any) -> Any:
    """A value that differs where the parameter does: 0.0 and -0.0 are equal."""
    return repr(value) if isinstance(value, float | complex) else value
