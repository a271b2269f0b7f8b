"""A program as compilers run it: what works element by element is fused into what reads it, and is never stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from redistrib.programs.data import Compute, Free, Move, Op, ProgramData, made_by, used_by
from redistrib.programs.inline import inlined
from redistrib.programs.live import peak_bytes
from redistrib.programs.nest import Access, Nest

_Program = TypeVar("_Program", bound=ProgramData)


def fused(program: _Program) -> _Program:
    """The same program with fewer values: for counting what is held, not for running.

    What an operation makes element by element is left out where one more of that kind, or a reduction, reads it and
    nothing else: that one reads in its place what it reads, and computes it on the way. A reshape whose elements stay
    in order, and a transpose that only products read, is another name for what it reads.
    """
    flat = inlined(program)
    makers: dict[str, Compute] = {value.name: op for op in flat.ops if isinstance(op, Compute) for _, value in op.outs}
    readers: dict[str, list[Op]] = {name: [] for name in flat.values}
    for op in flat.ops:
        for name in () if isinstance(op, Free) else dict.fromkeys(used_by(op)):
            readers[name].append(op)
    outputs = {*flat.outputs}
    left_out = {
        name
        for name, op in makers.items()
        if name not in outputs and _is_elementwise(op) and len(op.outs) == 1 and _are_one_loop(readers[name])
    }
    sources: dict[str, tuple[str, ...]] = {}
    ops: list[Op] = []
    for op in flat.ops:
        match op:
            case Compute():
                reads = dict.fromkeys(source for _, name in op.ins for source in sources.get(name, (name,)))
                (made,) = [value.name for value in made_by(op)][:1] or [""]
                other_name = len(reads) == 1 and made not in outputs and _is_another_name(op, readers[made])
                if made in left_out or other_name:
                    sources[made] = tuple(reads)
                else:
                    ops.append(replace(op, ins=tuple((name, name) for name in reads)))
            case Move():
                ops.append(replace(op, value=sources.get(op.value, (op.value,))[0]))
            case Free():
                pass  # what nothing reads any more has ended
            case _:
                ops.append(op)
    return replace(flat, ops=tuple(ops))


def _nest(op: Op) -> Nest | None:
    return op.parts[0].nest if isinstance(op, Compute) and len(op.parts) == 1 else None


def _is_elementwise(op: Op) -> bool:
    """Whether every element that is written comes of one element, or none, of each array that is read."""
    nest = _nest(op)
    if nest is None or nest.combine or not nest.body:
        return False
    written = {name for access in nest.writes for name in access.names}
    once = all(len(dim) == 1 for access in nest.writes for dim in access.dims)
    return once and all(_is_by_element(access) and written.issuperset(access.names) for access in nest.reads)


def _is_by_element(access: Access) -> bool:
    single = all(len(dim) <= 1 for dim in access.dims) and all(extent == 1 for extent in access.extents)
    return single and not access.windows


def _is_reduction(op: Op) -> bool:
    """Whether an operation reads one array, element by element, and makes less of it."""
    nest = _nest(op)
    if nest is None or len(nest.reads) != 1 or not _is_by_element(nest.reads[0]):
        return False
    return all({*access.names} < {*nest.reads[0].names} for access in nest.writes)


def _are_one_loop(readers: list[Op]) -> bool:
    return len(readers) == 1 and (_is_elementwise(readers[0]) or _is_reduction(readers[0]))


def _is_product(op: Op) -> bool:
    nest = _nest(op)
    return nest is not None and bool(nest.combine) and len(nest.reads) == 2


def _is_another_name(op: Compute, readers: list[Op]) -> bool:
    """Whether an operation only sees an array as one of another shape, or of other dimensions for products."""
    nest = _nest(op)
    if nest is None or nest.combine or nest.flops or len(nest.reads) != 1 or len(nest.writes) != 1:
        return False
    read, write = nest.reads[0], nest.writes[0]
    if any(extent > 1 for access in (read, write) for extent in access.extents) or read.windows:
        return False
    same = read.names == write.names
    turned = sorted(read.names) == sorted(write.names)
    return turned and read.dims != write.dims and (same or all(map(_is_product, readers)))


def compiled_peak_bytes(program: ProgramData) -> dict[int, int]:
    """The most bytes that each device holds at once where compilers fuse, by its number in the machine."""
    return peak_bytes(fused(program))
