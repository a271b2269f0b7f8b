"""Rules of primitives that combine elements: reductions and products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import numpy as np
from jax import lax

from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.record import Combines
from redistrib.programs.rules.equation import ArrayForm, Equation, letters, name_the_rest, product_letters, rule
from redistrib.programs.rules.sums import added_along, can_be_summed

_OF_BOOLEANS = {
    Combines.ANY: lax.reduce_max,
    Combines.MAX: lax.reduce_max,
    Combines.ALL: lax.reduce_min,
    Combines.MIN: lax.reduce_min,
}
_COMBINE = {Combines.SUM: "sum", Combines.MAX: "max", Combines.MIN: "min"}


@rule(
    "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax", "argmin"
)
def _reduce(equation: Equation) -> Nest:
    sizes = letters("d", equation.ins[0].shape)
    reduced = [f"d{k}" for k in equation.params["axes"]]
    remaining = [name for name in sizes if name not in reduced]
    kind = _COMBINE.get(equation.record.combines)
    dtype = equation.ins[0].dtype
    if (
        dtype == "bool"
        or (kind in ("max", "min") and "complex" in dtype)
        or (kind == "sum" and not can_be_summed(dtype))
    ):
        kind = None
    return equation.nest(
        sizes,
        [list(sizes)],
        [remaining],
        combine=dict.fromkeys(reduced, kind) if kind else {},
        whole=() if kind else reduced,
        flops=1,
    )


def of_booleans(equation: Equation) -> Any:
    """The reduction of `uint8` for a reduction of booleans, as an equation of JAX; None for other primitives.

    It is traced, because its parameters depend on the version of JAX.
    """
    reduction = _OF_BOOLEANS.get(equation.record.combines)
    if reduction is None or equation.ins[0].dtype != "bool" or equation.literals:
        return None
    integers = jax.ShapeDtypeStruct(equation.ins[0].shape, "uint8")
    (eqn,) = jax.make_jaxpr(lambda array: reduction(array, equation.params["axes"]))(integers).eqns
    return eqn


@rule("reduce")
def _any_reduce(equation: Equation) -> Nest:
    """A reduction by any function: the reduced dimensions stay whole."""
    reduced, arrays = equation.params["dimensions"], len(equation.ins) // 2
    dims = ["" if k in reduced else f"d{k}" for k in range(len(equation.ins[0].shape))]
    sizes = {name: size for name, size in zip(dims, equation.ins[0].shape, strict=True) if name}
    ins: list[list[str]] = [dims] * arrays + [[]] * arrays
    return equation.nest(sizes, ins, [list(sizes)] * len(equation.outs), flops=1)


@rule("dot_general")
def _dot(equation: Equation) -> Nest:
    (left_sum, _), (left_batch, _) = equation.params["dimension_numbers"]
    left, right = equation.ins[0].shape, equation.ins[1].shape
    a, b = product_letters(left, right, equation.params["dimension_numbers"])
    name_the_rest(a, b)
    sizes = dict(zip(a, left, strict=True)) | dict(zip(b, right, strict=True))
    batch = [a[i] for i in left_batch]
    out = [*batch, *(name for name in a if name not in b), *(name for name in b if name not in a)]
    summed = [a[i] for i in left_sum]
    combine, whole = added_along(summed, equation.outs[0].dtype)
    return equation.nest(sizes, [a, b], [out], combine=combine, whole=whole, flops=2)


class UnaryTracer(Protocol):
    """The part of a tracer that adds operations with one operand."""

    def unary(
        self, primitive: Any, params: Mapping[str, Any], before: ArrayForm, after: ArrayForm, name: str, source: str
    ) -> str: ...


def by_integers(tracer: UnaryTracer, equation: Equation, reduction: Any, name: str, source: str) -> str:
    """A reduction of booleans as one of integers, parts of which can be combined."""
    (before,), (after,) = equation.ins, equation.outs
    small, result = (form._replace(dtype="uint8") for form in (before, after))
    to_integers, back = ({"new_dtype": np.dtype(to), "weak_type": False, "sharding": None} for to in ("uint8", "bool"))
    name = tracer.unary(jax.lax.convert_element_type_p, to_integers, before, small, name, source)
    name = tracer.unary(reduction.primitive, reduction.params, small, result, name, source)
    return tracer.unary(jax.lax.convert_element_type_p, back, result, after, name, source)
