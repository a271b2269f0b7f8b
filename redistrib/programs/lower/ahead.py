"""Entries of a loop gathered one step ahead, so that a gather waits for nothing that its step computes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import jax.numpy as jnp

from redistrib.lang.types import DistType
from redistrib.programs.ir.check import check
from redistrib.programs.ir.data import Compute, Loop, Move, Op, ProgramData, used_by
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.value import Value, fresh


def gathered_ahead(program: Program, names: Collection[str] | None = None) -> Program:
    """The program in which a step of a loop gathers the operands of the next one, and carries them there.

    Where a step moves an entry of an array by a plan that receives something, the entry of the first step is moved
    before the loop, and each step moves that of the next. The last step moves the first entry once more, which nothing
    reads: a loop of `n` steps makes `n + 1` moves. Loops that a condition ends have no entries.

    Args:
        program: with loops.
        names: of the entries, as the steps call them; None: all.
    """
    return check(replace(program, ops=tuple(_ahead(program, names))))


def _ahead(program: ProgramData, names: Collection[str] | None) -> Iterator[Op]:
    taken = {*program.values}
    for op in program.ops:
        if isinstance(op, Loop):
            inner = replace(op.program, ops=tuple(_ahead(op.program, names)))
            op = replace(op, program=inner)
            for move in _entries_moved(op, names):
                before, op = _moved_ahead(op, move, program, taken)
                yield from before
        yield op


def _entries_moved(op: Loop, names: Collection[str] | None) -> list[Move]:
    """The moves of entries that receive something; of each entry the first."""
    entries = {value.name for value in op.form.operands(op.program.inputs)[2]}
    entries = entries if names is None else entries.intersection(names)
    moves: dict[str, Move] = {}
    for inner in op.program.ops if op.steps else ():
        if isinstance(inner, Move) and inner.value in entries and inner.plan is not None and any(inner.plan.received):
            moves.setdefault(inner.value, inner)
    return list(moves.values())


def _moved_ahead(op: Loop, move: Move, program: ProgramData, taken: set[str]) -> tuple[list[Op], Loop]:
    """The operations before a loop that gathers an entry one step ahead, and the loop."""
    step, inputs = op.program, list(op.program.inputs)
    number = next(k for k, value in enumerate(inputs) if value.name == move.value)
    entry, array = inputs[number], program.values[op.ins[number]]
    first = replace(entry, name=fresh(f"{array.name}.first", taken))
    gathered = replace(move.out, name=fresh(f"{move.out.name}.first", taken))
    turned = replace(array, name=fresh(f"{array.name}.turned", taken))
    left = replace(move.out, name=fresh(f"{move.out.name}.left", taken))
    before: list[Op] = [_picked(array, first, op), Move(first.name, gathered, move.plan), _turned(array, turned, op)]
    inside = {*step.values}
    upcoming = replace(entry, name=fresh(f"{entry.name}.next", inside))
    moved = replace(move.out, name=fresh(f"{move.out.name}.next", inside))
    rest = [operation for operation in step.ops if operation is not move]
    ins = list(op.ins)
    if any(entry.name in used_by(operation) for operation in rest) or entry.name in step.outputs:
        inputs.append(upcoming)  # beside the entry itself, which other operations read
        ins.append(turned.name)
    else:
        inputs[number], ins[number] = upcoming, turned.name
    end = op.form.held
    inputs.insert(end, move.out)
    ins.insert(end, gathered.name)
    outputs, outs = list(step.outputs), list(op.outs)
    outputs.insert(op.carried, moved.name)
    outs.insert(op.carried, left)
    body = replace(
        step, inputs=tuple(inputs), ops=(Move(upcoming.name, moved, move.plan), *rest), outputs=tuple(outputs)
    )
    return before, replace(op, program=body, ins=tuple(ins), outs=tuple(outs), carried=op.carried + 1)


def _picked(array: Value, entry: Value, op: Loop) -> Compute:
    """The entry of the first step."""
    number = -1 if op.reverse else 0
    nest, cut = _nest(entry, array, stacked=False)
    return _compute(replace(nest, body=lambda at, tile: tile[number]), cut, array, entry, op)


def _turned(array: Value, turned: Value, op: Loop) -> Compute:
    """The entries of the steps after each, the first after the last."""
    shift = 1 if op.reverse else -1
    nest, cut = _nest(turned, array, stacked=True)
    return _compute(replace(nest, body=lambda at, tile: jnp.roll(tile, shift, 0)), cut, array, turned, op)


def _nest(out: Value, array: Value, *, stacked: bool) -> tuple[Nest, DistType]:
    """A nest over the elements of an entry, which reads all entries, and writes one or all of them; and its cut."""
    dims = array.type.dims[1:]
    names = tuple((f"d{k}",) for k in range(len(dims)))
    read = Access("a0", ((), *names), (array.shape[0],))
    written = Access("out", read.dims, read.extents) if stacked else Access("out", names)
    ranges = tuple((name, range(dim.size)) for (name,), dim in zip(names, dims, strict=True))
    return Nest(out.name, ranges, (read,), (written,), flops=0), DistType(dims)


def _compute(nest: Nest, cut: DistType, array: Value, out: Value, op: Loop) -> Compute:
    kind = "roll" if len(out.shape) == len(array.shape) else "entry"
    return Compute(
        out.name, (ScheduledNest(nest, cut),), array.place, (("a0", array.name),), (("out", out),), kind, op.source
    )
