"""What kernels read and write for updates of arrays, and for arrays that are stacked over the steps of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redistrib.programs.ir.graph import Graph, Operation
from redistrib.programs.ir.record import Fusion
from redistrib.programs.time.kernels.kinds import is_loop, is_reduction, slices


class Read(NamedTuple):
    """A stored array that a kernel reads for an operation.

    Attributes:
        name: of the array.
        number: of the operation's read by which it comes in.
        size: bytes of it that are read, on one device that has all of the work.
        part: the slice of it that is read, by name; empty for all of it.
        leaf: its place among all that the operation is computed from.
    """

    name: str
    number: int
    size: int
    part: str
    leaf: int


def updates(operation: Operation, scatters: bool = True) -> bool:
    """Whether it is a scatter or an update of a slice: its first read and its result are one array.

    With `scatters` no scatter is one that `is_loop` takes for a loop.
    """
    is_update = operation.record.fusion.writes_in_place
    return is_update and not operation.opaque and len(operation.outs) == 1 and not is_loop(operation, scatters)


def update_of(
    graph: Graph, number: int, reads: Sequence[Read], sizes: Mapping[str, int], inside: set[int]
) -> tuple[list[Read], int]:
    """The reads and written bytes of an update: of the rows that it touches, and of a copy where one is needed."""
    operation = graph.operations[number]
    old, new = operation.ins[0], operation.outs[0].name
    update = operation.ins[1 if operation.record.fusion is Fusion.UPDATE else 2]
    maker, touched = graph.makers.get(old), min(sizes[update], sizes[new])
    is_filled = maker is not None and maker[0] in inside
    is_made_once = maker is not None and graph.operations[maker[0]].edge.computes
    is_free = is_made_once and len(graph.readers[old]) == 1 and old not in graph.outputs
    written = touched
    if is_filled:
        written = sizes[new] + touched
    elif not is_free:
        written = sizes[new]
    else:
        reads = [read._replace(size=min(read.size, touched)) if read.number == 0 else read for read in reads]
    if is_stacked(graph, new):
        written += 2 * sizes[new]  # no kernel that computes it writes it into the array of all steps
    return list(reads), written


def is_stacked(graph: Graph, name: str) -> bool:
    """Whether a value is a part of an array of the results of all steps of a loop."""
    return any(graph.operations[k].edge.stacks for k, _ in graph.readers.get(name, ()))


def with_copies(
    graph: Graph, number: int, reads: Sequence[Read], sizes: Mapping[str, int], copied: set[str], several: bool
) -> list[Read]:
    """The reads of an operation and, if it is computed alone, of copies of the entries of stacked arrays among them.

    `copied` are the entries that an earlier operation reads so, and gets those of this one.
    """
    operation = graph.operations[number]
    if is_loop(operation, False) or is_reduction(operation) or slices(operation):
        return list(reads)
    beside = several and updates(operation, False)  # the kernel of the copy reads the entry for both
    every = []
    for read in reads:
        maker = graph.makers.get(read.name)
        is_entry = maker is not None and graph.operations[maker[0]].edge.slices
        if is_entry and read.name not in copied:
            copied.add(read.name)
            read = read._replace(size=read.size + (1 if beside else 2) * sizes[read.name])
        every.append(read)
    return every
