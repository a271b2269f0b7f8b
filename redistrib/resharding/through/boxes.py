"""Which boxes of which inputs a box of a result is made of, and how.

A jaxpr is read backwards, from a box of a result to boxes of the inputs. Views (transposes, reshapes, slices,
concatenations, broadcasts) turn a box into boxes; element-wise steps leave it as it is. Steps of one operand go on to
the inputs, past all views, so that each may run before or after its box moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from redistrib.backends.jax.private import INLINED, source_line
from redistrib.errors import ThroughError
from redistrib.resharding.through.forms import (
    Box,
    Combination,
    Concatenation,
    ElementwiseStep,
    Fetch,
    Form,
    Number,
    View,
    fetches,
)
from redistrib.resharding.through.reshapes import boxes_of_run, dimension_groups, flat_runs

MOST_PARTS = 512  # boxes of an input that a reshape may make of one box of a result

# Primitives of which element i of the result depends on element i of each operand.
_ELEMENTWISE = frozenset([
    "abs", "add", "add_any", "and", "atan2", "cbrt", "ceil", "clamp", "conj", "convert_element_type", "cos", "cosh",
    "div", "eq", "erf", "exp", "exp2", "expm1", "floor", "ge", "gt", "imag", "integer_pow", "is_finite", "le",
    "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or",
    "population_count", "pow", "real", "reduce_precision", "rem", "round", "rsqrt", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh",
    "xor",
])  # fmt: skip


class Backwards:
    """A jaxpr that is read from its results to its inputs.

    Args:
        closed: the jaxpr; calls in it are followed.

    Raises:
        ThroughError: if it has an operation that is neither a view nor element-wise.
    """

    def __init__(self, closed: Any) -> None:
        lines: list[str] = []
        shapes = [jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype) for var in closed.jaxpr.invars]
        flat = jax.make_jaxpr(lambda *args: _inlined(closed.jaxpr, closed.consts, args, lines, ""))(*shapes)
        jaxpr = flat.jaxpr
        self._origins: dict[Any, tuple[Any, int]] = {}  # by variable: its equation, and which result it is
        self._values: dict[Any, Any] = dict(zip(jaxpr.constvars, flat.consts, strict=True))
        self._inputs = {var: k for k, var in enumerate(jaxpr.invars)}
        self._lines = dict(zip(map(id, jaxpr.eqns), lines, strict=False)) if len(lines) == len(jaxpr.eqns) else {}
        self._constant: set[Any] = set()  # variables that depend on no input; their values are made when they are read
        for eqn in jaxpr.eqns:
            self._origins.update({var: (eqn, k) for k, var in enumerate(eqn.outvars)})
            if all(map(self._is_constant, eqn.invars)):
                self._constant.update(eqn.outvars)
        self.results = list(jaxpr.outvars)

    def used(self) -> set[int]:
        """The inputs that results are made of."""
        forms = [self.form(k, tuple((0, size) for size in var.aval.shape)) for k, var in enumerate(self.results)]
        return {fetch.leaf for form in forms for fetch in fetches(form)}

    def form(self, result: int, box: Box) -> Form:
        """The form of a box of a result."""
        return self._form(self.results[result], box, ())

    def _is_constant(self, atom: Any) -> bool:
        return _is_literal(atom) or atom in self._values or atom in self._constant

    def _value(self, atom: Any) -> Any:
        """The value of a variable that depends on no input; else None."""
        if _is_literal(atom):
            return atom.val
        if atom in self._constant and atom not in self._values:
            eqn, _ = self._origins[atom]
            out = eqn.primitive.bind(*[jnp.asarray(self._value(item)) for item in eqn.invars], **eqn.params)
            self._values.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else [out], strict=True))
        return self._values.get(atom)

    def _form(self, atom: Any, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        if not _is_literal(atom) and atom in self._inputs:
            return Fetch(self._inputs[atom], box, steps)
        value = self._value(atom)
        if value is not None:
            part = jnp.asarray(value)[tuple(slice(*item) for item in box)]
            for step in steps:
                part = step(part)
            return Number.of(part)
        eqn, number = self._origins[atom]
        rule = getattr(self, f"_{eqn.primitive.name}", None)
        if rule is not None:
            form: Form = rule(eqn, number, box, steps)
            return form
        if eqn.primitive.name in _ELEMENTWISE:
            return self._elementwise(eqn, box, steps)
        raise ThroughError(
            eqn.primitive.name,
            f"{self._shown(eqn)} is neither a view of its operand nor "
            "element-wise, so arrays cannot go through it on their way; apply it before or after, under jax.jit or "
            "redistrib.distribute",
        )

    def _elementwise(self, eqn: Any, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        shape = tuple(eqn.outvars[0].aval.shape)
        operands: list[Number | None] = []
        arrays: list[tuple[Any, Box]] = []
        for atom in eqn.invars:
            value = self._value(atom)
            if value is not None and np.shape(value) == ():
                operands.append(Number.of(value))
                continue
            operands.append(None)
            arrays.append((atom, box if tuple(atom.aval.shape) == shape else tuple((0, n) for n in atom.aval.shape)))
        params = tuple(eqn.params.items())
        if len(arrays) == 1 and arrays[0][1] == box:
            step = ElementwiseStep(eqn.primitive, params, tuple(operands), str(eqn.outvars[0].aval.dtype))
            return self._form(arrays[0][0], box, (step, *steps))
        forms = tuple(self._form(atom, part, ()) for atom, part in arrays)
        return Combination(eqn.primitive, params, tuple(operands), forms, steps)

    # ------------------------------------------------------------------------------------------ views

    def _transpose(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        order = eqn.params["permutation"]
        inner = [(0, 0)] * len(box)
        for k, dim in enumerate(order):
            inner[dim] = box[k]
        return View("transpose", (tuple(order),), self._form(eqn.invars[0], tuple(inner), steps))

    def _slice(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        starts, strides = eqn.params["start_indices"], eqn.params["strides"]
        if strides is not None and any(stride != 1 for stride in strides):
            return self._strided(eqn, box, steps)
        moved = tuple((first + start, last + start) for (first, last), start in zip(box, starts, strict=True))
        return self._form(eqn.invars[0], moved, steps)

    def _strided(self, eqn: Any, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        """A slice with steps along one dimension, element by element."""
        starts, strides = eqn.params["start_indices"], eqn.params["strides"]
        dims = [k for k, stride in enumerate(strides) if stride != 1]
        if len(dims) > 1:
            raise ThroughError("slice", "a slice with steps along several dimensions; slice one after the other")
        (dim,) = dims
        self._require_few(eqn, box[dim][1] - box[dim][0])
        parts = []
        for k in range(*box[dim]):
            place = starts[dim] + k * strides[dim]
            inner = [(a + start, b + start) for (a, b), start in zip(box, starts, strict=True)]
            inner[dim] = (place, place + 1)
            parts.append(self._form(eqn.invars[0], tuple(inner), steps))
        if not parts:
            return self._form(eqn.invars[0], tuple((0, b - a) for a, b in box), steps)
        return _joined(dim, parts)

    def _split(self, eqn: Any, number: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim, start = eqn.params["axis"], sum(eqn.params["sizes"][:number])
        moved = tuple((a + start, b + start) if k == dim else (a, b) for k, (a, b) in enumerate(box))
        return self._form(eqn.invars[0], moved, steps)

    def _concatenate(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim, start = eqn.params["dimension"], 0
        parts: list[Form] = []
        for atom in eqn.invars:
            size = atom.aval.shape[dim]
            first, last = max(box[dim][0], start), min(box[dim][1], start + size)
            if first < last or (size and box[dim][0] == box[dim][1] and not parts):
                first, last = (first, last) if first < last else (start, start)
                inner = tuple((first - start, last - start) if k == dim else item for k, item in enumerate(box))
                parts.append(self._form(atom, inner, steps))
            start += size
        return _joined(dim, parts)

    def _stack(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim = eqn.params["axis"]
        inner: Box = (*box[:dim], *box[dim + 1 :])
        parts: list[Form] = []
        sizes = tuple(b - a for a, b in inner)
        for k in range(*box[dim]):
            form = self._form(eqn.invars[k], inner, steps)
            parts.append(View("reshape", ((*sizes[:dim], 1, *sizes[dim:]),), form))
        return _joined(dim, parts) if parts else self._nothing(eqn, box, steps)

    def _unstack(self, eqn: Any, number: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim = eqn.params["axis"]
        inner: Box = (*box[:dim], (number, number + 1), *box[dim:])
        return View("reshape", (tuple(b - a for a, b in box),), self._form(eqn.invars[0], inner, steps))

    def _tile(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...], dim: int = 0) -> Form:
        if dim == len(box):
            return self._form(eqn.invars[0], box, steps)
        size, (start, stop) = eqn.invars[0].aval.shape[dim], box[dim]
        parts: list[Form] = []
        while start < stop:
            end = min(stop, (start // size + 1) * size)
            first = start % size
            inner = (*box[:dim], (first, first + end - start), *box[dim + 1 :])
            parts.append(self._tile(eqn, _, inner, steps, dim + 1))
            start = end
        return _joined(dim, parts) if parts else self._nothing(eqn, box, steps)

    def _nothing(self, eqn: Any, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        """A box without elements."""
        part = jnp.zeros([b - a for a, b in box], eqn.outvars[0].aval.dtype)
        for step in steps:
            part = step(part)
        return Number.of(part)

    def _rev(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dims, shape = eqn.params["dimensions"], eqn.invars[0].aval.shape
        inner = tuple((shape[k] - b, shape[k] - a) if k in dims else (a, b) for k, (a, b) in enumerate(box))
        return View("rev", (tuple(dims),), self._form(eqn.invars[0], inner, steps))

    def _broadcast_in_dim(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dims, shape = eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape
        full = eqn.outvars[0].aval.shape
        inner = tuple(
            box[dim] if size == full[dim] else (0, min(1, box[dim][1] - box[dim][0]) or 1)
            for size, dim in zip(shape, dims, strict=True)
        )
        sizes = tuple(b - a for a, b in box)
        return View("broadcast", (sizes, tuple(dims)), self._form(eqn.invars[0], inner, steps))

    def _copy(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        return self._form(eqn.invars[0], box, steps)

    def _squeeze(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        return self._reshape(eqn, _, box, steps)

    def _expand_dims(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        return self._reshape(eqn, _, box, steps)

    def _reshape(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        before, after = tuple(eqn.invars[0].aval.shape), tuple(eqn.outvars[0].aval.shape)
        if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None:
            raise ThroughError("reshape", "a reshape in another order of dimensions; transpose first")
        if 0 in after or any(a == b for a, b in box):
            return self._nothing(eqn, box, steps)
        groups = dimension_groups(before, after)
        return self._regrouped(eqn, groups, len(groups), (), box, steps)

    def _regrouped(
        self,
        eqn: Any,
        groups: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
        count: int,
        inner: Box,
        box: Box,
        steps: tuple[ElementwiseStep, ...],
    ) -> Form:
        """A box of which the dimensions of the first groups are those of the result, and of the others the operand's.

        Args:
            groups: sizes of dimensions before and after, whose products are equal.
            count: how many groups are as in the result.
            inner: the box along the dimensions of the operand that belong to the other groups.
            box: the box along the dimensions of the result that belong to these.
        """
        if count == 0:
            return self._form(eqn.invars[0], inner, steps)
        before, after = groups[count - 1]
        outer, part = box[: len(box) - len(after)], box[len(box) - len(after) :]
        if before == after:
            return self._regrouped(eqn, groups, count - 1, (*part, *inner), outer, steps)
        pieces = [piece for run in flat_runs(after, part) for piece in boxes_of_run(before, *run)]
        self._require_few(eqn, len(pieces))
        heads = tuple(b - a for a, b in outer)
        tails = tuple(b - a for a, b in inner)
        forms = []
        for piece in pieces:
            form = self._regrouped(eqn, groups, count - 1, (*piece, *inner), outer, steps)
            size = math.prod(b - a for a, b in piece)
            forms.append(View("reshape", ((*heads, size, *tails),), form))
        sizes = (*heads, *(b - a for a, b in part), *tails)
        return View("reshape", (sizes,), _joined(len(heads), forms))

    def _shown(self, eqn: Any) -> str:
        """A primitive, and the line that it comes from."""
        return f"{eqn.primitive.name} ({self._lines.get(id(eqn)) or 'of the function'})"

    def _require_few(self, eqn: Any, count: int) -> None:
        if count > MOST_PARTS:
            raise ThroughError(
                eqn.primitive.name,
                f"{self._shown(eqn)} scatters a tile over {count:,} "
                f"boxes of its operand, more than {MOST_PARTS}; give its result a sharding that cuts another dimension",
            )

    def _pad(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        config, shape = eqn.params["padding_config"], eqn.invars[0].aval.shape
        value = self._value(eqn.invars[1])
        if value is None or any(inside or low < 0 or high < 0 for low, high, inside in config):
            raise ThroughError("pad", "padding between elements, or by a value of an array; take jnp.concatenate")
        inner = tuple(
            (min(max(a - low, 0), size), min(max(b - low, 0), size))
            for (a, b), (low, _, _), size in zip(box, config, shape, strict=True)
        )
        dtype = str(eqn.outvars[0].aval.dtype)

        def filled(sizes: Sequence[int]) -> Form:
            part = jnp.full(tuple(sizes), value, jnp.dtype(dtype))
            for step in steps:
                part = step(part)
            return Number.of(part)

        if any(a == b for a, b in inner):
            return filled([b - a for a, b in box])
        form = self._form(eqn.invars[0], inner, steps)
        sizes = [b - a for a, b in inner]
        for dim, ((a, b), (low, _, _)) in enumerate(zip(box, config, strict=True)):
            front, back = inner[dim][0] + low - a, b - (inner[dim][1] + low)
            parts = [filled([*sizes[:dim], front, *sizes[dim + 1 :]])] if front else []
            parts.append(form)
            parts += [filled([*sizes[:dim], back, *sizes[dim + 1 :]])] if back else []
            form = _joined(dim, parts)
            sizes[dim] = b - a
        return form

    def _reduce_sum(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        axes, shape = eqn.params["axes"], eqn.invars[0].aval.shape
        rest = iter(box)
        inner = tuple((0, size) if k in axes else next(rest) for k, size in enumerate(shape))
        form = self._form(eqn.invars[0], inner, ())
        return Combination(eqn.primitive, tuple(eqn.params.items()), (None,), (form,), steps)


def _is_literal(atom: Any) -> bool:
    return isinstance(atom, jex.Literal)


def _joined(dim: int, parts: Sequence[Form]) -> Form:
    return parts[0] if len(parts) == 1 else Concatenation(dim, tuple(parts))


def _inlined(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], lines: list[str], where: str) -> list[Any]:
    """The results of a jaxpr, with calls in it followed; notes the source line of each equation."""
    env: dict[Any, Any] = {
        **dict(zip(jaxpr.invars, args, strict=True)),
        **dict(zip(jaxpr.constvars, consts, strict=True)),
    }

    def read(atom: Any) -> Any:
        return atom.val if _is_literal(atom) else env[atom]

    for eqn in jaxpr.eqns:
        values = [read(atom) for atom in eqn.invars]
        line, name = source_line(eqn) or where, eqn.primitive.name
        if name in INLINED:
            inner = eqn.params[INLINED[name]]
            body, held = (inner.jaxpr, inner.consts) if isinstance(inner, jex.ClosedJaxpr) else (inner, ())
            outs = _inlined(body, held, values, lines, line)
        else:
            lines.append(line)
            out = eqn.primitive.bind(*values, **eqn.params)
            outs = list(out) if eqn.primitive.multiple_results else [out]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]
