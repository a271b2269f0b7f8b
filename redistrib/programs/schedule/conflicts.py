"""Conflicts: operations that read along a whole dimension an array which a mesh axis cuts along that dimension."""

from __future__ import annotations

from redistrib.programs.ir.nest import Access
from redistrib.programs.ir.windows import Stencil, refusal
from redistrib.programs.schedule.graph_cuts import Choice
from redistrib.programs.schedule.propagate import Propagation


def reshard_instead(propagation: Propagation, axis: str) -> None:
    """Reshard instead of replicate: cut each operation in conflict along another dimension, where it has one.

    Its operands are then exchanged and not gathered, and no two devices do the same work.
    """
    propagation.spread(axis)
    for k, operation in enumerate(propagation.graph.operations):
        conflicts = _conflicts(propagation, k, axis)
        everywhere = [access for access, _, _ in conflicts] + list(operation.nest.writes)
        free = [
            dim
            for dim in operation.nest.position
            if conflicts and all(dim in access.names for access in everywhere) and propagation.may_cut(k, axis, dim)
        ]
        entries = sum(_stay(propagation, k, axis, access.dims[dim]) for access, dim, _ in conflicts)
        if free:
            taken = min(free, key=lambda dim: propagation.to_move(operation, axis, dim))
            reasons = "; ".join(_reason(propagation, k, axis, *conflict) for conflict in conflicts)
            why = f"{reasons}; {taken!r} was cut instead, so that it is exchanged"
            propagation.choices.append(Choice(operation.name, axis, taken, why))
            propagation.cuts[k][axis] = taken
        if free or entries:
            propagation.spread(axis)


def _stay(propagation: Propagation, number: int, axis: str, factors: tuple[str, ...]) -> int:
    """Let an axis that cuts examples go on to cut them where a reshape splits them for the steps of a loop.

    The axis does not divide the number of steps. Each step then reads its examples cut along the axis, another factor
    of the same dimension. Entries that read the result, at once or through element-wise operations, are cut so.

    Args:
        factors: of the dimension that the axis cuts, major to minor.

    Returns:
        How many entries are cut.
    """
    operation, entries = propagation.graph.operations[number], 0
    for access, array in zip(operation.nest.writes, operation.outs, strict=True):
        for minor in factors[1:]:
            if access.dims and access.dims[0] == factors[:1] and (minor,) in access.dims:
                entries += _cut_entries(propagation, array.name, axis, access.dims.index((minor,)))
    return entries


def _cut_entries(propagation: Propagation, name: str, axis: str, at: int) -> int:
    """Cut the entries of loops that are made of an array, along a dimension of it; how many there are."""
    entries = 0
    for j, read in propagation.readers.get(name, ()):
        reader = propagation.graph.operations[j]
        (dim, *others) = reader.nest.reads[read].dims[at] or ("",)
        if others or not dim:
            continue
        if reader.edge.slices and propagation.may_cut(j, axis, dim):
            propagation.cuts[j][axis] = dim
            why = f"its steps split the dimension of {name!r} that {axis!r} cuts before; it cuts the rest of it in each"
            propagation.choices.append(Choice(reader.name, axis, dim, why))
            entries += 1
        elif reader.edge.computes and all(access.dims == reader.nest.reads[read].dims for access in reader.nest.writes):
            entries += sum(_cut_entries(propagation, array.name, axis, at) for array in reader.outs)
    return entries


def carry_whole(propagation: Propagation, axis: str) -> None:
    """Carry a value whole that every step reads whole, if no step then gathers more than before.

    That is so where a step makes it whole too, and where it begins whole and is needed whole after the loop: it is then
    gathered at the end of a step, and not at the start of the next, and not once more after the loop. Nothing may be
    spread along the axis afterwards.
    """
    for carried in (carried for loop in propagation.graph.loops for carried in loop.carried):
        inside = propagation.readers.get(carried.start, ())
        if axis not in propagation.cuts[carried.number] or not inside:
            continue
        if not all(_reads_whole(propagation, j, r, axis) for j, r in inside):
            continue
        begins_whole = propagation.where(carried.initial, axis) is None or carried.initial in propagation.constants
        if propagation.where(carried.end, axis) is None and not propagation.is_summed(carried.end, axis):
            why = "every step makes it whole, and reads it so"
        elif carried.result is not None and begins_whole and _needed_whole(propagation, carried.result, axis):
            why = "every step reads it whole, and so do the operations after the loop"
        else:
            continue
        name = propagation.graph.operations[carried.number].name
        propagation.choices.append(Choice(name, axis, "", f"carried whole: {why}"))
        propagation.cuts[carried.number].pop(axis)


def _reads_whole(propagation: Propagation, number: int, read: int, axis: str) -> bool:
    access, dim = propagation.graph.operations[number].nest.reads[read], propagation.cuts[number].get(axis)
    return axis not in propagation.carries[number] and dim not in access.names


def _needed_whole(propagation: Propagation, name: str, axis: str) -> bool:
    """Whether an output is to end whole along an axis, or an operation reads it so."""
    requested = propagation.wants.get(name, {})
    if name in propagation.graph.outputs and axis in requested and requested[axis] is None:
        return True
    return any(_reads_whole(propagation, j, r, axis) for j, r in propagation.readers.get(name, ()))


def replicated_operations(propagation: Propagation) -> list[Choice]:
    """The operations that every device along an axis runs whole, since their operands must be gathered for them."""
    return [
        Choice(operation.name, axis, "", _reason(propagation, k, axis, *conflict))
        for k, operation in enumerate(propagation.graph.operations)
        for axis in propagation.order
        for conflict in _conflicts(propagation, k, axis)
    ]


def _conflicts(propagation: Propagation, number: int, axis: str) -> list[tuple[Access, int, str]]:
    """The reads of an operation without the axis whose array the axis cuts: access, cut dimension, name of the array.

    Constants are left out: they are computed again where they are needed whole.
    """
    if axis in propagation.cuts[number] or axis in propagation.carries[number]:
        return []
    operation = propagation.graph.operations[number]
    reads = zip(operation.nest.reads, operation.ins, strict=True)
    cut = ((access, propagation.where(name, axis), name) for access, name in reads)
    return [(access, dim, name) for access, dim, name in cut if dim is not None and name not in propagation.constants]


def _reason(propagation: Propagation, number: int, axis: str, access: Access, dim: int, name: str) -> str:
    operation = propagation.graph.operations[number]
    start = f"dimension {dim} of {name!r} is cut, and the operation needs it whole"
    if operation.opaque:
        return f"{start}: {operation.opaque}"
    factors = access.dims[dim]
    if len(factors) > 1:
        sizes = [operation.nest.size(factor) for factor in factors]
        shape = propagation.arrays[name].shape
        unfolded = ", ".join(map(str, [*shape[:dim], *sizes, *shape[dim + 1 :]]))
        listed = ", ".join(f"{factor} of {size}" for factor, size in zip(factors, sizes, strict=True))
        return (
            f"{start}: it is made of {listed}, major to minor, and {axis!r} does not divide the first that is "
            f"not cut into single elements; reshape to ({unfolded}) where it is made, and cut another of them"
        )
    window = access.windows[dim] if access.windows else 1
    if isinstance(window, Stencil):
        whole, size = operation.nest.size(factors[0]), propagation.mesh.axis(axis).size
        why = f"{size} parts do not divide the {whole} points that read it in windows" if whole % size else ""
        return ": ".join(filter(None, (start, why or refusal(window, whole // size, whole))))
    return start
