"""Results of a loop moved one step behind, so that no step waits for the move of its own results."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from redistrib.programs.ir.data import Loop, Move, ProgramData
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.value import fresh
from redistrib.programs.lower.ahead import gathered_ahead
from redistrib.programs.lower.shifts import BEHIND, WHOLE, Rewritten, beside, carrying, shifted
from redistrib.programs.schedule.overlap import Overlap


def scattered_behind(program: Program, names: Collection[str] | None = None) -> Program:
    """The program in which a step of a loop moves the stacked results of the step before, and carries its own.

    Where a step moves a result by a plan that receives something, and reads it no more (the gradient of a layer, added
    up or scattered), the next step moves it, beside its own products. The first step moves zeros, which nothing reads.
    The results of the last step are moved after the loop: a loop of `n` steps makes `n + 1` moves. Loops that a
    condition ends have no stacked results.

    Args:
        program: with loops.
        names: of the results, as the steps call them before they are moved; None: all.
    """
    return shifted(program, BEHIND, names, _moved_behind)


def overlapping(program: Program, overlap: Overlap | None) -> Program:
    """The program in which steps of loops move ahead and behind what a schedule says, if it says so."""
    if overlap is not None and overlap.ahead:
        program = gathered_ahead(program, overlap.ahead)
    return scattered_behind(program, overlap.behind) if overlap is not None and overlap.behind else program


def _moved_behind(op: Loop, move: Move, program: ProgramData, used: set[str]) -> Rewritten:
    """A loop that moves a result one step behind."""
    step, inside = op.program, {*op.program.values}
    number = step.outputs.index(move.out.name, op.carried)
    operand, stacked = step.values[move.value], op.outs[number]
    before = replace(operand, name=fresh(f"{operand.name}.before", inside))
    moved = replace(move.out, name=fresh(f"{move.out.name}.before", inside))
    zeros = replace(operand, name=fresh(f"{operand.name}.none", used))
    values = {
        "carried": replace(operand, name=fresh(f"{operand.name}.last", used)),
        "last": replace(move.out, name=fresh(f"{move.out.name}.last", used)),
        "late": replace(stacked, name=fresh(f"{stacked.name}.late", used)),
        WHOLE: stacked,
    }
    outputs, outs = [*step.outputs], [*op.outs]
    outputs[number], outs[number] = moved.name, values["late"]
    loop = replace(op, program=replace(step, outputs=tuple(outputs)), outs=tuple(outs))
    ops = (Move(before.name, moved, move.plan), *(operation for operation in step.ops if operation is not move))
    loop = carrying(loop, ops, zeros, before, operand, values["carried"])
    begin = beside(BEHIND.before, BEHIND, {"carried": zeros}, move, op)
    return begin, loop, beside(BEHIND.after, BEHIND, values, move, op)
