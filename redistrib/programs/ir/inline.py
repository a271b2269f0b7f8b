"""Programs without calls: every called program in the place of its call, its values renamed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from redistrib.programs.ir.data import Call, Compute, Loop, Move, Op, ProgramData
from redistrib.programs.ir.value import Value

_Program = TypeVar("_Program", bound=ProgramData)


def inlined(program: _Program) -> _Program:
    """The same program without calls, those in the steps of its loops included.

    Value `h` of the call that makes `y` is called `y/h`.

    A result that the called program has under another name already, or passes on, becomes a move that moves nothing.
    """
    if not any(isinstance(op, Call | Loop) for op in program.ops):
        return program
    ops: list[Op] = []
    for op in program.ops:
        if isinstance(op, Call):
            ops += _body(op, {value.name for value in program.values.values()})
        elif isinstance(op, Loop):
            condition = None if op.condition is None else inlined(op.condition)
            ops.append(replace(op, program=inlined(op.program), condition=condition))
        else:
            ops.append(op)
    return replace(program, ops=tuple(ops))


def with_steps(program: ProgramData) -> Iterator[ProgramData]:
    """The program without calls, then the steps and conditions of its loops, and of the loops in these."""
    flat = inlined(program)
    yield flat
    for op in flat.ops:
        if isinstance(op, Loop):
            for inner in op.programs:
                yield from with_steps(inner)


def _body(call: Call, taken: set[str]) -> list[Op]:
    inner = inlined(call.program)
    prefix = call.outs[0].name if call.outs else call.program.name
    while any(f"{prefix}/{name}" in taken for name in inner.values):
        prefix += "'"
    arguments = {value.name: argument for value, argument in zip(inner.inputs, call.ins, strict=True)}
    made_here = {name for name in inner.values if name not in arguments}
    named: dict[str, Value] = {}  # the names of the call's results inside
    passed: list[tuple[str, Value]] = []
    for output, out in zip(inner.outputs, call.outs, strict=True):
        if output in made_here and output not in named:
            named[output] = out
        else:
            passed.append((output, out))
    final = arguments | {name: named[name].name if name in named else f"{prefix}/{name}" for name in made_here}
    ops: list[Op] = []
    for op in inner.ops:
        match op:
            case Compute():
                ins = tuple((array, final[name]) for array, name in op.ins)
                outs = tuple((array, _called(value, named, final)) for array, value in op.outs)
                ops.append(replace(op, ins=ins, outs=outs))
            case Move():
                ops.append(Move(final[op.value], _called(op.out, named, final), op.plan))
            case Loop():
                left = tuple(_called(value, named, final) for value in op.outs)
                ops.append(replace(op, ins=tuple(final[name] for name in op.ins), outs=left))
            case Call():
                raise AssertionError("calls are inlined from the inside")
    ops += [Move(final[output], out, None) for output, out in passed]
    return ops


def _called(value: Value, named: dict[str, Value], final: dict[str, str]) -> Value:
    return named[value.name] if value.name in named else replace(value, name=final[value.name])
