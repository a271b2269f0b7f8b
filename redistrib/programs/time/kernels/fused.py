"""A program as compilers run it: element-wise operations are fused into their readers, and never stored.

The rules are those of XLA for CPUs, each of which it follows for every program:

- A loop is a chain of element-wise operations, with transposes, slices and look-ups among them.
- Two operations that compute the same become one.
- A reduction computes its operand on the way, if nothing else reads that and the reduction sums over its last
  dimension.
- Loops recompute their operands instead of reading them from memory, if loops alone read them: a cheap operation in
  every loop that reads it, a costly one (an exponential, a quotient) only if one loop does.
- A product needs the dimensions that it sums over side by side in each operand. An operand that has them elsewhere is
  copied first, unless both operands have at most one dimension of each kind.
- Hashes of random numbers are stored.
- A reshape whose elements stay in order is another name for its operand, and so is a transpose of a matrix that
  products alone read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import TypeVar

from redistrib.programs.ir.data import Call, Compute, Loop, Move, Op, ProgramData, made_by, used_by
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.primitives import COPY
from redistrib.programs.ir.record import Fusion
from redistrib.programs.ir.value import Value, fresh

_Program = TypeVar("_Program", bound=ProgramData)


def fused(program: _Program) -> _Program:
    """The same program with fewer values, and with copies that products ask for: to count bytes, not to run."""
    flat = _copying(_once(inlined(program)))
    readers: dict[str, list[Op]] = {name: [] for name in flat.values}
    for op in flat.ops:
        for name in dict.fromkeys(used_by(op)):
            readers[name].append(op)
    left_out = _left_out(flat, readers)
    outputs = {*flat.outputs}
    sources: dict[str, tuple[str, ...]] = {}
    ops: list[Op] = []
    for op in flat.ops:
        match op:
            case Compute():
                reads = dict.fromkeys(source for _, name in op.ins for source in sources.get(name, (name,)))
                (result,) = [value.name for value in made_by(op)][:1] or [""]
                other_name = len(reads) == 1 and result not in outputs and _is_another_name(op, readers.get(result, []))
                if result in left_out or other_name:
                    sources[result] = tuple(reads)
                else:
                    ops.append(replace(op, ins=tuple((name, name) for name in reads)))
            case Move():
                ops.append(replace(op, value=sources.get(op.value, (op.value,))[0]))
            case Loop():
                ins = tuple(sources.get(name, (name,))[0] for name in op.ins)
                condition = None if op.condition is None else fused(op.condition)
                ops.append(replace(op, ins=ins, program=fused(op.program), condition=condition))
            case Call():
                pass  # values without readers have ended, and calls are inlined
    return replace(flat, ops=tuple(ops))


def _once(flat: _Program) -> _Program:
    """The program without operations that repeat an earlier one."""
    outputs = {*flat.outputs}
    same: dict[str, str] = {}
    seen: dict[Hashable, str] = {}
    ops: list[Op] = []
    for op in flat.ops:
        nest = _nest(op)
        if isinstance(op, Compute):
            op = replace(op, ins=tuple((array, same.get(name, name)) for array, name in op.ins))
            if nest is not None and nest.body is not None and not nest.effectful and op.ins and len(op.outs) == 1:
                result = op.outs[0][1]
                computation = (nest.ranges, nest.reads, nest.writes, nest.combine, nest.body, op.parts[0].cut)
                first = seen.setdefault((computation, op.ins, op.place, result.type), result.name)
                if first != result.name and result.name not in outputs:
                    same[result.name] = first
                    continue
        elif isinstance(op, Move):
            op = replace(op, value=same.get(op.value, op.value))
        elif isinstance(op, Loop):
            op = replace(op, ins=tuple(same.get(name, name) for name in op.ins))
        ops.append(op)
    return replace(flat, ops=tuple(ops))


def _left_out(flat: ProgramData, readers: dict[str, list[Op]]) -> set[str]:
    """The values that are not stored, found from the end: the kernel of a value's readers is known before."""
    outputs = {*flat.outputs}
    left_out: set[str] = set()
    summed: set[str] = set()  # operations computed inside a reduction
    stored: dict[str, set[int]] = {}  # for values that are not stored, the operations that compute them

    def computed_by(name: str) -> set[int]:
        return {number for op in readers[name] for number in _made_in(op, left_out, stored)}

    for op in reversed(flat.ops):
        if not isinstance(op, Compute) or len(op.outs) != 1 or not is_loop(op):
            continue
        name = op.outs[0][1].name
        if name in outputs or not readers[name]:
            continue
        inside = [
            _is_reduction(reader) or any(value.name in summed for value in made_by(reader)) for reader in readers[name]
        ]
        if len(inside) == 1 and inside[0]:
            summed.add(name)
        elif any(inside) or not all(map(is_loop, readers[name])):
            continue
        if _is_costly(op) and len(computed_by(name)) > 1:
            continue
        stored[name] = computed_by(name)
        left_out.add(name)
    return left_out


def _made_in(op: Op, left_out: set[str], stored: dict[str, set[int]]) -> Iterator[int]:
    """The operations that are carried out to carry out one."""
    names = [value.name for value in made_by(op)]
    if names and names[0] in left_out:
        yield from stored[names[0]]
    else:
        yield id(op)


