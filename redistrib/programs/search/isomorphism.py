"""Isomorphism classes of operations, as those of repeated layers, so that one decision serves a class.

Two operations are of one class if they do the same to arrays of the same shapes, and so do their neighbours a few steps
away. The first and the last of many layers differ from the others where their neighbours are in no layer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from redistrib.cache import Key
from redistrib.programs.ir.graph import Array, Graph, Operation
from redistrib.programs.search.constants import NEAR


@dataclass(frozen=True)
class IsomorphismClasses:
    """Isomorphism classes, as numbers.

    Attributes:
        operations: for every operation the number of its class.
        inputs: for every input the number of its class.
    """

    operations: tuple[int, ...]
    inputs: tuple[int, ...]


def isomorphism_classes(
    graph: Graph,
    tied: Mapping[int, str] = {},
    marks: Mapping[Hashable, Hashable] = {},
    near: int = NEAR,
) -> IsomorphismClasses:
    """The classes of a graph.

    Args:
        graph: the graph.
        tied: outputs, by number, that become an input, by name, when the program runs again.
        marks: a label that must be equal in a class, of operations (by number), inputs (by name) and outputs
            (`("out", number)`).
        near: how far to look.
    """
    operations, arrays = graph.operations, graph.arrays
    number: dict[Hashable, int] = {}

    def coded(key: Hashable) -> int:
        return number.setdefault(key, len(number))

    ends: dict[str, list[int]] = {}
    for k, name in enumerate(graph.outputs):
        ends.setdefault(name, []).append(k)
    read_by, made_from = graph.readers, graph.makers
    fed_by = {name: graph.outputs[k] for k, name in tied.items()}

    colours = [coded((key, marks.get(k))) for k, key in enumerate(operation_keys(operations, arrays))]
    starts = {array.name: coded((array.shape, array.dtype, marks.get(array.name))) for array in graph.inputs}

    def source(name: str) -> Hashable:
        return (colours[made_from[name][0]], made_from[name][1]) if name in made_from else starts[name]

    def uses(name: str) -> Hashable:
        read_uses: list[Hashable] = [(colours[k], r) for k, r in read_by.get(name, ())]
        read_uses += [(-1, starts[tied[k]]) if k in tied else (-2, marks.get(("out", k))) for k in ends.get(name, ())]
        return tuple(sorted(read_uses, key=repr))

    for _ in range(near):
        fresh = [
            coded((colour, tuple(map(source, op.ins)), tuple(uses(array.name) for array in op.outs)))
            for colour, op in zip(colours, operations, strict=True)
        ]
        starts = {
            name: coded((colour, uses(name), source(fed_by[name]) if name in fed_by else None))
            for name, colour in starts.items()
        }
        colours = fresh
    return IsomorphismClasses(_numbered(colours), _numbered([starts[array.name] for array in graph.inputs]))


def operation_keys(operations: Sequence[Operation], arrays: Mapping[str, Array]) -> list[Key]:
    """The kind of each operation without its names: all that a cut of it depends on."""
    keys: dict[tuple[object, ...], Key] = {}  # made once for operations that share the parts of their nests
    every = []
    for operation in operations:
        ins, dtypes = operation.ins, tuple([arrays[name].dtype for name in operation.ins])
        parts = (dtypes, tuple([array.dtype for array in operation.outs]), tuple([ins.index(name) for name in ins]))
        shared = (operation.identity, parts)
        key = keys.get(shared)
        if key is None:
            key = keys[shared] = _operation_key(operation, parts)
        every.append(key)
    return every


def _operation_key(operation: Operation, parts: tuple[object, ...]) -> Key:
    nest = operation.nest
    return Key(
        (
            operation.kind,
            nest.record,
            nest.ranges,
            tuple([(access.dims, access.extents, access.windows) for access in (*nest.reads, *nest.writes)]),
            nest.combine,
            nest.replicated,
            nest.whole,
            nest.linear,
            nest.flops,
            operation.pinned,
            *parts,
        )
    )


def _numbered(colours: Sequence[int]) -> tuple[int, ...]:
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(colour, len(numbers)) for colour in colours)
