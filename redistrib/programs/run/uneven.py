"""Uneven cuts: a tactic cuts a dimension of `n` elements into `p` parts, and `p` does not divide `n`.

All tiles of a program have one shape. So a tile has `ceil(n / p)` elements, and the last tiles end with elements that
no array has: their tails. Here a graph is rewritten so that a dimension of `p * ceil(n / p)` elements stands where
tiles have tails. It begins with an operation `uneven_tiles`, which cuts tiles out of a whole array, and goes through
all operations that may read tails. `uneven_whole` ends it: it takes the array out of gathered tiles.

A tail may have any values, NaNs included. An element of a result depends on the same element of the operands only,
so tails stay in tails. Where elements are combined, tails are replaced by the identity first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from redistrib.backends.jax.offsets import integers_for
from redistrib.errors import CutError
from redistrib.errors.base import shown
from redistrib.lang.mesh import Mesh
from redistrib.lang.notation import Reduction
from redistrib.plans.dtypes import dtype_of
from redistrib.plans.reduction import identity
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.ir.loops import LoopScope
from redistrib.programs.ir.nest import Access, Nest
from redistrib.programs.ir.record import Tails
from redistrib.programs.rules.equation import At
from redistrib.programs.rules.sums import sum_identity
from redistrib.programs.schedule.graph_cuts import ArrayDim, WorkDim
from redistrib.programs.schedule.tactics import together


class Uneven(NamedTuple):
    """A graph with uneven cuts.

    Attributes:
        graph: the graph; inputs and results have their shapes, and their names where they are inputs.
        tiles: for a dimension of an input the operations that cut it, by number, each with its iteration dimension;
            none where nothing reads the input.
    """

    graph: Graph
    tiles: Mapping[ArrayDim, tuple[WorkDim, ...]]


def with_uneven_cuts(graph: Graph, schedule: Any, mesh: Mesh) -> Uneven:
    """The graph in which the cuts of a schedule that do not divide a dimension are uneven; as it is where all divide.

    Args:
        graph: a traced function.
        schedule: tactics.
        mesh: of the devices.

    Raises:
        CutError: if a tactic names an argument that is not there.
    """
    arrays = {array.name: array for array in graph.inputs}
    places, points = _asked(graph, schedule, mesh)
    rewriting = _Rewriting(graph)
    for (name, dim), parts in places.items():
        size = arrays[name].shape[dim]
        if size > 1 and size % parts:
            rewriting.begin(_Class(size, parts), ArrayDim(name, dim))
    for (number, along), parts in points.items():
        size = graph.operations[number].nest.size(along)
        if size > 1 and size % parts:
            rewriting.spread(_Class(size, parts), [WorkDim(number, along)])
    unread: dict[ArrayDim, tuple[WorkDim, ...]] = {  # whole: a gradient may not read what its function does
        ArrayDim(name, dim): () for (name, dim), parts in places.items()
        if name not in graph.readers and arrays[name].shape[dim] % parts
    }  # fmt: skip
    uneven = rewriting.result(places) if rewriting.dims else Uneven(graph, {})
    cut = {place: tiles for place, tiles in uneven.tiles.items() if tiles}  # others are cut evenly, or refused
    return uneven._replace(tiles=cut | unread)


def _asked(graph: Graph, schedule: Any, mesh: Mesh) -> tuple[dict[ArrayDim, int], dict[WorkDim, int]]:
    """The dimensions of inputs and operations that tactics and annotations cut, each with the number of parts."""
    places: dict[ArrayDim, dict[str, int]] = {}
    points: dict[WorkDim, dict[str, int]] = {}
    for k, operation in enumerate(graph.operations):
        if _is_annotation(operation):
            for axis, _, name in operation.pinned.cut if operation.pinned else ():
                if axis in mesh.names:
                    points.setdefault(WorkDim(k, name), {})[axis] = mesh.axis(axis).size
    ranks = {array.name: len(array.shape) for array in graph.inputs}
    for tactic in chain.from_iterable(together(schedule)):
        if tactic.axis not in mesh.names:
            continue  # refused when it is applied
        size = mesh.axis(tactic.axis).size
        cuts: Any = tactic.uneven(graph)  # of a class of a user, which may give anything
        for cut in cuts if isinstance(cuts, Iterable) else (cuts,):
            if isinstance(cut, ArrayDim):
                if -(rank := ranks.get(cut.array, 0)) <= cut.dim < rank:
                    places.setdefault(ArrayDim(cut.array, cut.dim % rank), {})[tactic.axis] = size
            elif not isinstance(cut, WorkDim):
                why = f"{shown(tactic)} asks for {shown(cut)} as an uneven cut; give ir.ArrayDim or ir.WorkDim"
                raise CutError("", "", "Schedule", why)
            elif 0 <= (k := cut.operation) < len(graph.operations) and cut.dim in graph.operations[k].nest.position:
                points.setdefault(cut, {})[tactic.axis] = size
    return (
        {place: math.prod(axes.values()) for place, axes in places.items()},
        {point: math.prod(axes.values()) for point, axes in points.items()},
    )


def _is_annotation(operation: Operation) -> bool:
    """Whether an operation is one of `rd.cut`, and no sharding constraint, whose axes have sizes."""
    pinned = operation.pinned
    is_free = pinned is not None and pinned.free.issuperset(operation.nest.position)
    return is_free and not any(size for _, size, _ in (pinned.cut if pinned else ()))


@dataclass(frozen=True, eq=False)
class _Class:
    """Dimensions that are cut together: multiples of `size`, each with the tail of as many of its parts."""

    size: int
    parts: int

    def longer(self, size: int) -> int | None:
        """The elements of a dimension with its tails; None if it is no multiple."""
        return None if size % self.size else size // self.size * -(-self.size // self.parts) * self.parts


@dataclass
class _Rewriting:
    """Where tails are, and the operations with them.

    Attributes:
        graph: the operations without tails.
        dims: for every operation the iteration dimensions that have tails, each with its class.
        places: the array dimensions that their makers leave with tails.
    """

    graph: Graph
    dims: dict[int, dict[str, _Class]] = field(default_factory=dict)
    places: dict[ArrayDim, _Class] = field(default_factory=dict)

    def begin(self, kind: _Class, place: ArrayDim) -> None:
        """Cut a dimension of an input unevenly, as far as its readers may have tails."""
        self.spread(kind, self._linked(place))

    def spread(self, kind: _Class, points: Sequence[WorkDim]) -> None:
        """Give tails to iteration dimensions, and to all that are linked with them."""
        waiting = [*points]
        while waiting:
            number, dim = waiting.pop()
            if not self.may_have_tails(number, dim, kind):
                continue
            self.dims.setdefault(number, {})[dim] = kind
            operation = self.graph.operations[number]
            for access, array in zip(operation.nest.writes, operation.outs, strict=True):
                for place in _places_of(access, dim, array.name):
                    self.places[place] = kind
                    waiting += self._linked(place)
            for access, name in zip(operation.nest.reads, operation.ins, strict=True):
                for place in _places_of(access, dim, name):
                    waiting += self._linked(place)

    def _linked(self, place: ArrayDim) -> list[WorkDim]:
        """The iteration dimensions that an array dimension is made from, or read along."""
        name, i = place
        dims = []
        if name in self.graph.makers:
            number, write = self.graph.makers[name]
            dims += [(number, self._major(number, self.graph.operations[number].nest.writes[write], i))]
        for number, read in self.graph.readers.get(name, ()):
            dims += [(number, self._major(number, self.graph.operations[number].nest.reads[read], i))]
        return [WorkDim(number, dim) for number, dim in dims if dim]

    def _major(self, number: int, access: Access, i: int) -> str:
        """The most major factor of an array dimension that has more than one element; empty where there is none."""
        nest = self.graph.operations[number].nest
        return next((name for name in access.dims[i] if nest.size(name) > 1), "")

    def may_have_tails(self, number: int, dim: str, kind: _Class) -> bool:
        """Whether an operation may run on tiles with tails along a dimension."""
        operation, nest = self.graph.operations[number], self.graph.operations[number].nest
        taken = self.dims.get(number, {})
        if dim in taken or kind in taken.values() or kind.longer(nest.size(dim)) is None or dim in nest.whole:
            return False
        if nest.effectful or operation.opaque or self.graph.scopes[number] is not None:
            return False
        if operation.pinned and not _is_annotation(operation):
            return False
        tails = operation.record.tails
        if tails is Tails.NEVER or (dim in nest.indexed and not tails.knows_size):
            return False
        for access in (*nest.reads, *nest.writes):
            for i, names in enumerate(access.dims):
                if dim in names and (access.windows or self._major(number, access, i) != dim):
                    return False
        is_combined = any(dim not in access.names for access in nest.writes)
        return not is_combined or (tails.may_combine and dim in nest.combiner and not nest.replicated)

    # ------------------------------------------------------------------------------------- operations

    def result(self, asked: Collection[ArrayDim]) -> Uneven:
        """The graph with tails."""
        writer, uneven = _Writer(self), {name for name, _ in self.places}
        firsts = {loop.first: loop.stop for loop in self.graph.loops if loop.parent is None}
        for k, operation in enumerate(self.graph.operations):
            for inside in range(k, firsts.get(k, k)):  # what a loop reads from outside is there before it
                for name in self.graph.operations[inside].ins:
                    if name in uneven:
                        writer.version(name, {})
            writer.add(k, operation)
        outputs = tuple(writer.version(name, {}) for name in self.graph.outputs)
        bodies = tuple(_moved(body, writer.numbers) for body in self.graph.bodies)
        tiles: dict[ArrayDim, tuple[WorkDim, ...]] = {}
        for name, dim in asked:
            cutting = ((k, writer.operations[k]) for k in writer.cutting)
            here = ((k, one.nest) for k, one in cutting if one.ins == (name,) and not one.nest.reads[0].dims[dim])
            tiles[ArrayDim(name, dim)] = tuple(WorkDim(k, nest.writes[0].dims[dim][0]) for k, nest in here)
        return Uneven(replace(self.graph, operations=tuple(writer.operations), outputs=outputs, bodies=bodies), tiles)


def _moved(body: LoopScope, numbers: Sequence[int]) -> LoopScope:
    return replace(body, first=numbers[body.first], stop=numbers[body.stop - 1] + 1)


def _places_of(access: Access, dim: str, name: str) -> Iterator[ArrayDim]:
    return (ArrayDim(name, i) for i, names in enumerate(access.dims) if dim in names)


class _Writer:
    """The operations of the new graph, in order."""

    def __init__(self, rewriting: _Rewriting) -> None:
        self.rewriting = rewriting
        self.operations: list[Operation] = []
        self.cutting: list[int] = []  # numbers of those that cut tiles out of a whole array
        self.numbers: list[int] = []
        self.even = rewriting.graph.arrays
        self.arrays = dict(self.even)
        self.names = {operation.name for operation in rewriting.graph.operations}
        self.tails: dict[str, dict[int, _Class]] = {}
        for (name, i), kind in rewriting.places.items():
            self.tails.setdefault(name, {})[i] = kind
        self.versions: dict[tuple[str, frozenset[tuple[int, _Class]]], str] = {}

    def add(self, number: int, operation: Operation) -> None:
        """Add an operation, after those that make the versions of its operands which it reads."""
        dims = self.rewriting.dims.get(number, {})
        nest = operation.nest
        reads = zip(nest.reads, operation.ins, strict=True)
        ins = tuple(self.version(name, _tails(access, dims)) for access, name in reads)
        self.numbers.append(len(self.operations))
        if not dims:
            self.operations.append(replace(operation, ins=ins))
            return
        longer = {dim: int(kind.longer(nest.size(dim)) or 0) for dim, kind in dims.items()}
        combined = {dim for dim in dims if any(dim not in access.names for access in nest.writes)}
        looked_up = nest.reads[0].names if combined and operation.record.tails.knows_size else ()
        masked = combined.difference(looked_up)
        body = nest.body
        if masked:
            assert body is not None
            body = _masking(nest, body, sorted(masked), {dim: nest.size(dim) for dim in masked})
        changed = replace(
            nest,
            ranges=tuple((name, range(longer[name]) if name in longer else over) for name, over in nest.ranges),
            indexed=nest.indexed | masked,
            body=body,
        )
        outs = tuple(
            array._replace(shape=changed.shape(access))
            for access, array in zip(changed.writes, operation.outs, strict=True)
        )
        self.arrays |= {array.name: array for array in outs}
        self.operations.append(replace(operation, nest=changed, ins=ins, outs=outs))

    def version(self, name: str, tails: Mapping[int, _Class]) -> str:
        """The array with tails along these dimensions and no others, made where it is not there."""
        there = self.tails.get(name, {})
        if there == tails:
            return name
        key = (name, frozenset(tails.items()))
        if key not in self.versions:
            extra = {i: kind for i, kind in there.items() if tails.get(i) is not kind}
            lacking = {i: kind for i, kind in tails.items() if there.get(i) is not kind}
            whole = self._whole(name, extra) if extra else name
            self.versions[key] = self._tiles(whole, lacking) if lacking else whole
        return self.versions[key]

    def _whole(self, name: str, dims: Mapping[int, _Class]) -> str:
        array, old = self.arrays[name], self.even[name]
        shape = tuple(old.shape[i] if i in dims else size for i, size in enumerate(array.shape))
        return self._between(False, array, shape, dims, _taken_out(shape))

    def _tiles(self, name: str, dims: Mapping[int, _Class]) -> str:
        array = self.arrays[name]
        shape = tuple(int(dims[i].longer(n) or 0) if i in dims else n for i, n in enumerate(array.shape))
        self.cutting.append(len(self.operations))
        return self._between(True, array, shape, dims, _cut_out(array.shape, sorted(dims)))

    def _between(
        self, cuts: bool, array: Array, shape: tuple[int, ...], dims: Collection[int], body: Callable[..., Any]
    ) -> str:
        """Add an operation that reads dimensions whole, and writes them whole or, where it makes tiles, cut."""
        kind = "uneven_tiles" if cuts else "uneven_whole"
        names = [f"d{i}" for i in range(len(shape))]
        read = tuple(() if i in dims else (name,) for i, name in enumerate(names))
        written = tuple((name,) if cuts or i not in dims else () for i, name in enumerate(names))
        nest = Nest(
            self._new(kind, self.names),
            tuple((name, range(shape[i])) for i, name in enumerate(names) if cuts or i not in dims),
            (Access("a0", read, tuple(array.shape[i] for i in sorted(dims))),),
            (Access("out", written, () if cuts else tuple(shape[i] for i in sorted(dims))),),
            linear=((0,),),
            indexed=frozenset(f"d{i}" for i in dims) if cuts else frozenset(),
            body=body,
            flops=0,
        )  # fmt: skip
        array_out = Array(self._new(f"{array.name}.{'tiles' if cuts else 'whole'}", self.arrays), shape, array.dtype)
        self.arrays[array_out.name] = array_out
        self.operations.append(Operation(nest, kind, (array.name,), (array_out,)))
        self.names.add(nest.name)
        return array_out.name

    def _new(self, name: str, there: Collection[str]) -> str:
        number, unused = 0, name
        while unused in there:
            number += 1
            unused = f"{name}_{number}"
        return unused


def _tails(access: Access, dims: Mapping[str, _Class]) -> dict[int, _Class]:
    return {i: dims[name] for i, names in enumerate(access.dims) for name in names if name in dims}


# ----------------------------------------------------------------------------------------- bodies


def _taken_out(shape: Sequence[int]) -> Callable[..., Any]:
    """A body that takes the front of gathered tiles."""

    def body(at: At, tile: Any) -> Any:
        for i, size in enumerate(shape):
            if tile.shape[i] > size:
                tile = lax.slice_in_dim(tile, 0, size, axis=i)
        return tile

    return body


def _cut_out(shape: Sequence[int], dims: Sequence[int]) -> Callable[..., Any]:
    """A body that cuts a tile out of whole dimensions, with zeros in its tail."""

    def body(at: At, array: Any) -> Any:
        for i in dims:
            count, start = len(at[f"d{i}"]), jnp.asarray(at[f"d{i}"].start)
            first = jnp.minimum(start, max(0, shape[i] - count))
            there = lax.dynamic_slice_in_dim(array, first, min(count, shape[i]), i)
            margins = [(0, count if k == i else 0) for k in range(array.ndim)]
            array = lax.dynamic_slice_in_dim(jnp.pad(there, margins), start - first, count, i)
        return array

    return body


def _masking(nest: Nest, run: Callable[..., Any], dims: Sequence[str], sizes: Mapping[str, int]) -> Callable[..., Any]:
    """A body that replaces tails by the identity of the reduction before it combines elements."""

    def body(at: At, *tiles: Any) -> Any:
        return run(at, *(masked(at, access, tile) for access, tile in zip(nest.reads, tiles, strict=True)))

    def masked(at: At, access: Access, tile: Any) -> Any:
        for i, names in enumerate(access.dims):
            for dim in [name for name in names if name in dims]:
                step = math.prod(len(at[name]) for name in names[names.index(dim) + 1 :])
                wide = integers_for(max(sizes[dim], tile.shape[i]))
                numbers = lax.broadcasted_iota(wide, tile.shape, i) // step + jnp.asarray(at[dim].start)
                tile = jnp.where(numbers < sizes[dim], tile, _identity(nest.combiner[dim], tile.dtype))
        return tile

    return body


def _identity(reduction: str, dtype: Any) -> Any:
    if reduction == "sum":
        return sum_identity(dtype)
    kind: Reduction = reduction  # type: ignore[assignment]  # checked by the nest
    return jnp.asarray(identity(kind, dtype_of(str(dtype))))
