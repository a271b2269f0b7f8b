"""Rules of primitives that work element by element."""

from __future__ import annotations

from jax import lax

from redistrib.backends.jax.trace.equation import Dims, Equation, letters, rule
from redistrib.programs.nest import Nest

_CHEAP = {
    "abs", "and", "ceil", "clamp", "clz", "conj", "convert_element_type", "copy", "copy_p", "eq", "eq_to",
    "floor", "ge", "gt", "imag", "is_finite", "le", "le_to", "lt", "lt_to", "max", "min", "ne", "not",
    "optimization_barrier", "or", "population_count", "real", "reduce_precision", "rem", "round", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "stop_gradient", "xor",
}  # fmt: skip
_COSTLY = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "complex",
    "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "igamma", "igammac",
    "integer_pow", "lgamma", "log", "log1p", "logistic", "nextafter", "polygamma", "pow",
    "regularized_incomplete_beta", "rsqrt", "sin", "sinh", "sqrt", "square", "tan", "tanh", "threefry2x32",
    "zeta",
}  # fmt: skip
_LINEAR: dict[str, tuple[tuple[int, ...], ...]] = {
    "add": ((0, 1),),
    "add_any": ((0, 1),),
    "sub": ((0, 1),),
    "neg": ((0,),),
    "mul": ((0,), (1,)),
    "div": ((0,),),
    "select_n": ((1, 2),),
    "copy": ((0,),),
    "copy_p": ((0,),),
    "real": ((0,),),
    "imag": ((0,),),
    "optimization_barrier": ((0,),),
    "stop_gradient": ((0,),),
}


@rule(*_CHEAP, *_COSTLY, *_LINEAR)
def _pointwise(equation: Equation) -> Nest:
    shape = equation.outs[0].shape
    sizes = letters("d", shape)

    def dims(own: tuple[int, ...]) -> Dims:
        return [f"d{k}" if size == whole else "" for k, (size, whole) in enumerate(zip(own, shape, strict=False))]

    linear = _LINEAR.get(equation.kind, ())
    if equation.kind == "select_n":
        linear = (tuple(range(1, len(equation.ins))),)
    if equation.kind == "convert_element_type" and _is_float(equation):
        linear = ((0,),)
    ins, outs = ([dims(form.shape) for form in side] for side in (equation.ins, equation.outs))
    return equation.nest(sizes, ins, outs, linear=linear, flops=1 if equation.kind not in _COSTLY else 10)


def _is_float(equation: Equation) -> bool:
    return all("float" in form.dtype for form in (*equation.ins, *equation.outs))


@rule("broadcast_in_dim")
def _broadcast(equation: Equation) -> Nest | None:
    shape = equation.outs[0].shape
    targets = equation.params["broadcast_dimensions"]
    own = equation.ins[0].shape
    read = [f"d{k}" if size == shape[k] else "" for size, k in zip(own, targets, strict=True)]

    def body(at: dict[str, range], *tiles: object) -> object:
        operand = equation.operands(tiles)[0]
        return lax.broadcast_in_dim(operand, tuple(len(at[f"d{k}"]) for k in range(len(shape))), targets)

    return equation.nest(letters("d", shape), [read], [list(letters("d", shape))], body=body, linear=((0,),), flops=0)


@rule("bitcast_convert_type")
def _bitcast(equation: Equation) -> Nest:
    before, after = equation.ins[0].shape, equation.outs[0].shape
    common = min(len(before), len(after))
    names = list(letters("d", before[:common]))
    ins, outs = ([*names, *[""] * (len(shape) - common)] for shape in (before, after))
    return equation.nest(letters("d", before[:common]), [ins], [outs], flops=0)
