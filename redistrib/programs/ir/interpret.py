"""Abstract interpretation: one walk over a program with an abstract value for each value.

A semantics gives operations their meaning. The reference executor has the semantics on whole arrays, the run rank by
rank that on tiles, and `redistrib.programs.ir.abstract` that on arrays and types mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from redistrib.programs.ir.data import Call, Compute, Loop, Move, ProgramData
from redistrib.programs.ir.value import Value

A = TypeVar("A")


class Semantics(Protocol[A]):
    """The meaning of operations on abstract values `A`."""

    def compute(self, op: Compute, ins: Sequence[A]) -> Iterable[A]:
        """The results of an operation, in the order of `op.outs`."""
        ...

    def move(self, op: Move, value: Value, operand: A) -> A:
        """The abstract value after a move of `value`."""
        ...

    def entry(self, operand: A, step: int) -> A:
        """The operand of a step of a loop, for an array that has an entry for each step along dimension 0."""
        ...

    def stack(self, out: Value, entries: Sequence[A]) -> A:
        """The array of entries, one for each step."""
        ...

    def is_true(self, operand: A) -> bool:
        """Whether a condition holds."""
        ...


def interpret(program: ProgramData, args: Sequence[A], semantics: Semantics[A]) -> dict[str, A]:
    """The abstract state at the end of a program: every value's abstract value.

    Args:
        program: the program; of called programs the outputs alone are kept.
        args: one abstract value for each input.
        semantics: the meaning of operations.

    >>> import numpy as np
    >>> from redistrib import ir, nest, partition
    >>> program = partition(nest("ij->i", (2, 3), name="sum"), {"sum": {"j": 3}})  # partial sums, then an all-reduce
    >>> state = interpret(program, [np.arange(6).reshape(2, 3)], ir.Mixed())
    >>> {name: array.tolist() for name, array in state.items()}
    {'a': [[0, 1, 2], [3, 4, 5]], 'out': [3, 12], 'out.1': [3, 12]}
    """
    state = dict(zip((value.name for value in program.inputs), args, strict=True))
    for op in program.ops:
        match op:
            case Compute():
                results = semantics.compute(op, [state[name] for _, name in op.ins])
                state |= {value.name: result for (_, value), result in zip(op.outs, results, strict=True)}
            case Move():
                state[op.out.name] = semantics.move(op, program.values[op.value], state[op.value])
            case Call():
                inner = interpret(op.program, [state[name] for name in op.ins], semantics)
                state |= {out.name: inner[name] for name, out in zip(op.program.outputs, op.outs, strict=True)}
            case Loop():
                results = _looped(op, [state[name] for name in op.ins], semantics)
                state |= {out.name: result for out, result in zip(op.outs, results, strict=True)}
    return state


def _looped(op: Loop, ins: Sequence[A], semantics: Semantics[A]) -> list[A]:
    """The results of a loop, step by step."""
    form = op.form
    fixed, state, arrays = form.operands(ins)

    def run(program: ProgramData, entries: Sequence[A]) -> list[A]:
        results = interpret(program, [*fixed, *state, *entries], semantics)
        return [results[name] for name in program.outputs]

    stacks: dict[int, Sequence[A]] = {}
    if op.condition is not None:
        while semantics.is_true(run(op.condition, ())[0]):
            state = run(op.program, ())
    else:
        for step in form.order:
            results = run(op.program, [semantics.entry(array, step) for array in arrays])
            state, stacks[step] = form.results(results)
    stacked = enumerate(form.results(op.outs)[1])
    return [*state, *(semantics.stack(out, [stacks[step][k] for step in range(op.steps)]) for k, out in stacked)]
