"""Loop fission: a loop on examples whose steps read complete sums over them becomes two (Kennedy and McKinley, 1993).

The first loop runs for each microbatch. It stacks the sums of its steps, one entry for each step, and microbatches
add them as they add other sums. The second loop runs once, after all microbatches: it has the operations that read
complete sums, and carries their results from step to step. The first must read no result of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.program import Value
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.stages.roles import BatchedLoop, BatchedProgram, BatchStep, Role, RoleKind


def reads_complete_sums(loop: BatchedLoop) -> bool:
    """Whether a step has operations on complete sums, or the loop carries results of such."""
    return any(_is_late(loop, k) for k in range(len(loop.batch.outputs)))


def fission(of: BatchStep, loop: BatchedLoop, new_value: Callable[[Value], Value]) -> tuple[BatchStep, BatchStep]:
    """The two loops.

    Args:
        of: the loop as one operation.
        loop: its step.
        new_value: a value of another name, for results that only one of the two loops has.

    Returns:
        The loop of each microbatch, and the one after all of them.
    """
    results, outputs, form = dict(of.op.outs), loop.batch.outputs, loop.form
    outs = [results[access.array] for access in of.nest.writes]
    late = [k for k in range(len(outs)) if _is_late(loop, k)]
    early = [k for k in range(len(outs)) if k not in late]
    second = _needed(loop, (outputs[k] for k in late), is_second=True)
    first = _needed(loop, [*(outputs[k] for k in early), *second.entries], is_second=False)
    inner = {name: loop.batch.values[name] for name in second.entries}
    stacked_already = {outputs[k]: outs[k] for k in early if k >= form.carried}  # these have an entry for each step
    stacks = {
        name: stacked_already.get(name) or new_value(replace(outs[0], type=form.stacked(value.type), dtype=value.dtype))
        for name, value in inner.items()
    }
    again = second.carries.difference(late)  # the same for every batch, so that both loops carry them
    carries = sorted({*second.carries, *(k for k in late if k < form.carried)})
    left = [(outputs[k], new_value(outs[k]) if k in again else outs[k]) for k in carries]
    left += [(outputs[k], outs[k]) for k in late if k >= form.carried]
    stacked = [(outputs[k], outs[k]) for k in early]
    stacked += [(name, value) for name, value in stacks.items() if name not in stacked_already]
    return (
        _half(of, loop, first, [k for k in early if k < form.carried], stacked, "batched", {}),
        _half(of, loop, second, carries, left, "final", stacks),
    )


class _Part(NamedTuple):
    """The operations of a step that are in one of the two loops.

    Attributes:
        steps: their numbers.
        values: the values that they read and make.
        carries: numbers of the carried values among these.
        entries: results of the first loop that the second reads.
    """

    steps: set[int]
    values: set[str]
    carries: set[int]
    entries: dict[str, None]


def _is_late(loop: BatchedLoop, output: int) -> bool:
    """Whether an output of a step is computed from complete sums."""
    batch, (_, carried, _) = loop.batch, loop.form.operands(loop.batch.inputs)
    name = carried[output].name if output < len(carried) else batch.outputs[output]
    return batch.roles[name].kind == "final"


def _needed(loop: BatchedLoop, ends: Iterable[str], *, is_second: bool) -> _Part:
    """The part of a step that makes these values."""
    batch, (_, carried, _) = loop.batch, loop.form.operands(loop.batch.inputs)
    position = {value.name: k for k, value in enumerate(carried)}
    part, waiting = _Part(set(), set(), set(), {}), [*ends]
    while waiting:
        name = waiting.pop()
        if name in part.values or name in part.entries:
            continue
        number = batch.makers.get(name)
        if is_second and (
            batch.roles[name].kind == "summed" or (number is not None and batch.steps[number].kind == "batched")
        ):
            part.entries[name] = None
            continue
        part.values.add(name)
        if number is not None:
            part.steps.add(number)
            waiting += batch.steps[number].reads.values()
        elif name in position:
            part.carries.add(position[name])
            waiting.append(batch.outputs[position[name]])
    return part


def _half(
    of: BatchStep,
    loop: BatchedLoop,
    part: _Part,
    carries: Sequence[int],
    ends: Sequence[tuple[str, Value]],
    kind: RoleKind,
    stacks: Mapping[str, Value],
) -> BatchStep:
    """One of the two loops.

    Args:
        of, loop: the whole loop.
        part: the operations.
        carries: numbers of the carried values.
        ends: the results, those carried first, each with the value outside.
        kind: of its results.
        stacks: for results of the first loop that this one reads the arrays of their entries.
    """
    batch = loop.batch
    constants, carried, sliced = loop.form.operands(batch.inputs)
    fixed, entries = ([value for value in side if value.name in part.values] for side in (constants, sliced))
    entries += [batch.values[name] for name in stacks]
    inputs = (*fixed, *(carried[k] for k in carries), *entries)
    final = {name: Role("final") for name in stacks if batch.roles[name].kind == "summed"}
    steps = tuple(step for k, step in enumerate(batch.steps) if k in part.steps)
    ins = dict(of.op.ins) | {name: value.name for name, value in stacks.items()}
    seen = BatchedProgram(
        inputs, steps, batch.roles | final, tuple(name for name, _ in ends), batch.size, batch.values, batch.rows
    )
    form = loop.form._replace(constants=len(fixed), carried=len(carries))
    shapes = [value.type.global_shape for value in inputs]
    shapes = [(form.steps, *shape) if form.is_stacked(k) else shape for k, shape in enumerate(shapes)]
    reads = [_whole(value.name, shape) for value, shape in zip(inputs, shapes, strict=True) if value.name in ins]
    outs = tuple((f"out{k}", value) for k, (_, value) in enumerate(ends))
    writes = [_whole(array, value.type.global_shape) for array, value in outs]
    nest = Nest(of.nest.name, (), tuple(reads), tuple(writes), flops=form.steps * sum(step.flops for step in steps))
    op = replace(
        of.op,
        parts=(ScheduledNest(nest, DistType.cut((), {}, Mesh(()))),),
        ins=tuple((access.array, ins[access.array]) for access in reads),
        outs=outs,
    )
    return BatchStep(op, "", kind, loop=replace(loop, batch=seen, form=form))


def _whole(array: str, shape: Sequence[int]) -> Access:
    return Access(array, ((),) * len(shape), tuple(shape))
