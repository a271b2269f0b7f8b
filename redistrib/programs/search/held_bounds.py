"""Bounds on the bytes that a device holds: of every schedule the least, and of one schedule the most.

Both ask when values are made and last read, by the numbers of operations, and neither makes a program.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from redistrib.lang.types import DistType
from redistrib.plans.dtypes import packed_bytes
from redistrib.programs.ir.graph import Array, Graph
from redistrib.programs.ir.windows import Held
from redistrib.programs.lower.versions import ReadAt
from redistrib.programs.lower.walk import Lowering, Version
from redistrib.programs.schedule.graph_cuts import End
from redistrib.programs.schedule.propagate import Propagation
from redistrib.programs.search.candidates import Option
from redistrib.programs.search.problem import SearchProblem


def least_held(
    graph: Graph,
    devices: int,
    types: Mapping[End, DistType],
    donated: Collection[str] = (),
    bytes_of: Callable[[int, str], int] = packed_bytes,
    unstored: Collection[str] = (),
) -> tuple[int, int]:
    """Lower bound on the bytes that a device holds at the worst moment, and the operation that runs then.

    Arguments are held to the end, or to their last reader where they are donated, and everything else from its maker
    to its last reader. All devices cut each of them at best, and arguments as their types say.

    Args:
        graph: the graph.
        devices: of the mesh.
        types: of arguments that are given.
        donated: arguments whose memory is free after their last use.
        bytes_of: bytes of so many elements of a type, those of the machine.
        unstored: values that stay inside a kernel.
    """
    operations = graph.operations
    last = last_held(graph)
    last |= dict.fromkeys(graph.outputs, len(operations))
    last |= {array.name: len(operations) for array in graph.inputs if array.name not in donated}
    ends: dict[int, int] = defaultdict(int)
    live = 0
    for array in graph.inputs:
        size = types[array.name].local_size if array.name in types else -(-math.prod(array.shape) // devices)
        held = bytes_of(size, array.dtype)
        live += held
        ends[last.get(array.name, 0)] += held
    begins: dict[int, int] = defaultdict(int)
    for operation in operations:
        for array in operation.outs:
            born = graph.made_at(array.name)
            size = bytes_of(-(-math.prod(array.shape) // devices), array.dtype)
            if array.name not in unstored and born <= (until := last.get(array.name, born)):
                begins[born] += size
                ends[until] += size
    most, moment = live, 0
    for k in range(len(operations)):
        live += begins[k]
        if live > most:
            most, moment = live, k
        live -= ends.pop(k, 0)
    return most, moment


def last_held(graph: Graph) -> dict[str, int]:
    """For every value that an operation reads the operation until which it is kept at the latest."""
    last_moment: dict[str, int] = {}
    for k, operation in enumerate(graph.operations):
        for r, name in enumerate(operation.ins):
            last_moment[name] = max(last_moment.get(name, -1), graph.held_until(k, r))
    return last_moment


def most_held(problem: SearchProblem, decisions: Propagation, options: Sequence[Option]) -> float:
    """Upper bound on the bytes that a device holds in a program of a schedule, however its moves are planned, where
    none run beside operations; infinite where none is known, as of loops and of windows.

    Args:
        problem: the search problem.
        decisions: how everything is cut.
        options: the operations as they are cut.
    """
    if problem.graph.bodies or any(option.windows for option in options):
        return math.inf
    walk = _Lives(decisions, problem, options)
    walk.run()
    return walk.scratch + max(accumulate(walk.changes()))


@dataclass(eq=False)
class _Life(Version):
    """An array in one type, from `born` on.

    Attributes:
        until: the operation whose kernel reads it last.
        renamed: the array in the type whose bytes these are, where it is another name for them.
    """

    until: int = -1
    renamed: _Life | None = None


@dataclass
class _Lives(Lowering[_Life, Option]):
    """A walk over a graph without loops, which notes from when until when arrays are live.

    What is computed inside kernels reads its operands where these run, and a flash kernel all of them from its first
    operation to its last.

    Attributes:
        problem: as in `most_held`.
        options: as in `most_held`.
        scratch: bytes that a move needs at the most; infinite where that is not known.
    """

    problem: SearchProblem
    options: Sequence[Option]
    scratch: float = 0.0

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """For every operation those between which what it reads is live: where it is computed."""
        graph, facts = self.graph, self.problem.facts
        starts: dict[int, int] = {}  # of flash kernels, by their last operation
        for k, end in facts.pass_ends.items():
            starts[end] = min(k, starts.get(end, k))
        spans = [(k, k) for k in range(len(graph.operations))]
        for k, end in facts.pass_ends.items():
            spans[k] = starts[end], end
        kernels = facts.kernels or ()
        for k in reversed(range(len(kernels))):
            if not kernels[k].runs:  # no result of it is one of the graph
                outs = graph.operations[k].outs
                reading = [spans[reader] for array in outs for reader, _ in graph.readers.get(array.name, ())]
                spans[k] = min([k, *[start for start, _ in reading]]), max([end for _, end in reading])
        return spans

    def cut(self, number: int) -> Option:
        return self.options[number]

    def begin(self, array: Array) -> _Life:
        ends = array.name in self.problem.donated and array.name in self.graph.readers
        form = self.problem.moves.shared(self.propagation.start_type(array.name))
        return _Life(form, -1, -1, until=-1 if ends else len(self.graph.operations))

    def operands(self, number: int, cut: Option) -> list[_Life]:
        kernels, until, versions = self.problem.facts.kernels, self.spans[number][1], self.versions
        for name, form in zip(self.graph.operations[number].ins, cut.ins, strict=True):
            life = versions[name][0]
            if life.form is not form:
                life = self.read(name, form, (), ReadAt(number, number, number))
            if life.until < until:
                life.until = until
        for read in kernels[number].reads if kernels is not None else ():
            life = versions[read.name][0]
            if life.until < until:
                life.until = until
        return []  # what reads them is noted

    def compute(self, number: int, cut: Option, read: Sequence[_Life]) -> list[_Life]:
        return [_Life(form, number, number, until=number) for form in cut.outs]

    def end(self, output: int, version: _Life) -> None:
        version.until = len(self.graph.operations)

    def hand_on(self, carry: int, version: _Life) -> None:
        raise AssertionError("a graph without loops has no steps")

    def move(self, key: str, source: _Life, form: DistType, windows: tuple[Held, ...], reading: ReadAt) -> _Life:
        moves, dtype = self.problem.moves, self.graph.arrays[key].dtype
        price, scratch = moves.price(source.form, form, dtype), moves.scratch_at_most(source.form, form, dtype)
        self.scratch = math.inf if price is None or scratch is None else max(self.scratch, scratch)
        source.until = max(source.until, reading.at)
        born = self.spans[reading.reader][0] if reading.reader >= 0 else reading.at
        is_same = (source.form.local_size, source.form.partial) == (form.local_size, form.partial)
        is_name = is_same and price is not None and price.is_local and not price.cost
        return _Life(form, born, reading.until, until=reading.at, renamed=source if is_name else None)

    def changes(self) -> list[int]:
        """By how many bytes more are live at every operation, and after the last, than at the one before."""
        facts, arrays = self.problem.facts, self.graph.arrays
        sizes: dict[tuple[int, str], int] = {}
        changes = [0] * (len(self.graph.operations) + 2)
        for name, lives in self.versions.items():
            for life in reversed(lives):
                if life.renamed is not None:
                    life.renamed.until = max(life.renamed.until, life.until)
            if name in facts.unstored and len(lives) == 1:
                continue
            dtype = arrays[name].dtype
            for life in lives:
                if life.renamed is None:
                    elements = life.form.local_size
                    size = sizes.get((elements, dtype))
                    if size is None:
                        size = sizes[elements, dtype] = self.problem.machine.bytes_of(elements, dtype)
                    changes[max(0, life.born)] += size
                    changes[life.until + 1] -= size
        return changes
