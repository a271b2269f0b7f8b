"""Bytes held at some moments, priced: what makes a search take layouts that need less memory.

A value is held as it was made until its first reader, and then as the next of its readers needs it; arguments stay to
the end. What a byte costs at which moment is found by trying: see `descent`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from redistrib.lang.types import DistType
from redistrib.plans.dtypes import itemsize_of
from redistrib.programs.graph import Graph, readers


@dataclass(frozen=True)
class Use:
    """A value, and readers that share what it is converted to.

    Attributes:
        value: its name.
        maker: number of the operation that makes it; -1 for an input.
        write: which of its results it is.
        readers: operations, each with the number of the read, in order; results come last, as one past the last
            operation, each with its number.
        first, last: whether these are its first readers, and its last.
        nodes: of the readers, each with the number of the read.
        until: for each reader the operation until which it keeps the value.
    """

    value: str
    maker: int
    write: int
    readers: tuple[tuple[int, int], ...]
    first: bool = True
    last: bool = True
    nodes: tuple[tuple[int, int], ...] = ()
    until: tuple[int, ...] = ()


def uses(graph: Graph, keep: int | None) -> Iterator[Use]:
    """The uses of every value that is read.

    Args:
        graph: the graph.
        keep: for how many operations a value that was moved is kept; None: to the end.
    """
    operations = graph.operations
    read: dict[str, list[tuple[int, int, int]]] = {}
    for name, own in readers(operations).items():
        read[name] = sorted((graph.held_until(k, r), k, r) for k, r in own if operations[k].role != "leave")
    for number, name in enumerate(graph.outputs):
        read.setdefault(name, []).append((len(operations), len(operations), number))
    made = [(array.name, -1, 0) for array in graph.inputs]
    made += [(array.name, k, w) for k, op in enumerate(operations) for w, array in enumerate(op.outs)]
    for name, maker, write in made:
        runs: list[list[tuple[int, int, int]]] = []
        for one in read.get(name, ()):
            last = runs[-1][-1] if runs else one
            is_apart = graph.tests_with(name, last[1]) != graph.tests_with(name, one[1])
            if not runs or is_apart or (keep is not None and one[0] - last[0] > keep):
                runs.append([])
            runs[-1].append(one)
        for count, run in enumerate(runs):
            ends, until = tuple((k, r) for _, k, r in run), tuple(at for at, _, _ in run)
            yield Use(name, maker, write, ends, count == 0, count == len(runs) - 1, until=until)


def least_held(
    graph: Graph, devices: int, starts: Mapping[str, DistType], donated: Collection[str] = ()
) -> tuple[int, int]:
    """Lower bound on the bytes that a device holds at the worst moment, and the operation that runs then.

    Arguments are held to the end, or to their last reader where they are donated, and everything else from its maker
    to its last reader. All devices cut each of them at best, and arguments as their types say.

    Args:
        graph: the graph.
        devices: of the mesh.
        starts: types of arguments that are given.
        donated: arguments whose memory is free after their last use.
    """
    operations = graph.operations
    last = last_held(graph)
    last |= dict.fromkeys(graph.outputs, len(operations))
    last |= {array.name: len(operations) for array in graph.inputs if array.name not in donated}
    ends: dict[int, int] = defaultdict(int)
    held = 0
    for array in graph.inputs:
        size = starts[array.name].local_size if array.name in starts else -(-math.prod(array.shape) // devices)
        held += size * itemsize_of(array.dtype)
        ends[last.get(array.name, 0)] += size * itemsize_of(array.dtype)
    begins: dict[int, int] = defaultdict(int)
    for operation in operations:
        for array in operation.outs:
            born = graph.made_at(array.name)
            size = -(-math.prod(array.shape) // devices) * itemsize_of(array.dtype)
            if born <= (until := last.get(array.name, born)):
                begins[born] += size
                ends[until] += size
    most, moment = held, 0
    for k in range(len(operations)):
        held += begins[k]
        if held > most:
            most, moment = held, k
        held -= ends.pop(k, 0)
    return most, moment


def last_held(graph: Graph) -> dict[str, int]:
    """For every value that an operation reads the operation until which it is kept at the latest."""
    found: dict[str, int] = {}
    for k, operation in enumerate(graph.operations):
        for r, name in enumerate(operation.ins):
            found[name] = max(found.get(name, -1), graph.held_until(k, r))
    return found


@dataclass
class Charges:
    """What options cost for the bytes that are held.

    Attributes:
        rates: what a byte costs, by number of the operation that is about to run.
        count: nodes.
        of_nodes: for every node what each of its options is charged; None for nothing.
    """

    rates: Mapping[int, float]
    count: int
    of_nodes: list[list[float] | None] = field(init=False)

    def __post_init__(self) -> None:
        self.of_nodes = [None] * self.count

    def made(self, each: Sequence[Use], node: int, sizes: Sequence[int]) -> None:
        """Charge a node for values as it makes them: until they are first read, or to the end of an argument."""
        rate = 0.0
        for use in each:
            for moment, own in self.rates.items():
                waits = use.maker <= moment and (moment <= use.until[0] or not use.last)
                rate += own * (use.first and (use.maker < 0 or waits))
        if rate:
            known = self.of_nodes[node] or [0.0] * len(sizes)
            self.of_nodes[node] = [own + rate * size for own, size in zip(known, sizes, strict=True)]

    def held(self, each: Sequence[Use], reader: tuple[int, int], sizes: Sequence[int]) -> dict[tuple[int, int], float]:
        """What a reader is charged for a value that it is the next to read, by the forms it is made and needed in."""
        later, now = 0.0, 0.0
        for use in each:
            for moment, own in self.rates.items():
                if moment < use.readers[0][0] or moment > use.until[-1]:
                    continue
                upcoming = next(k for k, number in enumerate(use.until) if number >= moment)
                if use.nodes[upcoming] != reader:
                    continue
                if use.readers[0][0] == moment or use.maker < 0 or not use.first:
                    now += own  # beside what was made, which is charged to the maker
                else:
                    later += own
        if not later and not now:
            return {}
        pairs = ((made, needed) for made in range(len(sizes)) for needed in range(len(sizes)))
        return {(m, n): (later + now * (m != n)) * sizes[n] for m, n in pairs}
