"""Fusion by compilers for accelerators: which arrays of a graph are never stored, and the bytes of each kernel.

The rules are XLA's for TPUs in outline; the suite `kernels` of the bench compares their bytes with the compiler's.

- Element-wise operations, broadcasts, transposes, reshapes, slices and conversions are computed in the kernels of their
  readers, if only operations of these kinds, reductions and products read them. Several kernels compute an operation
  again where this takes no more bytes than to store it.
- A kernel has several results: the operations that follow a product or an element-wise operation, point by point,
  are computed beside it, and so are operations over the same points that read the same array.
- A value that only its own kernel reads is not stored, and a kernel reads an array once.
- Every other operation is one kernel. Gathers and slices read no more than they return. A scatter, or an update of a
  slice, rewrites the rows that it touches, if its array is read by nothing else, and copies the array otherwise.
- Nothing is fused into the steps of a loop, or out of them. The operations at a loop's boundary are no kernels.

With `products=False`, as by XLA for GPUs and CPUs:

- A product is computed alone, but for transpositions of its operands and of its result: XLA calls a library.
- So is a scatter. XLA for TPUs compares the indices of one update of each row with positions, beside other operations.
- The entry of a stacked array that a step of a loop takes is copied, where a product, an update or another operation
  reads it that is computed alone. An update is computed beside the copy, if kernels have several results.
- An array of results of all steps is filled with zeros before the loop. XLA for TPUs allocates it as it is.

With `several=False` too, as by XLA for CPUs:

- A kernel has one result.
- An operation that a reduction is computed from is not computed again in another kernel, unless it is a broadcast.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redistrib.plans.dtypes import packed_bytes
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.record import Fusion, WorkClass
from redistrib.programs.time.kernels.attention import Attention, attentions, computes_again
from redistrib.programs.time.kernels.grouping import Root, alone, groups_of, without_products
from redistrib.programs.time.kernels.kinds import Kind, is_product, kinds_of, slices
from redistrib.programs.time.kernels.reads import Read, is_stacked, update_of, updates, with_copies
from redistrib.programs.time.kernels.transposing import follows_product, strides
from redistrib.programs.time.machine import Machine

MOST_JOINT = 16  # arrays that an operation is computed from, above which it is not looked through


class Kernel(NamedTuple):
    """The part of an operation in a kernel.

    Attributes:
        runs: whether it is computed once, as a result of a kernel; otherwise inside those that read it.
        launches: whether it is the first operation of its kernel.
        stores: whether its results are written to memory.
        reads: stored arrays that the kernel reads for it and for no operation before it.
        written: bytes that are written, on one device that has all of the work.
        again: how often its arithmetic is done: more than once where a pass of a flash kernel computes scores again.
        strides: whether its first operand is transposed element by element, which costs where kernels have one result;
            see `redistrib.programs.time.kernels.transposing`.
    """

    runs: bool
    launches: bool
    stores: bool
    reads: tuple[Read, ...]
    written: int
    again: float = 1.0
    strides: bool = False

    def flops(self, once: int) -> int:
        """Its floating-point operations, of which its arithmetic done once takes so many."""
        return once if self.again == 1 else round(self.again * once)

    def share(self, devices: int = 1) -> int:
        """Bytes that a device reads and writes at least, of several that share the work evenly."""
        return sum(read.size // devices for read in self.reads) + self.written // devices


INSIDE = Kernel(False, False, False, (), 0)


def kernels_of(graph: Graph, *, flash: bool = False, products: bool = True, several: bool = True) -> list[Kernel]:
    """For every operation of a graph its part in a kernel.

    Args:
        graph: the operations.
        flash: whether each pass of an attention is one kernel.
        products: whether kernels of products and scatters compute element-wise operations too.
        several: whether kernels have several results.
    """
    sizes, makers, copied = _sizes(graph), graph.makers, set[str]()
    inside, leaves, group_of = grouped(graph, sizes, products, several)
    fused = _Flash(graph, attentions(graph) if flash else [], inside, leaves)
    group_of |= fused.group_of
    stored = _stored(graph, leaves, inside, group_of) - fused.hidden
    first: set[int] = set()
    done: dict[int, dict[str, dict[str, int]]] = {}  # for groups the bytes of the parts of each array that were read
    kernels = []
    for k, operation in enumerate(graph.operations):
        if k in inside and operation.edge.computes:
            kernels.append(INSIDE if several else INSIDE._replace(strides=strides(graph, k, inside)))
            continue
        names = [array.name for array in operation.outs]
        if not operation.edge.computes:
            kernels.append(Kernel(False, False, not fused.hidden.issuperset(names), (), 0))
            continue
        group = group_of[k]
        before, reads = done.setdefault(group, {}), []
        for place, leaf in enumerate(leaves[k]):
            name, number, size, part, _ = leaf
            maker = makers.get(name)
            if maker is not None and group_of.get(maker[0]) == group:
                continue
            if name in fused.hidden:
                reads += fused.read_again(k, leaf._replace(leaf=place))
                continue
            parts = before.setdefault(name, {})
            more = min(size - parts.get(part, 0), sizes[name] - sum(parts.values())) if parts else size
            if more > 0:
                parts[part] = parts.get(part, 0) + more
                reads.append(Read(name, number, more, part, place))
        in_memory = [name for name in names if name in stored]
        stores, written = bool(in_memory) or not names, sum([sizes[name] for name in in_memory])
        if updates(operation, products):
            reads, written = update_of(graph, k, reads, sizes, inside)
        if not products:
            reads = with_copies(graph, k, reads, sizes, copied, several)
            written += sum(sizes[name] for name in names if is_stacked(graph, name))  # with zeros, before the loop
        written += fused.written[k]
        launches = group not in first
        turned = not several and launches and strides(graph, k, inside)
        kernels.append(Kernel(True, launches, stores, tuple(reads), written, fused.again.get(k, 1.0), turned))
        first.add(group)
    return kernels


def kernels_on(machine: Machine, graph: Graph) -> list[Kernel]:
    """The kernels that the compiler of a machine makes of a graph."""
    return kernels_of(graph, flash=machine.flash, products=machine.fuses_products, several=machine.several_results)


class _Flash:
    """The attentions of a graph as kernels.

    Attributes:
        group_of: for their operations the kernel, of another number than all others.
        hidden: arrays that are not stored.
        written: for operations the bytes that a forward pass leaves for the backward pass.
        again: for operations how often their arithmetic is done.
    """

    def __init__(
        self, graph: Graph, found: Sequence[Attention], inside: set[int], leaves: Sequence[Sequence[Read]]
    ) -> None:
        self.group_of: dict[int, int] = {}
        self.hidden: set[str] = set()
        self.written: Counter[int] = Counter()
        self.again: dict[int, float] = {}
        self._row_bytes: dict[int, int] = {}
        readers: dict[str, set[int]] = {}
        for k, of_operation in enumerate(leaves if found else ()):
            for leaf in of_operation if k not in inside else ():
                readers.setdefault(leaf.name, set()).add(k)
        for attention in found:
            members = frozenset[int]().union(*attention.passes)
            rows_inside = (name for name in attention.rows if readers.get(name, set()) <= members)
            self.hidden |= attention.scores | ({*rows_inside} - {*graph.outputs})
            for number, numbers in enumerate(attention.passes):
                group = -1 - len(self._row_bytes)
                self._row_bytes[group] = attention.row_bytes
                self.group_of |= dict.fromkeys(sorted(numbers - inside), group)
                if number and computes_again(attention, number, graph):
                    products = [k for k in sorted(numbers) if is_product(graph.operations[k])]
                    work = [graph.operations[k].nest.work for k in products]
                    chosen = work.index(attention.flops) if attention.flops in work else 0
                    self.again[products[chosen]] = 1 + attention.flops / work[chosen]
                    first = min(k for k in attention.passes[0] if is_product(graph.operations[k]) and k not in inside)
                    self.written[first] = attention.row_bytes

    def read_again(self, number: int, leaf: Read) -> list[Read]:
        """The number for each row that a pass reads once in the place of hidden arrays of an earlier one."""
        size = self._row_bytes.pop(self.group_of[number], 0) if number in self.group_of else 0
        return [leaf._replace(size=size, part="")] if size else []


def grouped(
    graph: Graph, sizes: Mapping[str, int], products: bool = True, several: bool = True
) -> tuple[set[int], list[list[Read]], dict[int, int]]:
    """The operations inside kernels, the stored arrays that each operation is computed from, the kernel of each other.

    Operations and kernels are numbers. `sizes` are the bytes of every array by name.
    """
    arrays, kinds = graph.arrays, kinds_of(graph.operations, products)
    inside = _inside(graph, kinds, sizes, products, several)
    leaves = _leaves(graph, inside, sizes)
    roots = [
        None
        if k in inside
        else Root(tuple(dict.fromkeys([leaf.name for leaf in leaves[k]])), *_kind(operation, kinds[k], arrays))
        for k, operation in enumerate(graph.operations)
    ]
    if not several:
        return inside, leaves, alone(graph, roots)
    return inside, leaves, groups_of(graph, roots if products else without_products(graph, roots), sizes)


def kernels_in(graph: Graph, kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels of the same operations in another graph, with the names of the arrays that they read there."""
    loops = {k for k, kernel in enumerate(kernels) if not kernel.runs and graph.operations[k].edge.computes}
    leaves = _leaves(graph, loops, _sizes(graph))
    return [
        kernel._replace(
            reads=tuple(
                read._replace(name=stored[min(read.leaf, len(stored) - 1)].name) for read in kernel.reads if stored
            )
        )
        if kernel.reads
        else kernel
        for kernel, stored in zip(kernels, leaves, strict=True)
    ]


