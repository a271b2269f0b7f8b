"""Results of a loop moved one step behind, so that no step waits for the move of its own results."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import jax.numpy as jnp

from redistrib.lang.types import DimType, DistType
from redistrib.programs.ir.check import check
from redistrib.programs.ir.data import Compute, Loop, Move, Op, ProgramData, made_by, used_by
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Program
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.value import Value, fresh
from redistrib.programs.lower.ahead import gathered_ahead
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
    return check(replace(program, ops=tuple(_behind(program, names))))


def overlapping(program: Program, overlap: Overlap | None) -> Program:
    """The program in which steps of loops move ahead and behind what a schedule says, if it says so."""
    if overlap is not None and overlap.ahead:
        program = gathered_ahead(program, overlap.ahead)
    return scattered_behind(program, overlap.behind) if overlap is not None and overlap.behind else program


def _behind(program: ProgramData, names: Collection[str] | None) -> Iterator[Op]:
    taken = {*program.values}
    for op in program.ops:
        if not isinstance(op, Loop):
            yield op
            continue
        op = replace(op, program=replace(op.program, ops=tuple(_behind(op.program, names))))
        after: list[Op] = []
        for move in _results_moved(op, names):
            before, op, later = _moved_behind(op, move, taken)
            yield before
            after += later
        yield op
        yield from after


def _results_moved(op: Loop, names: Collection[str] | None) -> list[Move]:
    """The moves that receive something, of stacked results that the step makes and that nothing else there reads."""
    if not op.steps:
        return []
    step, (handed_on, stacked) = op.program, op.form.results(op.program.outputs)
    made = {value.name for inner in step.ops for value in made_by(inner)}
    read = {name for inner in step.ops for name in used_by(inner)} | {*handed_on}
    return [
        inner
        for inner in step.ops
        if isinstance(inner, Move)
        and inner.plan is not None
        and any(inner.plan.received)
        and stacked.count(inner.out.name) == 1
        and inner.out.name not in read
        and inner.value in made
        and not (step.values[inner.value].windows or inner.out.windows)
        and (names is None or inner.value in names)
    ]


def _moved_behind(op: Loop, move: Move, taken: set[str]) -> tuple[Op, Loop, list[Op]]:
    """The operation before a loop that moves a result one step behind, the loop, and the operations after it."""
    step = op.program
    inside = {*step.values}
    number = step.outputs.index(move.out.name, op.carried)
    own, stacked = step.values[move.value], op.outs[number]
    carried = replace(own, name=fresh(f"{own.name}.before", inside))
    moved = replace(move.out, name=fresh(f"{move.out.name}.before", inside))
    zeros = replace(own, name=fresh(f"{own.name}.none", taken))
    left = replace(own, name=fresh(f"{own.name}.last", taken))
    last = replace(move.out, name=fresh(f"{move.out.name}.last", taken))
    late = replace(stacked, name=fresh(f"{stacked.name}.late", taken))
    inputs, ins = list(step.inputs), list(op.ins)
    end = op.form.held
    inputs.insert(end, carried)
    ins.insert(end, zeros.name)
    outputs, outs = list(step.outputs), list(op.outs)
    outputs[number], outs[number] = moved.name, late
    outputs.insert(op.carried, own.name)
    outs.insert(op.carried, left)
    rest = [operation for operation in step.ops if operation is not move]
    body = replace(
        step, inputs=tuple(inputs), ops=(Move(carried.name, moved, move.plan), *rest), outputs=tuple(outputs)
    )
    loop = replace(op, program=body, ins=tuple(ins), outs=tuple(outs), carried=op.carried + 1)
    return _zeros(zeros, op), loop, [Move(left.name, last, move.plan), _turned_back(late, last, stacked, op)]


def _zeros(out: Value, op: Loop) -> Compute:
    """Zeros of a type; where it has partial sums, every summand is zero."""
    dims = out.type.dims
    names = tuple((f"d{k}",) for k in range(len(dims)))
    ranges = [(name, range(dim.size)) for (name,), dim in zip(names, dims, strict=True)]
    cuts, combine = [*dims], []
    for k, axis in enumerate(out.type.partial):
        size = out.place.mesh.axis(axis).size
        ranges.append((f"s{k}", range(size)))
        cuts.append(DimType(1, (axis,), size))
        combine.append((f"s{k}", str(out.type.reduction)))
    tile, dtype = out.tile, out.dtype
    nest = Nest(
        out.name,
        tuple(ranges),
        (),
        (Access("out", names),),
        combine=tuple(combine),
        flops=0,
        body=lambda at: jnp.zeros(tile, dtype),
    )
    return Compute(
        out.name,
        (ScheduledNest(nest, DistType(tuple(cuts))),),
        out.place,
        (),
        (("out", out),),
        "broadcast_in_dim",
        op.source,
    )


def _turned_back(late: Value, last: Value, out: Value, op: Loop) -> Compute:
    """The results of the steps in their places: each stands in that of the step after, and the last apart."""
    dims = out.type.dims[1:]
    names = tuple((f"d{k}",) for k in range(len(dims)))
    stacked = Access("a0", ((), *names), (out.shape[0],))
    ranges = tuple((name, range(dim.size)) for (name,), dim in zip(names, dims, strict=True))
    shift, end = (1, 0) if op.reverse else (-1, -1)
    nest = Nest(
        out.name,
        ranges,
        (stacked, Access("a1", names)),
        (Access("out", stacked.dims, stacked.extents),),
        flops=0,
        body=lambda at, tiles, tile: jnp.roll(tiles, shift, 0).at[end].set(tile),
    )
    cut = ScheduledNest(nest, DistType(dims))
    return Compute(
        out.name, (cut,), out.place, (("a0", late.name), ("a1", last.name)), (("out", out),), "roll", op.source
    )
