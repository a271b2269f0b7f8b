"""Factors of a whole graph: dimensions of its inputs and outputs that are cut together, with nothing moved inside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from redistrib.errors import CutError, ProgramError
from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.partitioning.propagate import Propagation
from redistrib.programs.graph import Graph
from redistrib.programs.pullback import Part

_AXIS = "f"


@dataclass(frozen=True)
class Factor:
    """Dimensions that one axis may cut at once.

    Attributes:
        size: parts it has at most: the size of the dimensions.
        ins, outs: for each input and output the dimension; None, whole.
        summed: outputs that are then summands, by number.
        begins: inputs that are then taken for summands, by number: they are carried to an output that is one.
        work: for each operation that is cut the iteration dimension.
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
        graph: operations that may not communicate.
        carried: inputs, by number, that become an output once more: both are cut alike, or both are summands.
    """
    seen: set[tuple[int, int]] = set()
    for number, array in enumerate(graph.inputs):
        for dim, size in enumerate(array.shape):
            if size < 2 or (number, dim) in seen:
                continue
            found = _factor(graph, size, {number: dim}, carried or {})
            if found is not None and not any(place in seen for place in _places(found)):
                seen.update(_places(found))
                yield found


def _places(factor: Factor) -> list[tuple[int, int]]:
    return [(k, dim) for k, dim in enumerate(factor.ins) if dim is not None]


class _SummandPropagation(Propagation):
    """Propagation in which some inputs are summands."""

    begins: Collection[str] = ()

    def _is_summed(self, name: str, axis: str) -> bool:
        return name in self.begins or super()._is_summed(name, axis)


def _factor(graph: Graph, size: int, pins: dict[int, int], carried: Mapping[int, int]) -> Factor | None:
    """What follows from cutting some inputs into `size` parts; None where something would have to move."""
    begins: set[int] = set()
    while True:
        found = _SummandPropagation(graph, Mesh.of({_AXIS: size}))
        found.begins = {graph.inputs[number].name for number in begins}
        try:
            for number, dim in pins.items():
                found.cut_array(graph.inputs[number].name, _AXIS, dim)
            found.spread(_AXIS)
            types, added = _types(found)
        except (CutError, ProgramError):
            return None
        if types is None:
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
            work = {k: cut[_AXIS] for k, cut in enumerate(found.cuts) if cut}
            return Factor(size, tuple(ins), tuple(outs), frozenset(summed), frozenset(begins), work)


def _cut(dist_type: DistType) -> int | None:
    return next((k for k, dim in enumerate(dist_type.dims) if dim.axes), None)


def _types(found: _SummandPropagation) -> tuple[dict[str, DistType] | None, Collection[str]]:
    """Types of values as they are made; None where a reader needs another, and what it reads together with summands."""
    types = {array.name: found.input_type(array.name) for array in found.graph.inputs}
    for name in found.begins:
        types[name] = DistType(types[name].dims, (_AXIS,), "sum")
    for k, operation in enumerate(found.graph.operations):
        nest, carries = operation.nest, found.carries[k]
        groups = range(len(nest.linear)) if carries else ()
        passed = tuple(tuple(axis for axis in carries if carries[axis] == group) for group in groups)
        signature = Part(nest, found.cut(k), passed).signature(found.mesh)
        if any(types[name] != needed for name, needed in zip(operation.ins, signature.ins, strict=True)):
            summed = [group for group in nest.linear if any(types[operation.ins[r]].partial for r in group)]
            return None, {operation.ins[r] for group in summed for r in group}
        types.update({array.name: made for array, made in zip(operation.outs, signature.outs, strict=True)})
    if any(made.partial and made.reduction != "sum" for made in types.values()):
        return None, ()
    return types, ()
