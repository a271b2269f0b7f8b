"""Fusion by compilers for accelerators: which arrays of a graph are never stored, and the operands of each kernel.

The rules model XLA on GPUs and TPUs; they were not compared with it program by program:

- Element-wise operations, broadcasts, transposes, reshapes, slices and conversions are computed in the kernel of their
  reader, if only operations of these kinds and reductions read them, all in one kernel. Several kernels compute an
  operation again if it is cheap (at most one operation a point, no quotient) and reads no more bytes than it writes.
- The result of a product with one reader of these kinds is not stored: the reader is its epilogue.
- Every other operation is one kernel. It reads each stored array once.
- Nothing is fused into the steps of a loop, or out of them. The operations at a loop's boundary are no kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.graph import Graph, Operation
from redistrib.programs.nest import Access

_MOVING = {
    "broadcast_in_dim", "convert_element_type", "dynamic_slice", "iota", "reshape", "rev", "slice", "split", "squeeze",
    "stop_gradient", "transpose", "copy",
}  # fmt: skip
_COSTLY = {"div", "rem"}


class Kernel(NamedTuple):
    """The part of an operation in a kernel.

    Attributes:
        runs: whether it is computed as a kernel; otherwise inside those that read it.
        launches: whether that kernel is its own; otherwise it is the end of a product's.
        stores: whether its results are written to memory.
        reads: stored arrays that it reads, each with the number of the operation's read that it comes in by.
    """

    runs: bool
    launches: bool
    stores: bool
    reads: tuple[tuple[str, int], ...]


def kernels_of(graph: Graph) -> list[Kernel]:
    """For every operation of a graph its part in a kernel."""
    outputs, readers = {*graph.outputs}, graph.readers
    loops = [is_loop(operation) for operation in graph.operations]
    inside: dict[int, set[int]] = {}  # for arrays that are not stored, the kernels that compute them

    arrays = graph.arrays()

    def size(name: str) -> int:
        return math.prod(arrays[name].shape) * itemsize_of(arrays[name].dtype)

    def read(operation: Operation) -> int:
        return sum(size(name) for name in dict.fromkeys(operation.ins))

    def computed_by(name: str) -> set[int]:
        return {kernel for k, _ in readers.get(name, ()) for kernel in inside.get(k, {k})}

    for k in reversed(range(len(graph.operations))):
        operation = graph.operations[k]
        if not loops[k] or len(operation.outs) != 1 or operation.nest.effectful or operation.pinned:
            continue
        name = operation.outs[0].name
        reading = [number for number, _ in readers.get(name, ())]
        if name in outputs or not reading or not all(loops[j] or is_reduction(graph.operations[j]) for j in reading):
            continue
        if any(graph.scopes[j] != graph.scopes[k] for j in reading):  # it would be computed at every step
            continue
        kernels = computed_by(name)
        if len(kernels) == 1 or (not _is_costly(operation) and read(operation) <= size(name)):
            inside[k] = kernels
    ends: set[str] = set()  # results of products that are the start of an epilogue
    epilogues: set[int] = set()
    for operation in graph.operations:
        if not is_product(operation) or operation.outs[0].name in outputs:
            continue
        name = operation.outs[0].name
        reading = [number for number, _ in readers.get(name, ())]
        kernels = computed_by(name)
        scopes = {graph.scopes[k] for k in (*reading, *graph.makers[name][:1])}
        if (
            len(reading) == 1
            and loops[reading[0]]
            and len(kernels) == 1
            and len(scopes) == 1
            and not kernels & epilogues
        ):
            (kernel,) = kernels
            if loops[kernel]:
                ends.add(name)
                epilogues.add(kernel)
    sources: dict[str, tuple[str, ...]] = dict.fromkeys(ends, ())
    kernel_list = []
    for k, operation in enumerate(graph.operations):
        if operation.role:
            kernel_list.append(Kernel(False, False, True, ()))
            continue
        reads = dict.fromkeys((s, r) for r, name in enumerate(operation.ins) for s in sources.get(name, (name,)))
        if k in inside:
            sources[operation.outs[0].name] = tuple(dict.fromkeys(name for name, _ in reads))
        stores = k not in inside and not any(array.name in ends for array in operation.outs)
        kernel_list.append(Kernel(k not in inside, k not in epilogues, stores, tuple(reads)))
    return kernel_list


def is_loop(operation: Operation) -> bool:
    """Whether every element that it writes comes of one element, or none, of each array that it reads."""
    nest = operation.nest
    if nest.combine or nest.effectful or operation.opaque or operation.role:
        return False
    if operation.kind in _MOVING:
        return True
    written = {name for access in nest.writes for name in access.names}
    once = all(len(dim) == 1 for access in nest.writes for dim in access.dims)
    return once and all(_is_by_element(access) and written.issuperset(access.names) for access in nest.reads)


def is_reduction(operation: Operation) -> bool:
    """Whether it combines the elements of one array along some dimensions."""
    nest = operation.nest
    return bool(nest.combine) and len(nest.reads) == 1 and _is_by_element(nest.reads[0])


def is_product(operation: Operation) -> bool:
    """Whether it is a product of two arrays, summed."""
    nest = operation.nest
    return bool(nest.combine) and len(nest.reads) == 2 and len(nest.writes) == 1 and len(operation.outs) == 1


def _is_by_element(access: Access) -> bool:
    single = all(len(dim) <= 1 for dim in access.dims) and all(extent == 1 for extent in access.extents)
    return single and not access.windows


def _is_costly(operation: Operation) -> bool:
    return (operation.nest.flops > 1 or operation.kind in _COSTLY) and operation.kind not in _MOVING


def mark(kernel: Kernel, sizes: Sequence[object]) -> tuple[object, ...]:
    """A key that is equal for kernels that do the same to arrays of other names; `sizes` are of its reads."""
    return (kernel.runs, kernel.launches, kernel.stores, tuple(r for _, r in kernel.reads), tuple(sizes))
