"""The ways in which an axis may cut each operation, argument and result, when other axes are decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

from redistrib.errors import ProgramError
from redistrib.lang.types import DistType
from redistrib.programs.ir.graph import Graph, Operation
from redistrib.programs.ir.pullback import windows_of
from redistrib.programs.ir.windows import Held, held_shape
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.time.kernels.fusion import Kernel
from redistrib.programs.time.kernels.prices import seconds_of, stored_bytes
from redistrib.programs.time.machine import Machine

# An iteration dimension; the group of linear reads that carry summands; or neither.
OperationCut: TypeAlias = "str | int | None"


@dataclass(frozen=True)
class Option:
    """One way to cut the work of an operation, or to lay an array out.

    Attributes:
        cuts: for each axis to decide, the dimension, see `OperationCut`; of an array, its number.
        ins, outs: types of the operands and the results.
        seconds: on one device.
        share: of the work, or of the array, that one device has.
        windows: for each read the halos that it needs, see `redistrib.programs.ir.value.Value`; empty where there are
            none.
    """

    cuts: tuple[tuple[str, OperationCut], ...]
    ins: tuple[DistType, ...]
    outs: tuple[DistType, ...]
    seconds: float
    share: float
    windows: tuple[tuple[Held, ...], ...] = ()


def summed(graph: Graph) -> set[str]:
    """The values that some operation may write as summands along an axis, by a sum over a cut dimension."""
    partial: set[str] = set()
    while True:
        count = len(partial)
        for number, operation in enumerate(graph.operations):
            nest = operation.nest
            if not nest.combine and not nest.linear:
                continue
            groups = () if partial.isdisjoint(operation.ins) else _passing(graph, number)
            carries = any(operation.ins[r] in partial for k in groups for r in nest.linear[k])
            if not carries and not nest.combine:
                continue
            for write, array in enumerate(operation.outs):
                if carries or any(nest.is_summed(write, name) for name, _ in nest.combine):
                    partial.add(array.name)
        if len(partial) == count or not graph.loops:  # a step ends with the values of the next one's start
            return partial


def _passing(graph: Graph, number: int) -> Sequence[int]:
    """The groups of linear reads by which summands may pass an operation.

    A loop carries them only where the next value is linear in the last. Stacked results are added in the step that
    makes it, since as summands the array of all steps would be larger.
    """
    operation = graph.operations[number]
    if operation.edge.stacks or (operation.edge.carries and number not in graph.accumulators):
        return ()
    return range(len(operation.nest.linear))


def of_operation(
    propagation: Propagation,
    number: int,
    axes: Sequence[str],
    fixed: Mapping[str, str],
    sums: set[str],
    machine: Machine | None,
    kernel: Kernel | None = None,
) -> list[Option]:
    """The options of an operation.

    Args:
        propagation: how other axes cut it; along `axes` nothing is decided.
        number: of the operation.
        axes: to be decided together.
        fixed: the dimension along some of them.
        sums: see `summed`.
        machine: the machine that times the operation.
        kernel: the compiled kernel; None: a kernel that reads and writes all its arrays.
    """
    operation = propagation.graph.operations[number]
    tried = (
        _option(propagation, number, cuts, machine, kernel) for cuts in _ways(propagation, number, axes, fixed, sums)
    )
    options = [option for option in tried if option is not None]
    if not options:
        raise ProgramError(operation.name, "", "Schedule", "no cut of it is allowed").at(operation.source)
    return options


def _ways(
    propagation: Propagation, number: int, axes: Sequence[str], fixed: Mapping[str, str], sums: set[str]
) -> Iterator[tuple[tuple[str, OperationCut], ...]]:
    if not axes:
        yield ()
        return
    axis, rest = axes[0], axes[1:]
    operation = propagation.graph.operations[number]
    nest, cuts, carries = operation.nest, propagation.cuts[number], propagation.carries[number]
    dims = [fixed[axis]] if axis in fixed else [dim for dim in nest.position if nest.size(dim) > 1]
    groups = () if axis in fixed else _passing(propagation.graph, number)
    if axis not in fixed:
        yield from (((axis, None), *more) for more in _ways(propagation, number, rest, fixed, sums))
    for dim in dims:
        if propagation.may_cut(number, axis, dim):
            cuts[axis] = dim
            yield from [((axis, dim), *more) for more in _ways(propagation, number, rest, fixed, sums)]
            del cuts[axis]
    for group in groups:
        if any(operation.ins[read] in sums for read in nest.linear[group]):
            carries[axis] = group
            yield from [((axis, group), *more) for more in _ways(propagation, number, rest, fixed, sums)]
            del carries[axis]


def of_decided(propagation: Propagation, number: int, machine: Machine | None, kernel: Kernel | None = None) -> Option:
    """An operation under a cut; `kernel` is its compiled kernel.

    Raises:
        ProgramError: if it cannot be cut so.
    """
    part = propagation.part(number)
    signature = part.signature(propagation.mesh)
    windows = tuple(windows_of(part.nest, access, part.cut) for access in part.nest.reads)
    seconds, operation = 0.0, propagation.graph.operations[number]
    if machine is not None and operation.edge.computes:
        if kernel is None:
            size = _bytes(machine, propagation, operation, signature.ins, signature.outs, windows)
        else:
            size = stored_bytes(operation, signature.ins, signature.outs, kernel)
        dtypes = (propagation.arrays[name].dtype for name in operation.ins)
        flops = int(part.cut.local_size * part.nest.flops)
        flops = flops if kernel is None else kernel.flops(flops)

        def held(read: int) -> int:
            elements = math.prod(signature.ins[read].local_shape)
            return machine.bytes_of(elements, propagation.arrays[operation.ins[read]].dtype)

        seconds = seconds_of(machine, operation, kernel, dtypes, size, flops, held)
    share = part.cut.local_size / max(1, part.nest.points)
    return Option((), signature.ins, signature.outs, seconds, share, windows if any(windows) else ())


def _option(
    propagation: Propagation,
    number: int,
    cuts: tuple[tuple[str, OperationCut], ...],
    machine: Machine | None,
    kernel: Kernel | None,
) -> Option | None:
    before, carried = propagation.cuts[number], propagation.carries[number]
    propagation.cuts[number] = before | {axis: cut for axis, cut in cuts if isinstance(cut, str)}
    propagation.carries[number] = carried | {axis: cut for axis, cut in cuts if isinstance(cut, int)}
    try:
        return replace(of_decided(propagation, number, machine, kernel), cuts=cuts)
    except ProgramError:
        return None
    finally:
        propagation.cuts[number], propagation.carries[number] = before, carried


def _bytes(
    machine: Machine,
    propagation: Propagation,
    operation: Operation,
    ins: Sequence[DistType],
    outs: Sequence[DistType],
    windows: Sequence[tuple[Held, ...]],
) -> int:
    """Bytes that a device reads and writes; two reads of a value in one form count once."""
    read = dict.fromkeys(zip(operation.ins, ins, windows, strict=True))
    written = ((array.name, form, ()) for array, form in zip(operation.outs, outs, strict=True))
    return sum(
        machine.bytes_of(math.prod(held_shape(form.local_shape, windows)), propagation.arrays[name].dtype)
        for name, form, windows in chain(read, written)
    )


def of_array(
    propagation: Propagation, name: str, at: Mapping[str, int], axes: Sequence[str], fixed: Mapping[str, int | None]
) -> list[Option]:
    """The layouts of an argument or result; `at` says how other axes cut it."""
    shape = propagation.arrays[name].shape
    options: list[Option] = []

    def add(cuts: tuple[tuple[str, OperationCut], ...], at_dims: dict[str, int], left: Sequence[str]) -> None:
        if left:
            axis, rest = left[0], left[1:]
            dims: list[int | None] = [fixed[axis]] if axis in fixed else [None, *range(len(shape))]
            for dim in dims:
                more = at_dims if dim is None else at_dims | {axis: dim}
                if _divides(propagation, shape, more):
                    add((*cuts, (axis, dim)), more, rest)
            return
        form = propagation.type_of(shape, at_dims)
        share = form.local_size / max(1, form.global_size)
        options.append(Option(cuts, (form,), (form,), 0.0, share))

    add((), dict(at), axes)
    return options


def _divides(propagation: Propagation, shape: Sequence[int], at: Mapping[str, int]) -> bool:
    parts = [1] * len(shape)
    for axis, dim in at.items():
        parts[dim] *= propagation.mesh.axis(axis).size
    return all(size % part == 0 for size, part in zip(shape, parts, strict=True))
