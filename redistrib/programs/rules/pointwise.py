"""Rules of element-wise primitives."""

from __future__ import annotations

import numpy as np
from jax import lax

from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.primitives import RECORDS
from redistrib.programs.rules.equation import Dims, Equation, letters, rule
from redistrib.programs.rules.sums import can_be_summed

_CHEAP = {
    "abs", "add", "add_any", "and", "ceil", "clamp", "clz", "conj", "convert_element_type", "copy", "copy_p", "div",
    "eq", "eq_to", "floor", "ge", "gt", "imag", "is_finite", "le", "le_to", "lt", "lt_to", "max", "min", "mul", "mulhi",
    "ne", "neg", "not", "optimization_barrier", "or", "population_count", "real", "reduce_precision", "rem", "round",
    "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "square",
    "stop_gradient", "sub", "xor",
}  # fmt: skip


@rule(*_CHEAP, *(kind for kind, record in RECORDS.items() if record.flops > 1), "integer_pow")
def _pointwise(equation: Equation) -> Nest:
    shape = equation.outs[0].shape
    sizes = letters("d", shape)

    def dims(operand: tuple[int, ...]) -> Dims:
        return [f"d{k}" if size == whole else "" for k, (size, whole) in enumerate(zip(operand, shape, strict=False))]

    ins, outs = ([dims(form.shape) for form in side] for side in (equation.ins, equation.outs))
    return equation.nest(sizes, ins, outs, flops=_flops(equation))


def _flops(equation: Equation) -> int:
    """Floating-point operations for an element; a power is squared and multiplied, as its bits say."""
    if equation.kind == "integer_pow":
        power: int = equation.params["y"]
        return max(0, abs(power).bit_length() + abs(power).bit_count() - 2 + (power < 0))
    return equation.record.flops


@rule("broadcast_in_dim")
def _broadcast(equation: Equation) -> Nest | None:
    shape = equation.outs[0].shape
    targets = equation.params["broadcast_dimensions"]
    operand = equation.ins[0].shape
    read = [f"d{k}" if size == shape[k] else "" for size, k in zip(operand, targets, strict=True)]

    is_zero = 0 in equation.literals and can_be_summed(equation.outs[0].dtype) and not np.any(equation.literals[0])

    def body(at: dict[str, range], *tiles: object) -> object:
        operand = equation.operands(tiles)[0]
        return lax.broadcast_in_dim(operand, tuple(len(at[f"d{k}"]) for k in range(len(shape))), targets)

    fills = "sum" if is_zero else None
    return equation.nest(letters("d", shape), [read], [list(letters("d", shape))], body=body, flops=0, fills=fills)


@rule("bitcast_convert_type")
def _bitcast(equation: Equation) -> Nest:
    before, after = equation.ins[0].shape, equation.outs[0].shape
    common = min(len(before), len(after))
    names = list(letters("d", before[:common]))
    ins, outs = ([*names, *[""] * (len(shape) - common)] for shape in (before, after))
    return equation.nest(letters("d", before[:common]), [ins], [outs], flops=0)
