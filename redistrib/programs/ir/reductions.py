"""Recognition of reductions: sends and additions that sum values of several devices, on one or on all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.live import renames
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Move, Program

ReductionKind: TypeAlias = Literal["reduce", "allreduce", "sums"]


@dataclass(frozen=True)
class DeviceSum:
    """A sum of values that began on several devices.

    Attributes:
        kind: `"reduce"`, one device has it; `"allreduce"`, all that have a part in it; `"sums"`, some of them.
        values: the summed values, in order of creation.
        devices: that have it, ascending.
        messages: values and sums of them that travelled from device to device.
    """

    kind: ReductionKind
    values: tuple[str, ...]
    devices: tuple[int, ...]
    messages: int


def reductions(program: Program) -> list[DeviceSum]:
    """The sums over several devices that a program computes by sends and additions, in any order.

    Only values on a single device count, each as a whole: a ring that passes chunks on has a reduction for each chunk.

    >>> import numpy as np
    >>> from redistrib import Mesh, ir, nest
    >>> b, one, two = ir.Builder(), ir.Place(Mesh(()), (0,)), ir.Place(Mesh(()), (1,))
    >>> x, y = b.input("x", "[8]", one), b.input("y", "[8]", two)
    >>> add = nest("i,i->i", (8,), name="add", fn=np.add, linear=[(0, 1)])
    >>> reductions(b.build(b.compute(add, x, b.move(y, place=one))))
    [DeviceSum(kind='reduce', values=('x', 'y'), devices=(0,), messages=1)]
    """
    flat = inlined(program)
    terms: dict[str, frozenset[str]] = {value.name: frozenset({value.name}) for value in flat.inputs}
    sent: list[frozenset[str]] = []
    adds: dict[int, bool] = {}
    for op in flat.ops:
        if isinstance(op, Move):
            alone = op.plan is None and len(op.out.place.devices) == 1
            terms[op.out.name] = terms[op.value] if alone else frozenset({op.out.name})
            if alone and not renames(op, flat):
                sent.append(terms[op.value])
        elif isinstance(op, Compute):
            for _, value in op.outs:
                terms[value.name] = frozenset({value.name})
            pair = [terms[name] for _, name in op.ins]
            if len(pair) == 2 and pair[0].isdisjoint(pair[1]) and _is_sum(op, adds):
                terms[op.outs[0][1].name] = pair[0] | pair[1]
    order = {name: k for k, name in enumerate(flat.values)}
    sums = dict.fromkeys(term for term in terms.values() if len(_places(flat, term)) > 1)
    whole = [term for term in sums if not any(term < other for other in sums)]
    device_sums = []
    for term in whole:
        have = {flat.values[name].place.devices[0] for name, summands in terms.items() if summands == term}
        kind: ReductionKind = "reduce" if len(have) == 1 else "allreduce" if have >= _places(flat, term) else "sums"
        messages = sum(message <= term for message in sent)
        device_sums.append(DeviceSum(kind, tuple(sorted(term, key=order.__getitem__)), tuple(sorted(have)), messages))
    return device_sums


def _places(program: Program, names: frozenset[str]) -> set[int]:
    places = [program.values[name].place.devices for name in names]
    return {devices[0] for devices in places if len(devices) == 1}


def _is_sum(op: Compute, cache: dict[int, bool]) -> bool:
    """Whether an operation adds its two operands: it is tried on a single point."""
    nest = op.parts[0].nest
    if len(op.parts) > 1 or len(op.outs) > 1 or nest.body is None or nest.linear != ((0, 1),) or nest.combine:
        return False
    if id(nest) not in cache:
        cache[id(nest)] = _adds(nest)
    return cache[id(nest)]


def _adds(nest: Nest) -> bool:
    small = replace(nest, ranges=tuple((name, over[:1]) for name, over in nest.ranges))
    if any(small.shape(access) != small.shape(small.writes[0]) for access in small.reads) or small.body is None:
        return False
    shape = small.shape(small.writes[0])
    return bool(np.all(small.body(dict(small.ranges), np.full(shape, 3), np.full(shape, 4)) == 7))
