"""Nests of equations by their rules; equal equations, as those of repeated layers, share one derivation."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from redistrib.cache import Key, changed
from redistrib.programs.ir.graph import operation_identity
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.record import Effects, Record, Tails
from redistrib.programs.rules import effects
from redistrib.programs.rules.equation import (
    RULES,
    ArrayForm,
    Equation,
    Primitive,
    Rule,
    ValueRange,
    form_of,
    is_key,
    whole,
)
from redistrib.programs.rules.identity import identity_of
from redistrib.programs.rules.in_parts import UNTOLD
from redistrib.programs.rules.keys import nest_of_keys
from redistrib.programs.rules.ranges import of_result
from redistrib.programs.rules.sums import passing
from redistrib.programs.rules.traced import TraceOptions


class Derived(NamedTuple):
    """An equation as a nest.

    Attributes:
        nest: the nest, under the name of the primitive.
        opaque: why the operation runs whole; empty where it may be cut, or is small.
        bounds: of the first result, where they are known.
        identity: of every operation that it becomes.
    """

    nest: Nest
    opaque: str
    bounds: ValueRange | None
    identity: Key


@dataclass
class Nests:
    """The nests of equations that were traced.

    Attributes:
        options: of the trace.
    """

    options: TraceOptions
    _derived: dict[Hashable, Derived] = field(default_factory=dict)
    _equations: dict[Key, Equation] = field(default_factory=dict)
    _keys: dict[int, Key] = field(default_factory=dict)  # of these equations, by `id`

    def equation(self, eqn: Any, literals: Mapping[int, Any], called: str, rules: Mapping[str, Rule]) -> Equation:
        """An equation of a jaxpr: the first of those that do the same, which knows what was asked of it before.

        Args:
            eqn: the equation.
            literals: values of the operands that are no arrays of the program, by position.
            called: name of the called function; empty where the primitive is no call.
            rules: rules of the caller.
        """
        params = effects.params_of(eqn)
        ins, outs = (tuple([form_of(var.aval) for var in side]) for side in (eqn.invars, eqn.outvars))
        is_effect = bool(effects.effects_of(eqn))
        key = None if is_effect else _key(eqn.primitive, called, params, ins, outs, literals)
        equation = None if key is None else self._equations.get(key)
        if equation is None:
            equation = Equation(eqn.primitive, params, ins, outs, literals, called, is_effect, rules)
            if key is not None:
                self._equations[key], self._keys[id(equation)] = equation, key
        return equation

    def of(self, equation: Equation, rule: Rule | None, ranges: Mapping[int, ValueRange]) -> Derived:
        """The nest of an equation by a rule; by none, of whole arrays.

        Args:
            equation: without bounds of operands.
            rule: the rule.
            ranges: the known bounds of operands, by position.
        """
        shared = self._key_of(equation) if rule is not None and rule is RULES.get(equation.kind) else None
        key = None if shared is None else (shared, *[(k, *map(repr, bounds)) for k, bounds in ranges.items()])
        derived = self._derived.get(key) if key is not None else None
        if derived is None:
            how = self.options
            bounded = replace(equation, ranges=ranges, exact=how.exact, trip_count=how.trip_count, axes=how.axes)
            derived = self._by(bounded, rule)
            if key is not None:
                self._derived[key] = derived
        return derived

    def _key_of(self, equation: Equation) -> Key | None:
        if id(equation) in self._keys:
            return self._keys[id(equation)]
        parts = (equation.called, equation.params, equation.ins, equation.outs, equation.literals)
        return None if equation.effectful else _key(equation.primitive, *parts)

    def _by(self, equation: Equation, rule: Rule | None) -> Derived:
        kind, forms = equation.kind, (*equation.ins, *equation.outs)
        keyed = any(form.key is not None for form in forms)
        nest = None if rule is None else nest_of_keys(equation, rule) if keyed else rule(equation)
        if nest is not None and nest.record is None and rule is not RULES.get(kind):
            given = _of_given_rule(nest, equation.record)
            nest = nest if given == equation.record else replace(nest, record=given)
        opaque, linear = "", nest.linear if nest is not None else ()
        small = all(np.prod(form.shape) <= UNTOLD for form in forms)
        is_plain = nest is not None and not nest.ranges and isinstance(nest.body, Primitive)
        calls_back = equation.record.effects is Effects.CALLBACK
        is_effect = nest is not None and not nest.ranges and equation.effectful and not calls_back
        if nest is None or is_effect or (is_plain and not small):
            nest = nest or whole(equation)
            opaque = "" if small else f"no rule for {kind}" if rule is None else f"the rule of {kind} does not cover it"
        elif self.options.exact:
            linear = ()
        elif rule is RULES.get(kind) and not keyed:
            place = {k: number for number, k in enumerate(equation.reads)}
            linear = tuple(tuple(place[k] for k in group) for group in passing(equation))
        _ = nest.position, nest.sizes, nest.combiner  # found once for all that are renamed
        nest = changed(nest, linear=linear)
        return Derived(nest, opaque, of_result(equation), operation_identity(nest, kind, opaque))


def _of_given_rule(nest: Nest, record: Record) -> Record:
    """The record of an operation by a rule of the caller that gives none: only the primitive may see tails."""
    return record if isinstance(nest.body, Primitive) else replace(record, tails=Tails.NEVER)


def _key(
    primitive: Any,
    called: str,
    params: Mapping[str, Any],
    ins: tuple[ArrayForm, ...],
    outs: tuple[ArrayForm, ...],
    literals: Mapping[int, Any],
) -> Key | None:
    """Equal for equations that do the same; None where parameters cannot be compared, or literals are large.

    Bounds of operands are not in it, nor is what all equations of a function have in common.
    """
    if not all(map(_is_number, literals.values())):
        return None
    return identity_of(primitive, params, (called, ins, outs), literals.items())


def _is_number(value: Any) -> bool:
    return np.size(value) <= 1 and not (hasattr(value, "dtype") and is_key(value))
