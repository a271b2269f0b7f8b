"""Which device sends which box of which input to whom: every box that a device lacks once, in its fewest bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import jax.numpy as jnp

from redistrib.backends.jax.values import bits_of
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.transfers import Senders, Transfers, lacking_by_box
from redistrib.resharding.through.forms import ElementwiseStep, Fetch, Form, fetches
from redistrib.synthesis.rounds import edge_colouring
from redistrib.theory.boxes import Box, Boxes, Edges
from redistrib.theory.placement import Placement


@dataclass(frozen=True)
class SentLeaf:
    """Boxes of an input that are sent after the same steps.

    Attributes:
        leaf: the input.
        steps: taken before boxes are sent.
        dtype: in which they are sent.
        boxes: who sends which to whom, or keeps it.
    """

    leaf: int
    steps: tuple[ElementwiseStep, ...]
    dtype: str
    boxes: Transfers

    @property
    def wire(self) -> str:
        """The type as which elements travel."""
        return wire_of(self.dtype)

    @property
    def received_bytes(self) -> int:
        """Bytes that devices take in from others, all together."""
        return sum(self.boxes.travelling.box.volumes()) * itemsize_of(self.dtype)


@dataclass(frozen=True)
class BoxRound:
    """Boxes of as many elements of each sender to one receiver; no device sends or receives twice.

    Attributes:
        wire: the type in which elements travel.
        size: elements that each sender sends.
        pairs: senders and receivers; each with itself, or none.
        rows: for each pair what is sent end to end: of each box the number of its `SentLeaf`, and its row there.
    """

    wire: str
    size: int
    pairs: tuple[tuple[int, int], ...]
    rows: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class ConstantBoxes:
    """Boxes of constants that the host puts on receivers, end to end.

    Attributes:
        wire: the type in which elements travel.
        size: the most elements of a receiver.
        boxes: of each receiver, each the number of its leaf and the box.
    """

    wire: str
    size: int
    boxes: dict[int, tuple[tuple[int, Box], ...]]


@dataclass(frozen=True)
class Arrival:
    """A box of a leaf that reaches a device, in parts.

    Attributes:
        early: how many of the steps on it are taken before it is sent.
        dtype: in which it is sent.
        parts: for each part the number of the round, its first element in the round's data, and where it stands in the
            box; boxes of constants are numbered behind the rounds.
    """

    early: int
    dtype: str
    parts: tuple[tuple[int, int, Box], ...]


def wire_of(dtype: str) -> str:
    """The type as which elements travel: small floats as integers of their bits."""
    return str(bits_of(jnp.dtype(dtype)) or jnp.dtype(dtype))


def early_steps(steps: Sequence[ElementwiseStep], dtype: str) -> tuple[int, str]:
    """How many steps to take before sending, so that elements have the fewest bits; and their type then.

    The fewest steps that do; a cast to more bits comes after the move.
    """
    types = [dtype, *(step.dtype for step in steps)]
    least = min(range(len(types)), key=lambda k: itemsize_of(types[k]))
    return least, types[least]


_Way: TypeAlias = tuple[ElementwiseStep, ...]  # taken on elements before they are used
_Row: TypeAlias = tuple[int, int]  # the number of a `SentLeaf`, and of a row of it


def least_bytes(several: Iterable[Fetch], tile: Box | None, dtype: str) -> int:
    """The fewest bytes that bring a device the elements of some boxes of one leaf that its own tile lacks.

    Each element travels in types that it has on its way: where several boxes take different steps on it, once before
    they part, or in each way by itself, whichever has fewer bits.
    """
    boxes: list[tuple[Edges, _Way | None]] = [(fetch.box.edges, fetch.steps) for fetch in dict.fromkeys(several)]
    if tile is not None:
        boxes.append((tile.edges, None))
    return _bytes_of(boxes, 0, dtype)


def _bytes_of(boxes: Sequence[tuple[Edges, _Way | None]], dim: int, dtype: str) -> int:
    """The bytes of the union of boxes that are the same in all dimensions before this one; None: it is there."""
    ways = {steps for _, steps in boxes}
    if ways == {None}:
        return 0
    if dim == len(boxes[0][0]):
        return 0 if None in ways else _bytes_in({steps for steps in ways if steps is not None}, 0, dtype)
    total = 0
    for a, b in pairwise(sorted({edge for edges, _ in boxes for edge in edges[dim]})):
        inside = [box for box in boxes if box[0][dim][0] <= a and b <= box[0][dim][1]]
        total += (b - a) * _bytes_of(inside, dim + 1, dtype) if inside else 0
    return total


def _bytes_in(ways: Collection[_Way], taken: int, dtype: str) -> int:
    """The fewest bytes of an element of which so many steps are taken, the same in all ways."""
    if any(len(steps) == taken for steps in ways):
        return itemsize_of(dtype)
    parted: dict[ElementwiseStep, list[_Way]] = defaultdict(list)
    for steps in ways:
        parted[steps[taken]].append(steps)
    return min(itemsize_of(dtype), sum(_bytes_in(part, taken + 1, step.dtype) for step, part in parted.items()))


def scheduled(
    forms: Mapping[int, Sequence[Form]],
    dtypes: Sequence[str],
    inputs: Sequence[tuple[Placement, Sequence[int]]],
    process: Sequence[int],
) -> tuple[list[SentLeaf], list[BoxRound], list[ConstantBoxes], dict[int, dict[Fetch, Arrival]]]:
    """What is sent, in rounds, so that devices have the boxes of their forms; boxes from the host; and the arrivals.

    Args:
        forms: for each receiver its results.
        dtypes: of the leaves.
        inputs: for each leaf that is no constant its tiles, and for each row of them the device that holds it.
        process: of each device; a device receives from others of its process what they hold.
    """
    needed: dict[tuple[int, _Way, str], dict[tuple[int, Box], list[_Row]]] = defaultdict(dict)
    wanted: dict[int, dict[Fetch, tuple[int, str, list[_Row]]]] = {receiver: {} for receiver in forms}
    for receiver, results in forms.items():
        for fetch in dict.fromkeys(fetch for form in results for fetch in fetches(form)):
            early, dtype, rows = 0, dtypes[fetch.leaf], list[_Row]()
            if fetch.leaf < len(inputs):
                early, dtype = early_steps(fetch.steps, dtype)
                rows = needed[fetch.leaf, fetch.steps[:early], dtype].setdefault((receiver, fetch.box), rows)
            wanted[receiver][fetch] = early, dtype, rows
    senders = Senders(process)
    sent: list[SentLeaf] = []
    for (leaf, steps, dtype), rows_of in needed.items():
        receivers, boxes = zip(*rows_of, strict=True)
        table, number, row = lacking_by_box(*inputs[leaf], Boxes.of(boxes), receivers, senders, itemsize_of(dtype))
        lists = [*rows_of.values()]
        for box, k in zip(number.tolist(), row.tolist(), strict=True):
            lists[box].append((len(sent), k))
        if len(table):
            sent.append(SentLeaf(leaf, steps, dtype, table))
    rounds, where = _rounds(sent)
    constants, places_of = _constants(wanted, dtypes, len(inputs))
    boxes_sent = [each.boxes.box.rows() for each in sent]

    def parts(receiver: int, fetch: Fetch, rows: Sequence[_Row]) -> Iterator[tuple[int, int, Box]]:
        if fetch.leaf >= len(inputs):
            turn, first = places_of[receiver, fetch.leaf, fetch.box]
            yield len(rounds) + turn, first, Box.whole(fetch.box.size)
        for k, row in rows:
            part = boxes_sent[k][row]
            yield *where[k, row], Box(part.offset_in(fetch.box), part.size)

    return (
        sent,
        rounds,
        constants,
        {
            receiver: {
                fetch: Arrival(early, dtype, tuple(parts(receiver, fetch, rows)))
                for fetch, (early, dtype, rows) in several.items()
            }
            for receiver, several in wanted.items()
        },
    )


def _constants(
    wanted: Mapping[int, Iterable[Fetch]], dtypes: Sequence[str], inputs: int
) -> tuple[list[ConstantBoxes], dict[tuple[int, int, Box], tuple[int, int]]]:
    """The boxes of constants by type, and of each the number of its type and its first element there."""
    boxes: dict[str, dict[int, list[tuple[int, Box]]]] = {}
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    starts: dict[tuple[int, int, Box], tuple[int, int]] = {}
    for receiver, several in wanted.items():
        for leaf, box in dict.fromkeys((fetch.leaf, fetch.box) for fetch in several if fetch.leaf >= inputs):
            wire = wire_of(dtypes[leaf])
            boxes.setdefault(wire, defaultdict(list))[receiver].append((leaf, box))
            starts[receiver, leaf, box] = list(boxes).index(wire), sizes[wire, receiver]
            sizes[wire, receiver] += box.volume
    most = {wire: max(sizes[wire, receiver] for receiver in entry) for wire, entry in boxes.items()}
    return [
        ConstantBoxes(wire, most[wire], {receiver: tuple(several) for receiver, several in entry.items()})
        for wire, entry in boxes.items()
    ], starts


def _rounds(sent: Sequence[SentLeaf]) -> tuple[list[BoxRound], dict[_Row, tuple[int, int]]]:
    """All boxes of two devices travel at once; rounds are of pairs that send as many elements each.

    Returns:
        The rounds; and for each row the number of its round, and its first element there.
    """
    pairs: dict[tuple[str, int, int], list[_Row]] = defaultdict(list)
    sizes: dict[tuple[str, int, int], int] = defaultdict(int)
    first: dict[_Row, int] = {}
    for k, each in enumerate(sent):
        wire, ends = each.wire, zip(each.boxes.sender.tolist(), each.boxes.receiver.tolist(), strict=True)
        for row, ((sender, receiver), volume) in enumerate(zip(ends, each.boxes.box.volumes(), strict=True)):
            pairs[wire, sender, receiver].append((k, row))
            first[k, row] = sizes[wire, sender, receiver]
            sizes[wire, sender, receiver] += volume
    alike: dict[tuple[str, int, bool], list[tuple[int, int]]] = defaultdict(list)
    for (wire, sender, receiver), size in sizes.items():
        alike[wire, size, sender == receiver].append((sender, receiver))
    rounds = []
    for (wire, size, _), candidates in alike.items():
        colours = edge_colouring(candidates)
        for colour in range(max(colours) + 1):
            chosen = tuple(pair for pair, entry in zip(candidates, colours, strict=True) if entry == colour)
            rounds.append(BoxRound(wire, size, chosen, tuple(tuple(pairs[wire, a, b]) for a, b in chosen)))
    return rounds, {row: (k, first[row]) for k, each in enumerate(rounds) for rows in each.rows for row in rows}
