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
    """

    value: str
    maker: int
    write: int
    readers: tuple[tuple[int, int], ...]
    first: bool = True
    last: bool = True
    nodes: tuple[tuple[int, int], ...] = ()


def uses(graph: Graph, keep: int | None) -> Iterator[Use]:
    """The uses of every value that is read.

    Args:
        graph: the graph.
        keep: for how many operations a value that was moved is kept; None: to the end.
    """
    operations = graph.operations
    read = {name: list(own) for name, own in readers(operations).items()}
    for number, name in enumerate(graph.outputs):
        read.setdefault(name, []).append((len(operations), number))
    made = [(array.name, -1, 0) for array in graph.inputs]
    made += [(array.name, k, w) for k, op in enumerate(operations) for w, array in enumerate(op.outs)]
    for name, maker, write in made:
        runs: list[list[tuple[int, int]]] = []
        for k, r in read.get(name, ()):
            if not runs or (keep is not None and k - runs[-1][-1][0] > keep):
                runs.append([])
            runs[-1].append((k, r))
        for count, run in enumerate(runs):
            yield Use(name, maker, write, tuple(run), count == 0, count == len(runs) - 1)


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
    last = {name: k for k, operation in enumerate(operations) for name in operation.ins}
    last |= dict.fromkeys(graph.outputs, len(operations))
    last |= {array.name: len(operations) for array in graph.inputs if array.name not in donated}
    ends: dict[int, int] = defaultdict(int)
    held = 0
    for array in graph.inputs:
        size = starts[array.name].local_size if array.name in starts else -(-math.prod(array.shape) // devices)
        held += size * itemsize_of(array.dtype)
        ends[last.get(array.name, 0)] += size * itemsize_of(array.dtype)
    most, moment = held, 0
    for k, operation in enumerate(operations):
        for array in operation.outs:
            size = -(-math.prod(array.shape) // devices) * itemsize_of(array.dtype)
            held += size
            ends[last.get(array.name, k)] += size
        if held > most:
            most, moment = held, k
        held -= ends.pop(k, 0)
    return most, moment


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
                waits = use.maker <= moment and (moment <= use.readers[0][0] or not use.last)
                rate += own * (use.first and (use.maker < 0 or waits))
        if rate:
            known = self.of_nodes[node] or [0.0] * len(sizes)
            self.of_nodes[node] = [own + rate * size for own, size in zip(known, sizes, strict=True)]

    def held(self, each: Sequence[Use], reader: tuple[int, int], sizes: Sequence[int]) -> dict[tuple[int, int], float]:
        """What a reader is charged for a value that it is the next to read, by the forms it is made and needed in."""
        later, now = 0.0, 0.0
        for use in each:
            for moment, own in self.rates.items():
                if moment < use.readers[0][0] or moment > use.readers[-1][0]:
                    continue
                upcoming = next(k for k, (number, _) in enumerate(use.readers) if number >= moment)
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
