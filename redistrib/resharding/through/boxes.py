"""Which boxes of which inputs a box of a result is made of, and how.

A jaxpr is read backwards, from a box of a result to boxes of the inputs. Views (transposes, reshapes, slices,
concatenations, broadcasts) turn a box into boxes; element-wise steps leave it as it is. Steps of one operand go on to
the inputs, past all views, so that each may run before or after its box moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redistrib.errors import ThroughError
from redistrib.resharding.through.forms import (
    Combination,
    Concatenation,
    ElementwiseStep,
    Fetch,
    Form,
    Number,
    Operand,
    View,
    fetches,
)
from redistrib.resharding.through.function import Constants, TracedFunction, is_literal
from redistrib.resharding.through.reshapes import boxes_of_run, dimension_groups
from redistrib.theory.boxes import Box, Edges, runs_of

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

# Views that a constant goes through as an array does, so that the host puts no more of it than results need.
_VIEWS_OF_CONSTANTS = frozenset(["broadcast_in_dim", "concatenate", "copy", "rev", "split", "transpose"])


class Backwards:
    """A function that is read from its results to its inputs.

    Leaves are the function's inputs, then the captured arrays that move as these do, then constants.

    Args:
        function: the function; calls in it are followed.
        moving: captured arrays that are read as inputs, by number; others are constants.

    Raises:
        ThroughError: if it has an operation that is neither a view nor element-wise.
    """

    def __init__(self, function: TracedFunction, moving: Sequence[int] = ()) -> None:
        jaxpr, lines = function.flat()
        count = len(jaxpr.invars) - len(function.captured)
        self._captured = jaxpr.invars[count:]
        self._origins: dict[Any, tuple[Any, int]] = {}  # by variable: its equation, and which result it is
        leaves = [*jaxpr.invars[:count], *(self._captured[k] for k in moving)]
        self._inputs = {var: k for k, var in enumerate(leaves)}
        self._lines = dict(zip(map(id, jaxpr.eqns), lines, strict=True))  # `_origins` keeps the equations alive
        self._constant = {var for var in self._captured if var not in self._inputs}  # and all that they alone decide
        # All that depends on no input of the function. What it may move through no operation, it is computed by.
        self._known = {self._captured[k] for k, each in enumerate(function.captured) if each.is_here}
        for eqn in jaxpr.eqns:
            self._origins.update({var: (eqn, k) for k, var in enumerate(eqn.outvars)})
            for several in (self._constant, self._known):
                if all(is_literal(atom) or atom in several for atom in eqn.invars):
                    several.update(eqn.outvars)
        self._leaves: dict[Any, int] = {}  # the number of each constant that a form has been read from
        self.results = list(jaxpr.outvars)

    @property
    def constants(self) -> Constants:
        """The constants of all forms that have been read."""
        equations: dict[int, Any] = {}
        needed = list(self._leaves)
        while needed:
            eqn, _ = self._origins.get(needed.pop(), (None, 0))
            if eqn is not None and id(eqn) not in equations:
                equations[id(eqn)] = eqn
                needed += [atom for atom in eqn.invars if not is_literal(atom)]
        ordered = tuple(equations[name] for name in self._lines if name in equations)
        return Constants(tuple(self._captured), ordered, tuple(self._leaves))

    def used(self) -> set[int]:
        """The inputs that results are made of."""
        forms = [self.form(k, Box.whole(var.aval.shape)) for k, var in enumerate(self.results)]
        return {fetch.leaf for form in forms for fetch in fetches(form)} & set(range(len(self._inputs)))

    def form(self, result: int, box: Box) -> Form:
        """The form of a box of a result."""
        return self._form(self.results[result], box, ())

    def _is_constant(self, atom: Any) -> bool:
        return is_literal(atom) or atom in self._constant

    def _leaf(self, atom: Any) -> int:
        """The number of a constant."""
        return self._leaves.setdefault(atom, len(self._inputs) + len(self._leaves))

    def _form(self, atom: Any, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        if is_literal(atom):
            return _of_number(Number.of(np.asarray(atom.val, atom.aval.dtype)), steps)
        if atom in self._inputs:
            return Fetch(self._inputs[atom], box, steps)
        if 0 in box.size:
            return _empty(box, steps[-1].dtype if steps else atom.aval.dtype)
        if atom not in self._origins:
            return Fetch(self._leaf(atom), box, steps)
        eqn, number = self._origins[atom]
        if atom in self._constant and eqn.primitive.name not in _VIEWS_OF_CONSTANTS:
            return Fetch(self._leaf(atom), box, steps)
        rule = getattr(self, f"_{eqn.primitive.name}", None)
        if rule is not None:
            form: Form = rule(eqn, number, box, steps)
            return form
        if eqn.primitive.name in _ELEMENTWISE:
            return self._elementwise(eqn, box, steps)
        if atom in self._known:
            return Fetch(self._leaf(atom), box, steps)
        raise ThroughError(
            eqn.primitive.name,
            f"{self._shown(eqn)} is neither a view of its operand nor "
            "element-wise, so arrays cannot go through it on their way; apply it before or after, under jax.jit or "
            "redistrib.distribute",
        )

    def _elementwise(self, eqn: Any, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        shape = eqn.outvars[0].aval.shape
        operands: list[Operand] = []
        arrays: list[tuple[Any, Box]] = []
        for atom in eqn.invars:
            if is_literal(atom):
                operands.append(Number.of(np.asarray(atom.val, atom.aval.dtype)))
            elif self._is_constant(atom) and not atom.aval.shape:
                operands.append(self._leaf(atom))
            else:  # a dimension of one element may be repeated along the result's
                operands.append(None)
                edges = zip(box.edges, atom.aval.shape, shape, strict=False)  # a scalar has none
                arrays.append((atom, Box.between(edge if n == m else (0, 1) for edge, n, m in edges)))
        params = tuple(eqn.params.items())
        if len(arrays) == 1 and arrays[0][1] == box:
            step = ElementwiseStep(eqn.primitive, params, tuple(operands), str(eqn.outvars[0].aval.dtype))
            return self._form(arrays[0][0], box, (step, *steps))
        forms = tuple(self._form(atom, part, ()) for atom, part in arrays)
        return Combination(eqn.primitive, params, tuple(operands), forms, steps)

    # ------------------------------------------------------------------------------------------ views

    def _transpose(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        order = eqn.params["permutation"]
        inner = Box.between(edge for _, edge in sorted(zip(order, box.edges, strict=True)))
        return View("transpose", (tuple(order),), self._form(eqn.invars[0], inner, steps))

    def _slice(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        starts, strides = eqn.params["start_indices"], eqn.params["strides"]
        if strides is not None and any(stride != 1 for stride in strides):
            return self._strided(eqn, box, steps)
        return self._form(eqn.invars[0], box.moved(starts), steps)

    def _strided(self, eqn: Any, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        """A slice with steps along one dimension, element by element."""
        starts, strides = eqn.params["start_indices"], eqn.params["strides"]
        dims = [k for k, stride in enumerate(strides) if stride != 1]
        if len(dims) > 1:
            raise ThroughError("slice", "a slice with steps along several dimensions; slice one after the other")
        (dim,) = dims
        self._require_few(eqn, box.size[dim])
        moved = box.moved(starts)
        places = (starts[dim] + k * strides[dim] for k in range(*box.edges[dim]))
        parts = [self._form(eqn.invars[0], moved.with_edge(dim, (k, k + 1)), steps) for k in places]
        return _joined(dim, parts)

    def _split(self, eqn: Any, number: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim, start = eqn.params["axis"], sum(eqn.params["sizes"][:number])
        first, last = box.edges[dim]
        return self._form(eqn.invars[0], box.with_edge(dim, (first + start, last + start)), steps)

    def _concatenate(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim, start = eqn.params["dimension"], 0
        parts: list[Form] = []
        for atom in eqn.invars:
            size = atom.aval.shape[dim]
            first, last = max(box.edges[dim][0], start), min(box.edges[dim][1], start + size)
            if first < last:
                parts.append(self._form(atom, box.with_edge(dim, (first - start, last - start)), steps))
            start += size
        return _joined(dim, parts)

    def _stack(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim = eqn.params["axis"]
        edges = box.edges
        inner = Box.between((*edges[:dim], *edges[dim + 1 :]))
        size = (*inner.size[:dim], 1, *inner.size[dim:])
        forms = (self._form(eqn.invars[k], inner, steps) for k in range(*edges[dim]))
        return _joined(dim, [View("reshape", (size,), form) for form in forms])

    def _unstack(self, eqn: Any, number: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dim = eqn.params["axis"]
        inner = Box.between((*box.edges[:dim], (number, number + 1), *box.edges[dim:]))
        return View("reshape", (box.size,), self._form(eqn.invars[0], inner, steps))

    def _tile(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...], dim: int = 0) -> Form:
        if dim == len(box.size):
            return self._form(eqn.invars[0], box, steps)
        size, (start, stop) = eqn.invars[0].aval.shape[dim], box.edges[dim]
        parts: list[Form] = []
        while start < stop:
            end = min(stop, (start // size + 1) * size)
            first = start % size
            inner = box.with_edge(dim, (first, first + end - start))
            parts.append(self._tile(eqn, _, inner, steps, dim + 1))
            start = end
        return _joined(dim, parts)

    def _rev(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dims, shape = eqn.params["dimensions"], eqn.invars[0].aval.shape
        edges = enumerate(box.edges)
        inner = Box.between((shape[k] - b, shape[k] - a) if k in dims else (a, b) for k, (a, b) in edges)
        return View("rev", (tuple(dims),), self._form(eqn.invars[0], inner, steps))

    def _broadcast_in_dim(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        dims, shape = eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape
        full = eqn.outvars[0].aval.shape
        # A dimension of one element is repeated along the result's.
        edges = box.edges
        inner = Box.between(edges[dim] if size == full[dim] else (0, 1) for size, dim in zip(shape, dims, strict=True))
        return View("broadcast", (box.size, tuple(dims)), self._form(eqn.invars[0], inner, steps))

    def _copy(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        return self._form(eqn.invars[0], box, steps)

    _reshard = _sharding_constraint = _copy  # where an array lies on its way is the plan's affair

    def _squeeze(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        return self._reshape(eqn, _, box, steps)

    def _expand_dims(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        return self._reshape(eqn, _, box, steps)

    def _reshape(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        before, after = tuple(eqn.invars[0].aval.shape), tuple(eqn.outvars[0].aval.shape)
        if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None:
            raise ThroughError("reshape", "a reshape in another order of dimensions; transpose first")
        groups = dimension_groups(before, after)
        return self._regrouped(eqn, groups, len(groups), (), box.edges, steps)

    def _regrouped(
        self,
        eqn: Any,
        groups: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
        count: int,
        inner: Edges,
        box: Edges,
        steps: tuple[ElementwiseStep, ...],
    ) -> Form:
        """A box of which the dimensions of the first groups are those of the result, and of the others the operand's.

        Args:
            groups: sizes of dimensions before and after, whose products are equal.
            count: how many groups are as in the result.
            inner: the box's edges along the dimensions of the operand that belong to the other groups.
            box: its edges along the dimensions of the result that belong to these.
        """
        if count == 0:
            return self._form(eqn.invars[0], Box.between(inner), steps)
        before, after = groups[count - 1]
        outer, part = box[: len(box) - len(after)], box[len(box) - len(after) :]
        if before == after:
            return self._regrouped(eqn, groups, count - 1, (*part, *inner), outer, steps)
        starts, length = runs_of(after, Box.between(part))
        pieces = [piece for start in starts.tolist() for piece in boxes_of_run(before, start, start + length)]
        self._require_few(eqn, len(pieces))
        heads, middle, tails = (Box.between(edges).size for edges in (outer, part, inner))
        forms = []
        for piece in pieces:
            form = self._regrouped(eqn, groups, count - 1, (*piece, *inner), outer, steps)
            forms.append(View("reshape", ((*heads, Box.between(piece).volume, *tails),), form))
        return View("reshape", ((*heads, *middle, *tails),), _joined(len(heads), forms))

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
        if any(inside or low < 0 or high < 0 for low, high, inside in config):
            raise ThroughError("pad", "padding between elements, or less than none; take jnp.concatenate and slices")
        inner = box.moved(tuple(-low for low, _, _ in config)).cut_to(shape)

        def filled(sizes: Sequence[int]) -> Form:
            return View("broadcast", (tuple(sizes), ()), self._form(eqn.invars[1], Box((), ()), steps))

        if 0 in inner.size:
            return filled(box.size)
        form = self._form(eqn.invars[0], inner, steps)
        sizes = [*inner.size]
        for dim, ((a, b), (first, last), (low, _, _)) in enumerate(zip(box.edges, inner.edges, config, strict=True)):
            front, back = first + low - a, b - (last + low)
            parts = [filled([*sizes[:dim], front, *sizes[dim + 1 :]])] if front else []
            parts.append(form)
            parts += [filled([*sizes[:dim], back, *sizes[dim + 1 :]])] if back else []
            form = _joined(dim, parts)
            sizes[dim] = b - a
        return form

    def _reduce_sum(self, eqn: Any, _: int, box: Box, steps: tuple[ElementwiseStep, ...]) -> Form:
        axes, shape = eqn.params["axes"], eqn.invars[0].aval.shape
        rest = iter(box.edges)
        inner = Box.between((0, size) if k in axes else next(rest) for k, size in enumerate(shape))
        form = self._form(eqn.invars[0], inner, ())
        return Combination(eqn.primitive, tuple(eqn.params.items()), (None,), (form,), steps)


def _of_number(number: Number, steps: tuple[ElementwiseStep, ...]) -> Form:
    """A number of which steps are taken."""
    if not steps:
        return number
    first, *others = steps
    operands = tuple(number if value is None else value for value in first.operands)
    return Combination(first.primitive, first.params, operands, (), tuple(others))


def _empty(box: Box, dtype: Any) -> Number:
    """A box without elements."""
    return Number.of(np.zeros(box.size, dtype))


def _joined(dim: int, parts: Sequence[Form]) -> Form:
    return parts[0] if len(parts) == 1 else Concatenation(dim, tuple(parts))
