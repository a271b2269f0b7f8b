"""Arithmetic operations of a compiled program, counted from its text, for the share of one device."""

from __future__ import annotations

import math
from typing import Any

from redistrib.explain.profiling.hlo import HloModule, Instruction, parse_module
from redistrib.explain.profiling.inspect import visits

_ARITHMETIC = {
    "abs", "add", "atan2", "ceil", "cosine", "divide", "erf", "exponential", "exponential-minus-one", "floor", "log",
    "log-plus-one", "logistic", "maximum", "minimum", "multiply", "negate", "power", "remainder", "rsqrt", "sine",
    "sqrt", "subtract", "tan", "tanh", "cbrt", "and", "or", "xor", "shift-left", "shift-right-logical", "compare",
    "select",
}  # fmt: skip


def work(compiled: Any) -> int:
    """Operations of one device: elements of arithmetic, and twice the products of contractions, times the steps of
    loops.

    A loop without a known number of steps counts once, for every program.
    """
    module = parse_module(compiled.as_text())
    return sum(visit.times * _of(module, visit.computation, visit.instruction) for visit in visits(module))


def _of(module: HloModule, computation: str, instruction: Instruction) -> int:
    elements = sum(math.prod(array.shape) for array in instruction.results)
    if instruction.opcode in _ARITHMETIC:
        return elements
    operands = [module.computations[computation].instructions[name].results for name in instruction.operands]
    sizes = [sum(math.prod(array.shape) for array in arrays) for arrays in operands]
    if instruction.opcode == "reduce":
        return sizes[0]
    if instruction.opcode == "dot":
        dims = instruction.attributes.split("lhs_contracting_dims={")[1].split("}")[0]
        (left,) = operands[0]
        return 2 * elements * math.prod(left.shape[int(k)] for k in dims.split(",") if k)
    if instruction.opcode == "convolution":
        (kernel,) = operands[1]
        labels = instruction.attributes.split("dim_labels=")[1].split("_")[1].split("->")[0]
        return 2 * elements * math.prod(kernel.shape) // max(1, kernel.shape[labels.index("o")])
    if instruction.opcode == "custom-call" and len(sizes) >= 2 and "matmul" in instruction.attributes:
        return 2 * math.isqrt(sizes[0] * sizes[1] * elements)
    if instruction.opcode == "custom-call":  # factorisations: elements times their last dimension
        return elements * max((array.shape[-1] for array in instruction.results if array.shape), default=1)
    return 0
