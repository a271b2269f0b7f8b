"""The cuts of a graph: which mesh axes cut which dimensions, and the types that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Self, TypeAlias

from redistrib.lang.mesh import Mesh
from redistrib.lang.types import DistType
from redistrib.programs.ir.graph import Graph, Operation
from redistrib.programs.ir.nest import Access
from redistrib.programs.ir.pullback import ScheduledNest

End: TypeAlias = str | int  # an input of a graph, by name, or an output, by number

_MOST_READERS = 3  # that an error names


class ArrayDim(NamedTuple):
    """A dimension of an array, by the array's name and from 0 on.

    >>> from redistrib import along
    >>> from redistrib.programs.ir.graph import Array, Graph
    >>> graph = Graph((Array("x", (6, 4), "float32"),), (), ("x",))
    >>> list(along("d", {"x": 0}).uneven(graph))  # what the axis d need not divide
    [ArrayDim(array='x', dim=0)]
    """

    array: str
    dim: int


class WorkDim(NamedTuple):
    """An iteration dimension, by its name, of an operation, by its number in the graph.

    >>> from redistrib import nest, work
    >>> from redistrib.programs.ir.graph import Array, Graph, Operation
    >>> product = Operation(nest("ij,jk->ik", (6, 4, 2)), "matmul", ("a", "b"), (Array("out", (6, 2), "float32"),))
    >>> list(work("d", {"matmul": "i"}).uneven(Graph((), (product,), ("out",))))
    [WorkDim(operation=0, dim='i')]
    """

    operation: int
    dim: str


class Choice(NamedTuple):
    """A place where propagation had to choose.

    Attributes:
        operation: the operation.
        axis: the mesh axis.
        taken: the iteration dimension that it cuts; empty for none.
        why: the requested cut, and the reason for the choice.
    """

    operation: str
    axis: str
    taken: str
    why: str


class AlongAxis(NamedTuple):
    """What is decided along an axis.

    Attributes:
        ends: for inputs and outputs that are cut the dimension.
        operations: for every operation what the axis cuts, the group of linear reads that it passes, and how many axes
            cut it and pass it.
    """

    ends: dict[str, int | None]
    operations: list[tuple[str | None, int | None, int, int]]

    def changed(self, before: AlongAxis | None) -> tuple[list[int], list[str]]:
        """The operations, by number, and the inputs and outputs that are decided otherwise; all, where none were."""
        if before is None:
            return [k for k, along in enumerate(self.operations) if along[:2] != (None, None)], [*self.ends]
        if self.operations == before.operations and self.ends == before.ends:
            return [], []
        pairs = enumerate(zip(self.operations, before.operations, strict=True))
        names = {name for name, _ in self.ends.items() ^ before.ends.items()}
        return [k for k, (now, then) in pairs if now != then], sorted(names)


@dataclass
class GraphCuts:
    """The cuts of a graph over a mesh: a schedule in the making, which knows operations by number.

    Attributes:
        graph: the operations.
        mesh: whose axes cut them.
        types: of inputs and outputs that are given; those of others follow.
        ends: for inputs and outputs that are decided the dimension that each axis cuts; those of others follow from the
            cuts of their readers and makers.
        sources: for an array and a needed type, the type of the version to move, where that is not the first; None: the
            nearest is moved, and what depends on no input is computed once more.
        keep: for how many operations a version that was moved is kept; None: to the end.
        cuts: for every operation the axes that cut it, each with the iteration dimension.
        carries: for every operation the axes of summands that pass through it, each with the group of linear reads.
        pins: for inputs the axes that cut them by order of a tactic, each with the dimension; None, left whole.
        wants: the same for outputs.
        constants: arrays that depend on no input, each with the operation that makes it: they are made again where they
            are needed otherwise, and so never moved.
        uneven: for a dimension of an input that is cut unevenly the operations that cut it, by number, each with its
            iteration dimension; the input is whole.
        names_operations: whether tactics cut operations, and not arguments alone.
        order: the axes as tactics came to them; the first is the most major where several cut one dimension.
        choices: where it had to choose.
    """

    graph: Graph
    mesh: Mesh
    types: dict[End, DistType] = field(default_factory=dict)
    ends: dict[End, dict[str, int]] = field(default_factory=dict)
    sources: dict[tuple[str, DistType], DistType] | None = None
    keep: int | None = None
    cuts: list[dict[str, str]] = field(init=False)
    pins: dict[str, dict[str, int | None]] = field(default_factory=dict)
    wants: dict[str, dict[str, int | None]] = field(default_factory=dict)
    uneven: Mapping[ArrayDim, tuple[WorkDim, ...]] = field(default_factory=dict)
    names_operations: bool = False
    order: list[str] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cuts = [{} for _ in self.graph.operations]
        self.carries: list[dict[str, int]] = [{} for _ in self.graph.operations]
        self.arrays = self.graph.arrays
        self.readers, self.maker = self.graph.readers, self.graph.makers
        self.constants: dict[str, int] = {}
        for k, operation in enumerate(self.graph.operations):
            if all(map(self.constants.__contains__, operation.ins)) and _is_cheap(operation):
                self.constants[operation.outs[0].name] = k

    def copy(self) -> Self:
        """The same decisions of the same graph, to be changed."""
        other = copy(self)
        other.cuts = [dict(cuts) for cuts in self.cuts]
        other.carries = [dict(carries) for carries in self.carries]
        other.pins = {name: dict(dims) for name, dims in self.pins.items()}
        other.wants = {name: dict(dims) for name, dims in self.wants.items()}
        other.order, other.choices, other.constants = [*self.order], [*self.choices], {**self.constants}
        other.types, other.ends = {**self.types}, {end: {**at} for end, at in self.ends.items()}
        other.sources = None if self.sources is None else {**self.sources}
        return other

    def kept(self, keep: int | None) -> Self:
        """The same decisions, shared with these, in which moved versions are kept for so many operations."""
        other = copy(self)
        other.keep = keep
        return other

    def agrees_with(self, other: GraphCuts) -> bool:
        """Whether another schedule of the same graph comes to the same program."""
        same = (self.cuts, self.carries, self.ends, self.sources, self.keep)
        return same == (other.cuts, other.carries, other.ends, other.sources, other.keep)

    def clear(self, axes: Sequence[str]) -> None:
        """Undo what is decided along axes."""
        self.sources = {}
        for cuts in chain[dict[str, str] | dict[str, int]](self.cuts, self.carries, self.ends.values()):
            for axis in axes:
                cuts.pop(axis, None)

    # ------------------------------------------------------------------------------------- queries

    def where(self, name: str, axis: str) -> int | None:
        """The dimension of a value that an axis cuts, as it is made; None if none."""
        if name not in self.maker:
            return self.pins.get(name, {}).get(axis)
        k, w = self.maker[name]
        dim = self.cuts[k].get(axis)
        return None if dim is None else position_of(self.graph.operations[k].nest.writes[w], dim)

    def asked(self, name: str, axis: str) -> int | None:
        """The dimension that the readers of a value want cut, of those that have decided; None if they do not agree."""
        dims: set[int | None] = set()
        for k, r in self.readers.get(name, ()):
            if axis in self.cuts[k]:
                dims.add(position_of(self.graph.operations[k].nest.reads[r], self.cuts[k][axis]))
        if axis in self.wants.get(name, {}):
            dims.add(self.wants[name][axis])
        return next(iter(dims)) if len(dims) == 1 else None

    def along(self, axis: str) -> AlongAxis:
        """What is decided along an axis."""
        inputs = {name: dims[axis] for name, dims in self.pins.items() if dims.get(axis) is not None}
        outputs = {name: dims[axis] for name, dims in self.wants.items() if axis in dims}
        pairs = zip(self.cuts, self.carries, strict=True)
        return AlongAxis(
            inputs | outputs,
            [(cuts.get(axis), carries.get(axis), len(cuts), len(carries)) for cuts, carries in pairs],
        )

    def _tile(self, number: int, dim: str) -> int:
        size = self.graph.operations[number].nest.size(dim)
        for axis, cut in self.cuts[number].items():
            if cut == dim:
                size //= self.mesh.axis(axis).size
        return size

    def unequal(self, axis: str, name: str, dim: int, parts: int) -> str:
        """Why an array may not be cut into parts of unequal size: its readers need it otherwise."""
        shape, needs = self.arrays[name].shape, dict[str, list[str]]()
        for number, read in self.readers.get(name, ()) if shape[dim] > 1 else ():
            operation = self.graph.operations[number]
            at = f"{operation.name} ({operation.source})" if operation.source else operation.name
            parted = set(operation.nest.reads[read].dims[dim]) - operation.nest.whole
            needs.setdefault("equal parts of it" if parted else "it whole", []).append(at)
        listed = [
            f"{' and '.join(one)} {'need' if len(one) > 1 else 'needs'} {what}"
            for what, one in ((what, list(dict.fromkeys(names))[:_MOST_READERS]) for what, names in needs.items())
        ]
        why = f" of unequal size, and {'; '.join(listed)}" if listed else ", which do not divide it"
        cut = f"dimension {dim} of {list(shape)} into {parts} parts"
        return f"axis {axis!r} would cut {cut}{why}; cut another, or pad the array"

    # ------------------------------------------------------------------------------------- types

    def cut(self, number: int) -> DistType:
        """How the work of an operation is cut."""
        nest = self.graph.operations[number].nest
        return self.type_of(nest.sizes, {a: nest.position[d] for a, d in self.cuts[number].items()})

    def part(self, number: int) -> ScheduledNest:
        """An operation as it is cut, and as summands pass through it."""
        nest, carries = self.graph.operations[number].nest, self.carries[number]
        carried = tuple(tuple(axis for axis in carries if carries[axis] == g) for g in range(len(nest.linear)))
        return ScheduledNest(nest, self.cut(number), carried if carries else ())

    def decided_type(self, end: End) -> DistType | None:
        """The type of an input or output that is given or decided; None for others."""
        if end in self.types or end not in self.ends:
            return self.types.get(end)
        name = end if isinstance(end, str) else self.graph.outputs[end]
        return self.type_of(self.arrays[name].shape, self.ends[end])

    def start_type(self, name: str) -> DistType:
        """How an input begins."""
        return self.decided_type(name) or self.input_type(name)

    def end_type(self, output: int, maker_type: DistType) -> DistType:
        """How an output ends, of which the maker makes this type."""
        return self.decided_type(output) or self.output_type(self.graph.outputs[output], maker_type)

    def input_type(self, name: str) -> DistType:
        """How an undecided input begins: as a tactic says, and along other axes as all its readers need it."""
        at: dict[str, int] = {}
        pinned = self.pins.get(name, {})
        shape = self.arrays[name].shape
        for axis in self.order:
            dim = pinned[axis] if axis in pinned else self._asked_by_all(name, axis)
            if dim is None:
                continue
            parts = math.prod(self.mesh.axis(a).size for a, d in at.items() if d == dim) * self.mesh.axis(axis).size
            if shape[dim] % parts == 0:
                at[axis] = dim
        return self.type_of(shape, at)

    def _asked_by_all(self, name: str, axis: str) -> int | None:
        for k, _ in self.readers.get(name, ()):
            if axis not in self.cuts[k]:
                return None
        return self.asked(name, axis)

    def output_type(self, name: str, maker_type: DistType) -> DistType:
        """How an undecided output ends: as it is made, but as a tactic says along the axes that it names."""
        requested = self.wants.get(name) or self.pins.get(name) or {}
        at = {
            axis: dim for dim, dim_type in enumerate(maker_type.dims) for axis in dim_type.axes if axis not in requested
        }
        at |= {axis: dim for axis, dim in requested.items() if dim is not None}
        return self.type_of(maker_type.global_shape, at) if requested else DistType(maker_type.dims)

    def type_of(self, shape: Sequence[int], at: Mapping[str, int]) -> DistType:
        """The type of an array that axes cut along dimensions."""
        axes: dict[int, list[str]] = {}
        for axis in reversed(self.order):
            if axis in at:
                axes.setdefault(at[axis], []).append(axis)
        return DistType.cut(shape, axes, self.mesh)


def _is_cheap(operation: Operation) -> bool:
    """Whether the result may be computed again rather than moved: one array, nothing combined for it, no effect."""
    nest = operation.nest
    is_alone = len(operation.outs) == 1 and operation.edge.computes and not operation.pinned
    return is_alone and not nest.combine and not nest.effectful


def cuts_of(form: DistType) -> dict[str, int]:
    """The dimension that each axis cuts in a type."""
    return {axis: number for number, dim in enumerate(form.dims) for axis in dim.axes}


def position_of(access: Access, dim: str) -> int | None:
    """The array dimension that an iteration dimension is a factor of."""
    for k, names in enumerate(access.dims):
        if dim in names:
            return k
    return None
