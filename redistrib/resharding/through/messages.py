"""Which device sends which box of which input to whom: every box that a device lacks once, in its fewest bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import jax.numpy as jnp

from redistrib.backends.jax.values import bits_of
from redistrib.plans.dtypes import itemsize_of
from redistrib.plans.senders import Senders
from redistrib.plans.transfers import Transfers, lacking_by_box
from redistrib.resharding.through.forms import ElementwiseStep, Fetch, Form, fetches
from redistrib.synthesis.rounds import edge_colouring
from redistrib.theory.boxes import Box, Boxes, Edges
from redistrib.theory.placement import Placement

_Row: TypeAlias = tuple[int, int]  # the number of a `SentLeaf`, and of a row of it
_Part: TypeAlias = tuple[int, int, Box]  # see `Arrival`


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
    rows: tuple[tuple[_Row, ...], ...]


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
    boxes: Mapping[int, Sequence[tuple[int, Box]]]


@dataclass(frozen=True)
class Arrival:
    """A box of a leaf that reaches a device, in parts.

    Attributes:
        early: how many of the steps on it are taken before it is sent.
        dtype: in which it is sent.
        parts: for each part the number of its type among those of constants, or behind them that of its round; its
            first element in the data of that; and where it stands in the box.
    """

    early: int
    dtype: str
    parts: tuple[_Part, ...]


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
    process: Mapping[int, int],
) -> tuple[list[SentLeaf], list[BoxRound], list[ConstantBoxes], dict[int, dict[Fetch, Arrival]]]:
    """What is sent, in rounds, so that devices have the boxes of their forms; boxes from the host; and the arrivals.

    Args:
        forms: for each receiver its results.
        dtypes: of the leaves.
        inputs: for each leaf that is no constant its tiles, and for each row of them the device that holds it.
        process: of each device; a device receives from others of its process what they hold.
    """
    needed: dict[tuple[int, _Way, str], dict[tuple[int, Box], list[_Part]]] = defaultdict(dict)
    fetched_by: dict[int, dict[Fetch, tuple[int, str, list[_Part]]]] = {receiver: {} for receiver in forms}
    for receiver, results in forms.items():
        for fetch in dict.fromkeys(fetch for form in results for fetch in fetches(form)):
            early, dtype = early_steps(fetch.steps if fetch.leaf < len(inputs) else (), dtypes[fetch.leaf])
            parts = needed[fetch.leaf, fetch.steps[:early], dtype].setdefault((receiver, fetch.box), [])
            fetched_by[receiver][fetch] = early, dtype, parts
    senders = Senders(process)
    sent: list[SentLeaf] = []
    moving: list[tuple[list[_Part], _Row, Box]] = []
    constants: dict[str, dict[int, list[tuple[int, Box]]]] = defaultdict(lambda: defaultdict(list))
    filled: dict[tuple[str, int], int] = defaultdict(int)
    for (leaf, steps, dtype), parts_of in needed.items():
        receivers, boxes = zip(*parts_of, strict=True)
        several = [*parts_of.values()]
        if leaf < len(inputs):
            table, number, row = lacking_by_box(*inputs[leaf], Boxes.of(boxes), receivers, senders, itemsize_of(dtype))
            every = table.box.rows()
            for k, r in zip(number.tolist(), row.tolist(), strict=True):
                moving.append((several[k], (len(sent), r), every[r].within(boxes[k])))
            if every:
                sent.append(SentLeaf(leaf, steps, dtype, table))
            continue
        wire = wire_of(dtype)
        for receiver, box, parts in zip(receivers, boxes, several, strict=True):
            constants[wire][receiver].append((leaf, box))
            parts.append(([*constants].index(wire), filled[wire, receiver], Box.whole(box.size)))
            filled[wire, receiver] += box.volume
    rounds, where = _rounds(sent)
    for parts, each, inside in moving:
        turn, first = where[each]
        parts.append((len(constants) + turn, first, inside))
    from_host = [
        ConstantBoxes(wire, max(filled[wire, receiver] for receiver in boxes_of), dict(boxes_of))
        for wire, boxes_of in constants.items()
    ]
    arrivals = {
        receiver: {fetch: Arrival(early, dtype, tuple(parts)) for fetch, (early, dtype, parts) in fetched.items()}
        for receiver, fetched in fetched_by.items()
    }
    return sent, rounds, from_host, arrivals


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
