"""A Lagrangian relaxation of the memory limit: bytes held at some moments have a price, the multiplier of the moment.

A value is held in its first layout until its first reader, and then in the layout of its next reader; arguments are
held to the end. `fitting` looks for the multipliers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from redistrib.programs.ir.graph import Graph, readers


@dataclass(frozen=True)
class Use:
    """A value, and readers that share its conversions.

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
    """The uses of every operand.

    Args:
        graph: the graph.
        keep: for how many operations a value that was moved is kept; None: to the end.
    """
    operations = graph.operations
    read: dict[str, list[tuple[int, int, int]]] = {}
    for name, numbers in readers(operations).items():
        read[name] = sorted((graph.held_until(k, r), k, r) for k, r in numbers)
    for number, name in enumerate(graph.outputs):
        read.setdefault(name, []).append((len(operations), len(operations), number))
    values = [(array.name, -1, 0) for array in graph.inputs]
    values += [(array.name, k, w) for k, op in enumerate(operations) for w, array in enumerate(op.outs)]
    for name, maker, write in values:
        runs: list[list[tuple[int, int, int]]] = []
        for use in read.get(name, ()):
            last = runs[-1][-1] if runs else use
            is_apart = graph.tests_with(name, last[1]) != graph.tests_with(name, use[1])
            if not runs or is_apart or (keep is not None and use[0] - last[0] > keep):
                runs.append([])
            runs[-1].append(use)
        for count, run in enumerate(runs):
            ends, until = tuple((k, r) for _, k, r in run), tuple(at for at, _, _ in run)
            yield Use(name, maker, write, ends, count == 0, count == len(runs) - 1, until=until)


@dataclass
class MemoryPrices:
    """The prices of options for the bytes that are held.

    Attributes:
        multipliers: the price of a byte, by number of the operation at which it is held.
        count: nodes.
        of_nodes: for every node the memory price of each of its options; None for nothing.
    """

    multipliers: Mapping[int, float]
    count: int
    of_nodes: list[list[float] | None] = field(init=False)

    def __post_init__(self) -> None:
        self.of_nodes = [None] * self.count

    def charge_maker(self, each: Sequence[Use], node: int, sizes: Sequence[int]) -> None:
        """Add the price of values in their first layout: until their first reader, or of an argument to the end."""
        rate = 0.0
        for use in each:
            for moment, multiplier in self.multipliers.items():
                waits = use.maker <= moment and (moment <= use.until[0] or not use.last)
                rate += multiplier * (use.first and (use.maker < 0 or waits))
        if rate:
            prices = self.of_nodes[node] or [0.0] * len(sizes)
            self.of_nodes[node] = [price + rate * size for price, size in zip(prices, sizes, strict=True)]

    def of_reader(
        self, each: Sequence[Use], reader: tuple[int, int], sizes: Sequence[int]
    ) -> dict[tuple[int, int], float]:
        """The price of a value that waits for this reader, by its first layout and the reader's."""
        later, now = 0.0, 0.0
        for use in each:
            for moment, multiplier in self.multipliers.items():
                if moment < use.readers[0][0] or moment > use.until[-1]:
                    continue
                upcoming = next(k for k, number in enumerate(use.until) if number >= moment)
                if use.nodes[upcoming] != reader:
                    continue
                if use.readers[0][0] == moment or use.maker < 0 or not use.first:
                    now += multiplier  # besides its results, which are charged to their makers
                else:
                    later += multiplier
        if not later and not now:
            return {}
        pairs = ((source, needed) for source in range(len(sizes)) for needed in range(len(sizes)))
        return {(m, n): (later + now * (m != n)) * sizes[n] for m, n in pairs}
