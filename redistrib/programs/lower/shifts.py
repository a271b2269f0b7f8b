"""Moves that steps of a loop make one step ahead or one step behind: which those are, and what they add to the loop.

Programs are rewritten by it (`ahead`, `behind`), and a search lays out its tasks by it (`search.laid_out`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from redistrib.lang.types import DimType, DistType
from redistrib.programs.ir.check import check
from redistrib.programs.ir.data import Compute, Loop, Move, Op, ProgramData, made_by, used_by
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.value import Value

MOVE = ""  # the kind of an operation that is the move of the step once more
WHOLE = "whole"  # the array of all steps, which the program has without them too
STACK, BEFORE, AFTER = range(3)  # what an array is like: `WHOLE`, or what is moved, before the move and after it


class Added(NamedTuple):
    """An operation that a loop needs beside it; arrays go by their names in the description.

    Attributes:
        kind: of a computation; `MOVE` for the move.
        reads: the arrays that it reads.
        makes: the array that it makes.
        body: what it computes, from whether the last step comes first, and the result.
    """

    kind: str
    reads: tuple[str, ...]
    makes: str
    body: Callable[[bool, Value], Callable[..., Any]] | None = None


class Shift(NamedTuple):
    """What a loop needs where its steps make a move ahead, or behind.

    An array is live from its first maker to its last reader. `carried` is handed from step to step in the same bytes:
    the result of a move ahead, and the operand of one behind.

    Attributes:
        forms: of every array whether it is as `STACK`, `BEFORE` or `AFTER`.
        before, after: the operations before the loop, and after it.
        reads, makes: the arrays that the loop reads besides its own, and those that it makes.
    """

    forms: Mapping[str, int]
    before: tuple[Added, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    after: tuple[Added, ...] = ()


AHEAD = Shift(
    {WHOLE: STACK, "entry": BEFORE, "carried": AFTER, "turned": STACK},
    (
        Added("entry", (WHOLE,), "entry", lambda back, out: lambda at, tile: tile[-1 if back else 0]),
        Added(MOVE, ("entry",), "carried"),
        # the entries of the steps after each, the first after the last
        Added("roll", (WHOLE,), "turned", lambda back, out: lambda at, tile: jnp.roll(tile, 1 if back else -1, 0)),
    ),
    ("carried", "turned"),
    ("carried",),
)


def _turned_back(is_back: bool, out: Value) -> Callable[..., Any]:
    """The results of the steps in their places: each stands in that of the step after, and the last apart."""
    shift, end = (1, 0) if is_back else (-1, -1)
    return lambda at, tiles, tile: jnp.roll(tiles, shift, 0).at[end].set(tile)


BEHIND = Shift(
    {"carried": BEFORE, "late": STACK, "last": AFTER, WHOLE: STACK},
    (Added("broadcast_in_dim", (), "carried", lambda back, out: lambda at: jnp.zeros(out.tile, out.dtype)),),
    ("carried",),
    ("carried", "late"),
    (Added(MOVE, ("carried",), "last"), Added("roll", ("late", "last"), WHOLE, _turned_back)),
)


class StepMove(NamedTuple):
    """A move in a step of a loop.

    Attributes:
        receives: whether it has a plan that receives something.
        has_halos: whether tiles overlap, before the move or after it.
        is_entry: whether it is the first such move of an entry, which is there when the step begins.
        is_made: whether the step makes what it moves.
        stacked: how often the step stacks its result.
        is_read: whether the step reads its result besides.
    """

    receives: bool
    has_halos: bool
    is_entry: bool
    is_made: bool
    stacked: int = 0
    is_read: bool = False

    @property
    def shift(self) -> Shift | None:
        """Whether it may be made ahead, or behind; None for neither."""
        if not self.receives or self.has_halos:
            return None
        if self.is_entry:
            return AHEAD
        return BEHIND if self.is_made and self.stacked == 1 and not self.is_read else None


# ------------------------------------------------------------------------------------------------------- in programs

Rewritten = tuple[list[Op], Loop, list[Op]]  # the operations before a loop, the loop, and those after it


def shifted(
    program: Program,
    shift: Shift,
    names: Collection[str] | None,
    rewritten: Callable[[Loop, Move, ProgramData, set[str]], Rewritten],
) -> Program:
    """The program whose loops make moves ahead, or behind.

    Args:
        program: with loops.
        shift: which.
        names: of the values that are moved so, as the steps call them; None: all.
        rewritten: a loop of a program that makes one move so; the set has the names that are used outside of the loop.
    """

    def ops(program: ProgramData) -> Iterator[Op]:
        used = {*program.values}
        for op in program.ops:
            if not isinstance(op, Loop):
                yield op
                continue
            op = replace(op, program=replace(op.program, ops=tuple(ops(op.program))))
            after: list[Op] = []
            for move in [move for move in moves_of(op, shift) if names is None or move.value in names]:
                before, op, later = rewritten(op, move, program, used)
                yield from before
                after += later
            yield op
            yield from after

    return check(replace(program, ops=tuple(ops(program))))


def moves_of(op: Loop, shift: Shift) -> Iterator[Move]:
    """The moves of a step that may be made ahead, or behind."""
    step, (handed_on, stacked) = op.program, op.form.results(op.program.outputs)
    entries = {value.name for value in op.form.operands(step.inputs)[2]}
    made = {value.name for inner in step.ops for value in made_by(inner)}
    read = {name for inner in step.ops for name in used_by(inner)} | {*handed_on}
    for inner in step.ops if op.steps else ():
        if not isinstance(inner, Move):
            continue
        value, out = step.values[inner.value], inner.out
        possible = StepMove(
            inner.plan is not None and any(inner.plan.received),
            bool(value.windows or out.windows),
            value.name in entries,
            value.name in made,
            stacked.count(out.name),
            out.name in read,
        ).shift
        if possible is AHEAD:
            entries.remove(value.name)
        if possible is shift:
            yield inner


def carrying(op: Loop, ops: Iterable[Op], begin: Value, start: Value, end: Value, result: Value) -> Loop:
    """A loop with one more carried value, and other operations in its step.

    Args:
        op: the loop.
        ops: the operations of a step.
        begin, result: the value before the loop and after it.
        start, end: the value at the start of a step and at its end.
    """
    held, carried, step = op.form.held, op.carried, op.program
    inputs = (*step.inputs[:held], start, *step.inputs[held:])
    outputs = (*step.outputs[:carried], end.name, *step.outputs[carried:])
    return replace(
        op,
        program=replace(step, inputs=inputs, ops=tuple(ops), outputs=outputs),
        ins=(*op.ins[:held], begin.name, *op.ins[held:]),
        outs=(*op.outs[:carried], result, *op.outs[carried:]),
        carried=carried + 1,
    )


def beside(added: Iterable[Added], shift: Shift, values: Mapping[str, Value], move: Move, op: Loop) -> list[Op]:
    """Operations beside a loop, on these values."""
    ops: list[Op] = []
    for operation in added:
        reads, out = [values[array] for array in operation.reads], values[operation.makes]
        if operation.body is None:
            ops.append(Move(reads[0].name, out, move.plan))
            continue
        part = _part(operation, shift, values, operation.body(op.reverse, out))
        ins = tuple((f"a{k}", value.name) for k, value in enumerate(reads))
        ops.append(Compute(out.name, (part,), out.place, ins, (("out", out),), operation.kind, op.source))
    return ops


def _part(operation: Added, shift: Shift, values: Mapping[str, Value], body: Callable[..., Any]) -> ScheduledNest:
    """A nest over the elements of an entry, which reads and writes those of all steps; and its cut."""
    out = values[operation.makes]
    dims = [*out.type.dims[shift.forms[operation.makes] == STACK :]]
    names = tuple((f"d{k}",) for k in range(len(dims)))
    ranges, combine = [(name, range(dim.size)) for (name,), dim in zip(names, dims, strict=True)], []
    for k, axis in enumerate(() if operation.reads else out.type.partial):  # every summand is zero
        size = out.place.mesh.axis(axis).size
        ranges.append((f"s{k}", range(size)))
        dims.append(DimType(1, (axis,), size))
        combine.append((f"s{k}", str(out.type.reduction)))

    def access(formal: str, array: str) -> Access:
        is_stack = shift.forms[array] == STACK
        return Access(formal, ((), *names), values[array].shape[:1]) if is_stack else Access(formal, names)

    reads = tuple(access(f"a{k}", array) for k, array in enumerate(operation.reads))
    written = (access("out", operation.makes),)
    nest = Nest(out.name, tuple(ranges), reads, written, combine=tuple(combine), flops=0, body=body)
    return ScheduledNest(nest, DistType(tuple(dims)))