# -------------------------------------------------------------------------------------------- what is not stored


def _inside(graph: Graph, kinds: Sequence[Kind], sizes: Mapping[str, int], products: bool, several: bool) -> set[int]:
    """The operations that are computed inside the kernels of their readers, by number."""
    operations, outputs, readers, scopes = graph.operations, {*graph.outputs}, graph.readers, graph.scopes
    # On CPUs a matrix is transposed by a copy before it is multiplied by a vector.
    transposes = [kind.is_product and (several or not kind.is_product_by_vector) for kind in kinds]
    computes = [kind.is_loop or kind.is_reduction or (products and kind.is_product) for kind in kinds]
    least, followed = _least(graph, kinds, sizes), _followed(graph, kinds)
    kernels: dict[int, set[int]] = {}  # for operations inside kernels, the kernels

    for k in reversed([k for k, kind in enumerate(kinds) if kind.is_loop]):
        operation = operations[k]
        if operation.pinned or (len(operation.outs) > 1 and not slices(operation)):
            continue
        names = [array.name for array in operation.outs]
        reading = {number for name in names for number, _ in readers.get(name, ())}
        if not reading or not outputs.isdisjoint(names):
            continue
        if not products and operation.record.work is WorkClass.TRANSPOSE:
            if follows_product(graph, k):
                continue
            if all(transposes[j] and scopes[j] == scopes[k] for j in reading):
                computes[k], kernels[k] = False, reading
                continue
        if not all(map(computes.__getitem__, reading)):
            continue
        if graph.bodies and any(scopes[j] != scopes[k] for j in reading):  # it would be computed at every step
            continue
        first, *others = [kernels.get(j) or {j} for j in reading]
        those = first.union(*others) if others else first
        count = len(those)
        if count > 1 and not slices(operation):
            written = sum([sizes[name] for name in names])
            if (count - 1) * least[k] > count * written or not followed.isdisjoint(operation.ins):
                continue
            again = several or operation.record.fusion is Fusion.BROADCAST
            if not again and any(kinds[j].is_reduction for j in those):
                continue
        kernels[k] = those
    return {*kernels}


