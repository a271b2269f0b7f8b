"""Where a cut ends: operations that need whole what an axis cuts."""

from __future__ import annotations

from redistrib.partitioning.propagate import Choice, Propagation
from redistrib.programs.nest import Access


def recut(found: Propagation, axis: str) -> None:
    """Cut operations that need whole what an axis cuts along another dimension, where they have one.

    What they read is then exchanged and not gathered, and no device does the work of others.
    """
    found.spread(axis)
    for k, operation in enumerate(found.graph.operations):
        if axis in found.cuts[k] or axis in found.carries[k]:
            continue
        lost = _lost(found, k, axis)
        everywhere = [access for access, _, _ in lost] + list(operation.nest.writes)
        free = [
            dim
            for dim in operation.nest.position
            if lost and all(dim in access.names for access in everywhere) and not found.why_not(k, axis, dim)
        ]
        if free:
            taken = min(free, key=lambda dim: found.to_move(operation, axis, dim))
            said = "; ".join(_why_lost(found, k, axis, *one) for one in lost)
            why = f"{said}; {taken!r} was cut instead, so that it is exchanged"
            found.choices.append(Choice(operation.name, axis, taken, why))
            found.cuts[k][axis] = taken
            found.spread(axis)


def losses(found: Propagation) -> list[Choice]:
    """Where a cut ends: operations that need whole what an axis cuts, and are run whole for it."""
    lost = []
    for k, operation in enumerate(found.graph.operations):
        for axis in found.order:
            if axis in found.cuts[k] or axis in found.carries[k]:
                continue
            lost += [Choice(operation.name, axis, "", _why_lost(found, k, axis, *one)) for one in _lost(found, k, axis)]
    return lost


def _lost(found: Propagation, number: int, axis: str) -> list[tuple[Access, int, str]]:
    """What an operation reads that an axis cuts: the access, the dimension that is cut, the value."""
    operation = found.graph.operations[number]
    reads = zip(operation.nest.reads, operation.ins, strict=True)
    known = ((access, found.where(name, axis), name) for access, name in reads)
    return [(access, at, name) for access, at, name in known if at is not None and name not in found.constants]


def _why_lost(found: Propagation, number: int, axis: str, access: Access, at: int, name: str) -> str:
    operation = found.graph.operations[number]
    start = f"dimension {at} of {name!r} is cut, and the operation needs it whole"
    if operation.opaque:
        return f"{start}: {operation.opaque}"
    names = access.dims[at]
    if len(names) > 1:
        shape = found.arrays[name].shape
        apart = [*shape[:at], *(operation.nest.size(factor) for factor in names), *shape[at + 1 :]]
        factors = ", ".join(f"{factor} of {operation.nest.size(factor)}" for factor in names)
        return (
            f"{start}: it is made of {factors}, major to minor, and {axis!r} does not divide the first that is "
            f"not cut into single elements; reshape to ({', '.join(map(str, apart))}) where it is made, and cut "
            f"another of them"
        )
    return start
