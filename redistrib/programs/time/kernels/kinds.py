"""Kinds of operations, by the elements that they read for each element that they write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from redistrib.cache import Key
from redistrib.programs.ir.graph import Operation
from redistrib.programs.ir.record import Fusion
from redistrib.programs.ir.work import is_by_vector
from redistrib.programs.time.kernels.fused import is_by_element


def is_loop(operation: Operation, scatters: bool = True) -> bool:
    """Whether every element that it writes comes of one element, or none, of each array that it reads.

    With `scatters=False` no scatter counts; else a scatter with one update of each row does.
    """
    nest = operation.nest
    if nest.effectful or operation.opaque or not operation.edge.computes:
        return False
    if any(nest.size(name) > 1 for name, _ in nest.combine):
        return False
    fusion = operation.record.fusion
    if fusion.moves:
        return True
    if fusion is Fusion.SCATTER:  # one update of each of several rows: indices are compared with positions
        rows = math.prod(nest.size(name) for name in nest.reads[1].names)
        return scatters and bool(nest.combine) and rows > 1 and is_by_element(nest.reads[0])
    if fusion is Fusion.LOOKUP or fusion.is_alone:
        return False
    written = {name for access in nest.writes for name in access.names} | {name for name, _ in nest.combine}
    once = all(len(dim) == 1 for access in nest.writes for dim in access.dims)
    return once and all(is_by_element(access) and written.issuperset(access.names) for access in nest.reads)


def is_reduction(operation: Operation) -> bool:
    """Whether it combines the elements of one array along some dimensions."""
    nest, fusion = operation.nest, operation.record.fusion
    combines = (bool(nest.combine) and not fusion.is_alone) or fusion is Fusion.FOLD
    return combines and len(nest.reads) == 1 and is_by_element(nest.reads[0]) and not operation.opaque


def is_product(operation: Operation) -> bool:
    """Whether it is a product of two arrays, summed."""
    nest, fusion = operation.nest, operation.record.fusion
    two = bool(nest.combine) and len(nest.reads) == 2 and len(nest.writes) == 1 and len(operation.outs) == 1
    return two and fusion is not Fusion.LOOKUP and not fusion.is_alone and not operation.opaque


def slices(operation: Operation) -> bool:
    """Whether it reads no more of its first operand than it writes."""
    return operation.record.fusion.slices


def is_product_by_vector(operation: Operation) -> bool:
    """Whether it is a product of a matrix and a vector."""
    return is_product(operation) and is_by_vector(operation.nest)


class Kind(NamedTuple):
    """The kinds that an operation is of, by the functions of these names."""

    is_loop: bool
    is_reduction: bool
    is_product: bool
    is_product_by_vector: bool


def kinds_of(operations: Sequence[Operation], scatters: bool = True) -> list[Kind]:
    """The kinds of each operation; those that share the parts of their nests are asked once."""
    kinds: dict[Key, Kind] = {}
    every = []
    for operation in operations:
        key = operation.identity
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = Kind(
                is_loop(operation, scatters),
                is_reduction(operation),
                is_product(operation),
                is_product_by_vector(operation),
            )
        every.append(kind)
    return every
