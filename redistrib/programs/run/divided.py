"""Operations that combine elements along a cut dimension, which are worth making of others that can be cut there."""

from __future__ import annotations

from redistrib.programs.rules.traced import Traced
from redistrib.programs.schedule.propagate import Propagation


def along_cuts(traced: Traced, propagation: Propagation) -> frozenset[int]:
    """Numbers in `traced.divisible` of the operations whose operand is cut along a dimension that they need whole."""
    if not traced.divisible:
        return frozenset()
    spread = propagation.copy()
    for axis in propagation.mesh.names:
        spread.spread(axis)
    return frozenset(number for number, name in enumerate(traced.divisible) if name and _is_along_cut(spread, name))


def _is_along_cut(propagation: Propagation, name: str) -> bool:
    if name not in propagation.maker:  # nothing reads it
        return False
    operation = propagation.graph.operations[propagation.maker[name][0]]
    access, operand = operation.nest.reads[0], operation.ins[0]
    if operand in propagation.constants:
        return False
    cut = (propagation.where(operand, axis) for axis in propagation.mesh.names)
    return any(dim is not None and operation.nest.whole.issuperset(access.dims[dim]) for dim in cut)