def _least(graph: Graph, kinds: Sequence[Kind], sizes: Mapping[str, int]) -> list[int]:
    """For every operation the least bytes that it is computed from: of its operands, or of those of their makers."""
    sources: dict[str, dict[str, int]] = {}
    every = []
    for operation, kind in zip(graph.operations, kinds, strict=True):
        joint: dict[str, int] = {}
        for name in operation.ins:
            if name in sources:
                joint |= sources[name]
            else:
                joint[name] = sizes[name]
        every.append(sum(joint.values()))
        if kind.is_loop and len(joint) <= MOST_JOINT:
            for array in operation.outs:
                if every[-1] < sizes[array.name]:
                    sources[array.name] = joint
    return every


def _followed(graph: Graph, kinds: Sequence[Kind]) -> set[str]:
    """The results of products that one operation reads each, which then follows the product in its kernel."""
    products = (operation for operation, kind in zip(graph.operations, kinds, strict=True) if kind.is_product)
    names = (operation.outs[0].name for operation in products)
    return {name for name in names if len(graph.readers.get(name, ())) == 1}


def _leaves(graph: Graph, inside: set[int], sizes: Mapping[str, int]) -> list[list[Read]]:
    """For every operation outside of others the stored arrays that it is computed from, with the bytes of each."""
    sources: dict[str, dict[tuple[str, str], int]] = {}  # bytes by array and part of it
    every, nothing = list[list[Read]](), list[Read]()
    for k, operation in enumerate(graph.operations):
        whole = [sources[name] if name in sources else {(name, ""): sizes[name]} for name in operation.ins]
        if k in inside:
            joint = whole[0] if len(whole) == 1 else _joint(whole)
            sliced = slices(operation) and joint
            for array in operation.outs:
                sources[array.name] = _cut(joint, array.name, sizes[array.name]) if sliced else joint
            every.append(nothing)
            continue
        if whole and slices(operation):
            whole[0] = _cut(whole[0], operation.name, sum(sizes[array.name] for array in operation.outs))
        every.append([Read(n, r, size, part, 0) for r, of in enumerate(whole) for (n, part), size in of.items()])
    return every


