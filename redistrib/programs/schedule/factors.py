"""Factors of a graph: dimensions of its inputs and outputs that one axis can cut together without a move inside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from redistrib.errors import CutError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.graph import Graph
from redistrib.programs.ir.pullback import ScheduledNest
from redistrib.programs.ir.windows import slides
from redistrib.programs.schedule.graph_cuts import AlongAxis
from redistrib.programs.schedule.propagate import Propagation

_AXIS = "f"


@dataclass(frozen=True)
class Factor:
    """Dimensions that one axis can cut together.

    Attributes:
        size: of the dimensions, and so the most parts.
        ins, outs: for each input and output the dimension; None: whole.
        summed: numbers of the outputs that are partial sums under this cut.
        begins: numbers of the inputs that are partial sums under this cut: carried values that end as partial sums.
        work: for each cut operation the iteration dimension.
    """

    size: int
    ins: tuple[int | None, ...]
    outs: tuple[int | None, ...]
    summed: frozenset[int]
    begins: frozenset[int]
    work: Mapping[int, str]


def factors(graph: Graph, carried: Mapping[int, int] | None = None) -> Iterator[Factor]:
    """The factors of a graph, each dimension in one at most.

    Args:
        graph: operations without moves between them.
        carried: for inputs of a loop's body, by number, the output that is the input of the next step: both have one
            cut, or both are partial sums.
    """
    seen: set[tuple[int, int]] = set()
    for number, array in enumerate(graph.inputs):
        for dim, size in enumerate(array.shape):
            if size < 2 or (number, dim) in seen:
                continue
            propagation = _factor(graph, size, {number: dim}, carried or {})
            if propagation is not None and not any(place in seen for place in _places(propagation)):
                seen.update(_places(propagation))
                yield propagation


def _places(factor: Factor) -> list[tuple[int, int]]:
    return [(k, dim) for k, dim in enumerate(factor.ins) if dim is not None]


class _SummandPropagation(Propagation):
    """Propagation in which some inputs are partial sums, and zeros are where they are added to others."""

    begins: Collection[str] = ()

    def along(self, axis: str) -> AlongAxis:
        along = super().along(axis)
        return along._replace(ends=along.ends | dict.fromkeys(self.begins))

    def is_summed(self, name: str, axis: str) -> bool:
        return name in self.begins or super().is_summed(name, axis)

    def _may_be_summed(self, name: str, axis: str) -> bool:
        return self.is_summed(name, axis) or _is_zero(self, name)

    def _is_carried_by_all(self, name: str) -> bool:
        """Whether all readers of a value are linear in it: where nothing moves, summands pass whatever their size."""
        linear = (
            any(r in group for group in self.graph.operations[k].nest.linear) for k, r in self.readers.get(name, ())
        )
        return name not in self.graph.outputs and all(linear)


def _factor(graph: Graph, size: int, pins: dict[int, int], carried: Mapping[int, int]) -> Factor | None:
    """The factor of some dimensions of inputs; None if a cut of them needs a move inside the graph."""
    begins: set[int] = set()
    while True:
        propagation = _SummandPropagation(graph, Mesh.of({_AXIS: size}))
        propagation.begins = {graph.inputs[number].name for number in begins}
        try:
            for number, dim in pins.items():
                propagation.cut_array(graph.inputs[number].name, _AXIS, dim)
            propagation.spread(_AXIS)
            types, added = _types(propagation)
        except (CutError, ProgramError):
            return None
        if types is None:
            requested = _asked(propagation, pins, carried)
            if requested:
                pins = pins | requested
                continue
            more = {k for k in carried if k not in pins and graph.inputs[k].name in added} - begins
            if not more:
                return None
            begins |= more
            continue
        ins = [_cut(types[array.name]) for array in graph.inputs]
        outs = [_cut(types[name]) for name in graph.outputs]
        summed = {k for k, name in enumerate(graph.outputs) if types[name].partial}
        changed = False
        for number, output in carried.items():
            if output in summed:
                changed |= number not in begins
                begins.add(number)
            elif ins[number] != outs[output]:
                if ins[number] is not None or number in pins:
                    return None
                pins, changed = {**pins, number: int(outs[output] or 0)}, True
            if (output in summed) != (number in begins) or (number in begins and number in pins):
                return None
        if not changed:
            work = {k: cut[_AXIS] for k, cut in enumerate(propagation.cuts) if cut}
            return Factor(size, tuple(ins), tuple(outs), frozenset(summed), frozenset(begins), work)


def _asked(propagation: Propagation, pins: Mapping[int, int], carried: Collection[int]) -> dict[int, int]:
    """The inputs that operations need cut, of those of which nothing is said yet, with the dimension."""
    requested = {}
    for number, array in enumerate(propagation.graph.inputs):
        dim = propagation.asked(array.name, _AXIS)
        if number not in pins and number not in carried and dim is not None:
            requested[number] = dim
    return requested


def _cut(dist_type: DistType) -> int | None:
    return next((k for k, dim in enumerate(dist_type.dims) if dim.axes), None)


def _is_zero(propagation: Propagation, name: str) -> bool:
    """Whether all elements of a value are zero, so that it is its own partial sum."""
    maker = propagation.maker.get(name)
    return maker is not None and propagation.graph.operations[maker[0]].nest.fills == "sum"


def _types(propagation: _SummandPropagation) -> tuple[dict[str, DistType] | None, Collection[str]]:
    """The type of every value, and an empty collection.

    If an operation needs another type of a value, None, and the operands of that operation which are added to a partial
    sum: a factor exists only if these are partial sums too.
    """
    types = {array.name: propagation.input_type(array.name) for array in propagation.graph.inputs}
    for name in propagation.begins:
        types[name] = DistType(types[name].dims, (_AXIS,), "sum")
    for k, operation in enumerate(propagation.graph.operations):
        nest, carries = operation.nest, propagation.carries[k]
        groups = range(len(nest.linear)) if carries else ()
        passed = tuple(tuple(axis for axis in carries if carries[axis] == group) for group in groups)
        if any(slides(access, propagation.cuts[k].values()) for access in nest.reads):
            return None, ()
        signature = ScheduledNest(nest, propagation.cut(k), passed).signature(propagation.mesh)
        if any(
            types[name] != needed and not (_is_zero(propagation, name) and types[name] == DistType(needed.dims))
            for name, needed in zip(operation.ins, signature.ins, strict=True)
        ):
            summed = [group for group in nest.linear if any(types[operation.ins[r]].partial for r in group)]
            return None, {operation.ins[r] for group in summed for r in group}
        types.update(
            {array.name: written_type for array, written_type in zip(operation.outs, signature.outs, strict=True)}
        )
    if any(written_type.partial and written_type.reduction != "sum" for written_type in types.values()):
        return None, ()
    return types, ()
