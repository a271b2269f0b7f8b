"""Arrays stacked over layers as one array for each run of layers, and the operations on them as one for each run.

So a stage holds the weights of its layers, their gradients and the state of the optimizer for them, and updates these
alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

import jax

from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.value import fresh
from redistrib.programs.rules.equation import EquationBody, Primitive
from redistrib.programs.stages.runs import GraphInRuns, bounds_of, combined, operation, resized, sliced

_COMBINED = {"sum": jax.lax.add_p, "max": jax.lax.max_p, "min": jax.lax.min_p}


class Pieces(NamedTuple):
    """An argument or a result of a function, as arrays of the program.

    Attributes:
        names: of the arrays; one where it is not cut.
        dim: the dimension that is cut.
        bounds: the first index along it of each array, and the one after the last.
    """

    names: tuple[str, ...]
    dim: int = 0
    bounds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class GraphInParts:
    """A graph in which arrays stacked over layers are in parts.

    Attributes:
        graph: the operations.
        inputs, outputs: of the function, as those of the graph.
    """

    graph: Graph
    inputs: tuple[Pieces, ...]
    outputs: tuple[Pieces, ...]


def with_parts(
    runs: GraphInRuns, count: int, whole_inputs: Collection[str], whole_outputs: Collection[int]
) -> GraphInParts:
    """Cut the arrays that runs read and make, and all that is computed element by element from them or for them.

    An operation is cut along an iteration dimension that runs over the layers. Where it combines the layers, its parts
    are combined afterwards. An operation that cannot be cut so reads the parts joined.

    Args:
        runs: the graph, its scans in runs.
        count: runs of each scan.
        whole_inputs: names of inputs that stay whole.
        whole_outputs: numbers of outputs that do.
    """
    return _Parts(runs, count, {*whole_inputs}).result(whole_outputs)


class _Parts:
    """The parts of the arrays of a graph.

    Attributes:
        dims: for every array that is cut the dimension.
        parts: for every array that is made in parts the names of these.
        cut: parts of other arrays, by name, dimension and number.
        joined: for an array of another name, or one that is made in parts and was joined since, its name.
    """

    def __init__(self, runs: GraphInRuns, count: int, whole: set[str]) -> None:
        self.runs, self.graph, self.count, self.whole = runs, runs.graph, count, whole
        self.arrays = {**self.graph.arrays}
        self.taken = set(self.arrays)
        self.dims: dict[str, int] = {name: 0 for name, _ in runs.entries.values() if name not in whole}
        self.dims |= dict.fromkeys([*runs.stacks, *self._unstacked()], 0)
        self.parts: dict[str, list[str]] = {}
        self.cut: dict[tuple[str, int, int], str] = {}
        self.joined: dict[str, str] = {}
        self.operations: list[Operation] = []

    def _unstacked(self) -> Iterator[str]:
        """The weights that unrolled layers read."""
        for name in sorted(self.runs.unstacked) if self.count > 1 else ():
            if name in self.arrays and name not in self.whole and self.arrays[name].shape[0] >= self.count:
                yield name

    def result(self, whole_outputs: Collection[int]) -> GraphInParts:
        self._find()
        inputs: list[Array] = []
        for array in self.graph.inputs:
            pieces = self._new_parts(array) if array.name in self.dims else [array]
            inputs += pieces
        for op in self.graph.operations:
            self._add(op)
        cut = [name in self.parts and k not in whole_outputs for k, name in enumerate(self.graph.outputs)]
        ends = [
            self._pieces(name) if is_cut else Pieces((self._whole(name),))
            for name, is_cut in zip(self.graph.outputs, cut, strict=True)
        ]
        graph = Graph(tuple(inputs), tuple(self.operations), tuple(name for end in ends for name in end.names)).used()
        return GraphInParts(graph, tuple(self._pieces(array.name) for array in self.graph.inputs), tuple(ends))

    def _pieces(self, name: str) -> Pieces:
        if name not in self.parts:
            return Pieces((name,))
        return Pieces(tuple(self.parts[name]), self.dims[name], tuple(self._bounds(name)))

    def _bounds(self, name: str) -> list[tuple[int, int]]:
        return bounds_of(self.arrays[name].shape[self.dims[name]], self.count)

    # ------------------------------------------------------------------------------------------ what is cut

    def _find(self) -> None:
        """Let every operation that reads or makes an array in parts cut all its arrays along the layers."""
        waiting = [*self.dims]
        touching: dict[str, list[Operation]] = {}
        for op in self.graph.operations:
            for name in (*op.ins, *(array.name for array in op.outs)):
                touching.setdefault(name, []).append(op)
        while waiting:
            for op in touching.get(waiting.pop(), ()):
                along = self._along(op)
                for access, name in _accesses(op) if along else ():
                    dim = _dim_of(access, along)
                    if dim is not None and name not in self.dims and name not in self.whole:
                        self.dims[name] = dim
                        waiting.append(name)

    def _along(self, op: Operation) -> str:
        """The iteration dimension along which an operation is cut into parts; empty where it is not."""
        nest = op.nest
        if op.pinned or op.opaque or nest.effectful or op.kind == "scan":
            return ""
        cut = {access.dims[self.dims[name]] for access, name in _accesses(op) if name in self.dims}
        if len(cut) != 1 or len(next(iter(cut))) != 1:
            return ""
        ((along,),) = cut
        if along in nest.whole or nest.size(along) < self.count:
            return ""
        is_plain = all(along not in access.names or _dim_of(access, along) is not None for access, _ in _accesses(op))
        lacking = [w for w, access in enumerate(nest.writes) if along not in access.names]
        is_combined = all(w in nest.replicated or nest.combiner.get(along) in _COMBINED for w in lacking)
        return along if is_plain and is_combined else ""

    # ------------------------------------------------------------------------------------------ arrays

    def _new_parts(self, array: Array) -> list[Array]:
        """New arrays for the parts of one that is made in parts."""
        dim, bounds = self.dims[array.name], self._bounds(array.name)
        sizes = [last - first for first, last in bounds]
        pieces = [resized(array, fresh(f"{array.name}.run{k}", self.taken), dim, size) for k, size in enumerate(sizes)]
        self.arrays |= {part.name: part for part in pieces}
        self.parts[array.name] = [part.name for part in pieces]
        return pieces

    def _whole(self, name: str) -> str:
        """The name of an array, its parts joined."""
        if name in self.parts and name not in self.joined:
            parts = [self.arrays[part] for part in self.parts[name]]
            out = self.arrays[name]._replace(name=fresh(f"{name}.joined", self.taken))
            self.operations.append(operation(jax.lax.concatenate_p, {"dimension": self.dims[name]}, parts, out))
            self.joined[name] = out.name
        return self.joined.get(name, name)

    def _part(self, name: str, dim: int, number: int) -> str:
        """The name of one part of an array along a dimension."""
        if name in self.parts and self.dims[name] == dim:
            return self.parts[name][number]
        if (name, dim, number) not in self.cut:
            array, out = self.arrays[name], fresh(f"{name}.run{number}", self.taken)
            first, last = bounds_of(array.shape[dim], self.count)[number]
            self.operations.append(sliced(array._replace(name=self._whole(name)), out, dim, first, last))
            self.cut[name, dim, number] = out
        return self.cut[name, dim, number]

    # ------------------------------------------------------------------------------------------ operations

    def _add(self, op: Operation) -> None:
        along = self._along(op)
        if along:
            self._in_parts(op, along)
        elif not (self._sliced(op) or self._concatenated(op)):
            self.operations.append(replace(op, ins=tuple(map(self._whole, op.ins))))

    def _sliced(self, op: Operation) -> bool:
        """Take a slice along the layers from the part that it lies in."""
        stretch = _stretch_of(op)
        if stretch is None or op.ins[0] not in self.parts or self.dims[op.ins[0]] != 0:
            return False
        (name,), (out,), (first, last) = op.ins, op.outs, stretch
        for part, (low, high) in zip(self.parts[name], self._bounds(name), strict=True):
            if (low, high) == (first, last):
                self.joined[out.name] = part
                return True
            if low <= first and last <= high:
                self.operations.append(sliced(self.arrays[part], out.name, 0, first - low, last - low))
                return True
        return False

    def _concatenated(self, op: Operation) -> bool:
        """Join the operands of a concatenation along the layers part by part."""
        body, out = op.nest.body, op.outs[0] if op.outs else None
        if op.kind != "concatenate" or out is None or out.name not in self.dims or not isinstance(body, Primitive):
            return False
        dim = self.dims[out.name]
        ends = [0, *accumulate(self.arrays[name].shape[dim] for name in op.ins)]
        bounds = self._bounds(out.name)
        if body.equation.params["dimension"] != dim or not {last for _, last in bounds} <= {*ends}:
            return False
        names = []
        for number, (first, last) in enumerate(bounds):
            operands = op.ins[ends.index(first) : ends.index(last)]
            if len(operands) == 1:
                names.append(self._whole(operands[0]))
                continue
            part = resized(out, fresh(f"{out.name}.run{number}", self.taken), dim, last - first)
            self.arrays[part.name] = part
            arrays = [self.arrays[name]._replace(name=self._whole(name)) for name in operands]
            self.operations.append(operation(jax.lax.concatenate_p, {"dimension": dim}, arrays, part))
            names.append(part.name)
        self.parts[out.name] = names
        return True

    def _in_parts(self, op: Operation, along: str) -> None:
        bounds = bounds_of(op.nest.size(along), self.count)
        pieces: list[list[Array]] = []
        for access, array in zip(op.nest.writes, op.outs, strict=True):
            if along in access.names:
                pieces.append(self._new_parts(array))
            else:
                pieces.append(
                    [array._replace(name=fresh(f"{array.name}.run{k}", self.taken)) for k in range(self.count)]
                )
        for number, (first, last) in enumerate(bounds):
            ins = tuple(
                name if dim is None else self._part(name, dim, number)
                for name, dim in (
                    (self._whole(name) if along not in access.names else name, _dim_of(access, along))
                    for access, name in zip(op.nest.reads, op.ins, strict=True)
                )
            )
            outs = tuple(parts[number] for parts in pieces)
            nest = replace(_stretch(op.nest, along, first, last), name=outs[0].name)
            self.operations.append(replace(op, nest=nest, ins=ins, outs=outs))
        for w, (access, array) in enumerate(zip(op.nest.writes, op.outs, strict=True)):
            if along not in access.names:
                self._combine(op.nest, w, along, pieces[w], array)

    def _combine(self, nest: Nest, write: int, along: str, parts: Sequence[Array], total: Array) -> None:
        """Combine the parts of a result over the layers."""
        if write in nest.replicated:
            self.joined[total.name] = parts[0].name
            return
        self.operations += combined(_COMBINED[nest.combiner[along]], parts, total, self.taken)


def _stretch_of(op: Operation) -> tuple[int, int] | None:
    """What a slice takes along the first dimension; None for a slice along others, and for other operations."""
    body = op.nest.body
    if op.kind != "slice" or not isinstance(body, EquationBody):
        return None
    params, shape = body.equation.params, body.equation.ins[0].shape
    starts, limits = params["start_indices"], params["limit_indices"]
    is_plain = not params["strides"] or {*params["strides"]} == {1}
    if not shape or not is_plain or any(starts[1:]) or tuple(limits[1:]) != tuple(shape[1:]):
        return None
    return starts[0], limits[0]


def _accesses(op: Operation) -> list[tuple[Access, str]]:
    """Every access of an operation with the array."""
    names = (*op.ins, *(array.name for array in op.outs))
    return list(zip((*op.nest.reads, *op.nest.writes), names, strict=True))


def _dim_of(access: Access, along: str) -> int | None:
    """The dimension that runs along an iteration dimension, one element for each point; None if none does."""
    for dim, names in enumerate(access.dims):
        if names == (along,) and (not access.windows or access.windows[dim] == 1):
            return dim
    return None


def _stretch(nest: Nest, along: str, first: int, last: int) -> Nest:
    """A nest on a stretch of an iteration dimension."""
    over = nest.ranges[nest.position[along]][1]
    part = over[first:last] if along in nest.indexed else over[: last - first]
    return replace(nest, ranges=tuple((name, part if name == along else size) for name, size in nest.ranges))