def _copying(flat: _Program) -> _Program:
    """The program with a copy of every operand that a product needs in another order."""
    ops: list[Op] = []
    copies: dict[tuple[str, tuple[int, ...]], Value] = {}
    taken = {*flat.values}
    for op in flat.ops:
        if isinstance(op, Compute) and is_product(op):
            ins = []
            for (array, name), order in zip(op.ins, _orders(op), strict=True):
                if order is None:
                    ins.append((array, name))
                    continue
                if (name, order) not in copies:
                    copy = replace(flat.values[name], name=fresh(f"{name}.copied", taken))
                    copies[name, order] = copy
                    idle = tuple(replace(part, nest=replace(part.nest, flops=0)) for part in op.parts)
                    ops.append(
                        replace(op, name=COPY, kind=COPY, parts=idle, ins=((array, name),), outs=((array, copy),))
                    )
                ins.append((array, copies[name, order].name))
            op = replace(op, ins=tuple(ins))
        ops.append(op)
    return replace(flat, ops=tuple(ops))


def _orders(op: Compute) -> list[tuple[int, ...] | None]:
    """For both operands of a product the order in which their dimensions are needed, None where they have it."""
    nest = op.parts[0].nest
    (left, right), out = (access.names for access in nest.reads), nest.writes[0].names
    both = {*left} & {*right}
    orders: list[tuple[int, ...] | None] = []
    plain = True
    for dims, sums_last in ((left, True), (right, False)):
        batch = [k for k, name in enumerate(dims) if name in both and name in out]
        free = [k for k, name in enumerate(dims) if name not in both]
        sums = [k for k, name in enumerate(dims) if name in both and name not in out]
        plain = plain and len(free) <= 1 and len(sums) <= 1 and batch == [*range(len(batch))]
        order = (*batch, *free, *sums) if sums_last else (*batch, *sums, *free)
        orders.append(None if order == (*range(len(dims)),) else order)
    return [None, None] if plain else [order if len(order or ()) > 2 else None for order in orders]


def _nest(op: Op) -> Nest | None:
    if not isinstance(op, Compute) or len(op.parts) != 1 or op.record.fusion is Fusion.ALONE:
        return None
    return op.parts[0].nest


def _is_elementwise(op: Op) -> bool:
    """Whether every written element depends on at most one element of each operand."""
    nest = _nest(op)
    if nest is None or nest.combine or nest.effectful or not nest.body:
        return False
    written = {name for access in nest.writes for name in access.names}
    once = all(len(dim) == 1 for access in nest.writes for dim in access.dims)
    return once and all(is_by_element(access) and written.issuperset(access.names) for access in nest.reads)


def is_by_element(access: Access) -> bool:
    """Whether a point touches one element: no dimension is made of several, is read whole, or has windows."""
    single = all(len(dim) <= 1 for dim in access.dims) and all(extent == 1 for extent in access.extents)
    return single and not access.windows


def _is_reduction(op: Op) -> bool:
    """Whether an operation reads one array, element by element, and makes less of it, its last dimension included."""
    nest = _nest(op)
    if nest is None or len(nest.reads) != 1 or not is_by_element(nest.reads[0]):
        return False
    names = nest.reads[0].names
    last = next((name for name in reversed(names) if nest.size(name) > 1), "")
    return all({*access.names} < {*names} and last not in access.names for access in nest.writes)


def is_loop(op: Op) -> bool:
    """Whether an operation is part of loops."""
    if not isinstance(op, Compute) or op.record.fusion.is_alone:
        return False
    return op.record.fusion.moves or op.record.fusion is Fusion.LOOKUP or _is_elementwise(op)


def _is_costly(op: Compute) -> bool:
    nest, fusion = _nest(op), op.record.fusion
    is_moved = fusion.moves or fusion is Fusion.LOOKUP
    return nest is not None and (nest.flops > 1 or fusion is Fusion.COSTLY) and not is_moved


def is_product(op: Op) -> bool:
    """Whether an operation is a product of two arrays, summed."""
    nest = _nest(op)
    if nest is None or not nest.combine or len(nest.reads) != 2 or len(nest.writes) != 1:
        return False
    accesses = (*nest.reads, *nest.writes)
    single = all(len(dim) == 1 for access in accesses for dim in access.dims)
    return single and {*nest.writes[0].names} < {*nest.reads[0].names, *nest.reads[1].names}


def _is_another_name(op: Compute, readers: list[Op]) -> bool:
    """Whether an operation moves nothing: it gives the array another shape, or transposes it for products alone."""
    nest = _nest(op)
    if nest is None or nest.combine or nest.effectful or nest.flops or len(nest.reads) != 1 or len(nest.writes) != 1:
        return False
    read, write = nest.reads[0], nest.writes[0]
    if any(extent > 1 for access in (read, write) for extent in access.extents) or read.windows:
        return False
    same = read.names == write.names
    turned = sorted(read.names) == sorted(write.names)
    return turned and read.dims != write.dims and (same or (len(read.dims) == 2 and all(map(is_product, readers))))