def _joint(every: Sequence[Mapping[tuple[str, str], int]]) -> dict[tuple[str, str], int]:
    """The most bytes that are read of each array, or part of one."""
    joint: dict[tuple[str, str], int] = {}
    for sources in every:
        for key, size in sources.items():
            joint[key] = max(size, joint.get(key, 0))
    return joint


def _cut(sources: dict[tuple[str, str], int], part: str, size: int) -> dict[tuple[str, str], int]:
    """What is read where only some bytes of a value are computed."""
    return {key if most <= size else (key[0], part): min(most, size) for key, most in sources.items()}


def _stored(graph: Graph, leaves: Sequence[Sequence[Read]], inside: set[int], group_of: dict[int, int]) -> set[str]:
    """The values that are written to memory: outputs, what nothing reads, and what another kernel reads."""
    stored, read = {*graph.outputs}, set[str]()
    for k, of_operation in enumerate(leaves):
        if k in inside:
            continue
        for leaf in of_operation:
            maker = graph.makers.get(leaf.name)
            read.add(leaf.name)
            if maker is None or group_of.get(maker[0]) != group_of.get(k):
                stored.add(leaf.name)
    results = (array.name for k, op in enumerate(graph.operations) if k not in inside for array in op.outs)
    return stored | {name for name in results if name not in read}


# ------------------------------------------------------------------------------------------- kinds of operations


def _kind(operation: Operation, kind: Kind, arrays: Mapping[str, Array]) -> tuple[str, int]:
    """The kind of an operation, and the number of points that operations beside it in a kernel must have."""
    if not operation.edge.computes or operation.nest.effectful or operation.pinned or operation.opaque:
        return "", 0
    if operation.record.fusion.renames or (kind.is_loop and operation.nest.combine and len(operation.ins) == 1):
        return "renaming", 0
    if kind.is_loop:
        return "loop", max([math.prod(array.shape) for array in operation.outs], default=0)
    if kind.is_reduction:
        return "reduction", math.prod(arrays[operation.ins[0]].shape)
    if kind.is_product:
        return "product", math.prod(operation.outs[0].shape)
    return "", 0


def _sizes(graph: Graph) -> dict[str, int]:
    """Bytes of every array by name."""
    sizes, of_form = dict[str, int](), dict[tuple[tuple[int, ...], str], int]()
    for name, array in graph.arrays.items():
        form = (array.shape, array.dtype)
        if form not in of_form:
            of_form[form] = packed_bytes(math.prod(array.shape), array.dtype)
        sizes[name] = of_form[form]
    return sizes


def mark(kernel: Kernel, arrays: Mapping[str, Array]) -> tuple[object, ...]:
    """A key that is equal for kernels that do the same to arrays of other names."""
    runs, launches, stores, reads, written, again, strides = kernel
    read = [(number, size, *arrays[name][1:]) for name, number, size, _, _ in reads]
    return (runs, launches, stores, written, again, strides, *read)
