"""Entries of a loop gathered one step ahead, so that a gather waits for nothing that its step computes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from redistrib.programs.ir.data import Loop, Move, ProgramData, used_by
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.value import fresh
from redistrib.programs.lower.shifts import AHEAD, WHOLE, Rewritten, beside, carrying, shifted


def gathered_ahead(program: Program, names: Collection[str] | None = None) -> Program:
    """The program in which a step of a loop gathers the operands of the next one, and carries them there.

    Where a step moves an entry of an array by a plan that receives something, the entry of the first step is moved
    before the loop, and each step moves that of the next. The last step moves the first entry once more, which nothing
    reads: a loop of `n` steps makes `n + 1` moves. Loops that a condition ends have no entries.

    Args:
        program: with loops.
        names: of the entries, as the steps call them; None: all.
    """
    return shifted(program, AHEAD, names, _moved_ahead)


def _moved_ahead(op: Loop, move: Move, program: ProgramData, used: set[str]) -> Rewritten:
    """A loop that gathers an entry one step ahead."""
    step, inside = op.program, {*op.program.values}
    inputs, ins = [*step.inputs], [*op.ins]
    number = next(k for k, value in enumerate(inputs) if value.name == move.value)
    entry, array = inputs[number], program.values[ins[number]]
    values = {
        WHOLE: array,
        "entry": replace(entry, name=fresh(f"{array.name}.first", used)),
        "carried": replace(move.out, name=fresh(f"{move.out.name}.first", used)),
        "turned": replace(array, name=fresh(f"{array.name}.turned", used)),
    }
    result = replace(move.out, name=fresh(f"{move.out.name}.left", used))
    upcoming = replace(entry, name=fresh(f"{entry.name}.next", inside))
    moved = replace(move.out, name=fresh(f"{move.out.name}.next", inside))
    others = [operation for operation in step.ops if operation is not move]
    if any(entry.name in used_by(operation) for operation in others) or entry.name in step.outputs:
        number = len(inputs)  # beside the entry itself, which other operations read
    inputs[number:], ins[number:] = [upcoming, *inputs[number + 1 :]], [values["turned"].name, *ins[number + 1 :]]
    loop = replace(op, program=replace(step, inputs=tuple(inputs)), ins=tuple(ins))
    ops = (Move(upcoming.name, moved, move.plan), *others)
    loop = carrying(loop, ops, values["carried"], move.out, moved, result)
    return beside(AHEAD.before, AHEAD, values, move, op), loop, []
