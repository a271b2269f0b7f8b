"""Which device sends which box of which input to whom: every box that a device lacks once, in its fewest bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import jax.numpy as jnp

from redistrib.backends.jax.values import bits_of
from redistrib.plans.dtypes import itemsize_of
from redistrib.resharding.through.forms import ElementwiseStep, Fetch, Form, fetches
from redistrib.synthesis.rounds import edge_colouring
from redistrib.theory.boxes import Box, Edges


@dataclass(frozen=True)
class BoxMessage:
    """A box of an input that one device sends to another, or keeps.

    Attributes:
        leaf: the input.
        box: within the input.
        steps: taken before it is sent.
        dtype: in which it is sent.
        sender, receiver: numbers of devices.
    """

    leaf: int
    box: Box
    steps: tuple[ElementwiseStep, ...]
    dtype: str
    sender: int
    receiver: int

    @property
    def wire(self) -> str:
        """The type as which elements travel."""
        return wire_of(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the box."""
        return self.box.volume * itemsize_of(self.dtype)

    @property
    def form(self) -> tuple[Any, ...]:
        """The common properties of messages that are cut out in the same way."""
        return self.leaf, self.box.size, self.steps, self.dtype


@dataclass(frozen=True)
class BoxRound:
    """Messages of as many elements of each sender to one receiver; no device sends or receives twice.

    Attributes:
        wire: the type in which elements travel.
        size: elements that each sender sends.
        pairs: senders and receivers; each with itself, or none.
        messages: of each pair the numbers of its messages, end to end.
    """

    wire: str
    size: int
    pairs: tuple[tuple[int, int], ...]
    messages: tuple[tuple[int, ...], ...]


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
        parts: for each part the number of the round, its first element in the round's data, and its shape; boxes of
            constants are numbered behind the rounds.
        places: for each part where it stands in the box.
    """

    early: int
    dtype: str
    parts: tuple[tuple[int, int, tuple[int, ...]], ...]
    places: tuple[tuple[int, ...], ...]


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


class Senders:
    """Who has which box of each input, and how much each sends so far.

    Args:
        boxes: for each input the box of each device that has one.
        process: of each device.
    """

    def __init__(self, boxes: Sequence[Mapping[int, Box]], process: Mapping[int, int]) -> None:
        self._process = process
        self._sent: dict[int, int] = defaultdict(int)
        self._holders: list[dict[Box, list[int]]] = []
        for entry in boxes:
            holders: dict[Box, list[int]] = defaultdict(list)
            for device, box in sorted(entry.items()):
                holders[box].append(device)
            self._holders.append(holders)

    def have(self, leaf: int) -> bool:
        """Whether devices have the leaf, which is then no constant."""
        return leaf < len(self._holders)

    def parts(self, leaf: int, box: Box, receiver: int, itemsize: int) -> list[tuple[Box, int]]:
        """The parts of a box, each with the device that sends it: the receiver itself where it has the part, else one
        of its process, else that which sends least."""
        result = []
        for whole, holders in self._holders[leaf].items():
            part = box.meet(whole)
            if not part.volume:
                continue
            if receiver in holders:
                sender = receiver
            else:
                local = [device for device in holders if self._process[device] == self._process[receiver]]
                sender = min(local or holders, key=lambda device: (self._sent[device], device))
                self._sent[sender] += itemsize * part.volume
            result.append((part, sender))
        return result


def scheduled(
    forms: Mapping[int, Sequence[Form]], dtypes: Sequence[str], senders: Senders
) -> tuple[list[BoxMessage], list[BoxRound], list[ConstantBoxes], dict[int, dict[Fetch, Arrival]]]:
    """The messages, in rounds, that bring devices the boxes of their forms, the boxes from the host, and the arrivals.

    Args:
        forms: for each receiver its results.
        dtypes: of the leaves.
        senders: the devices that hold each box.
    """
    messages: dict[BoxMessage, int] = {}
    wanted = {
        receiver: dict.fromkeys(fetch for form in results for fetch in fetches(form))
        for receiver, results in forms.items()
    }
    for receiver, several in wanted.items():
        for fetch in several:
            if not senders.have(fetch.leaf):
                continue
            early, dtype = early_steps(fetch.steps, dtypes[fetch.leaf])
            for part, sender in senders.parts(fetch.leaf, fetch.box, receiver, itemsize_of(dtype)):
                message = BoxMessage(fetch.leaf, part, fetch.steps[:early], dtype, sender, receiver)
                messages.setdefault(message, len(messages))
    rounds = _rounds(list(messages))
    where = {
        number: (k, offset)
        for k, entry in enumerate(rounds)
        for numbers in entry.messages
        for number, offset in _offsets(numbers, list(messages))
    }
    sent_to: dict[tuple[int, int, tuple[ElementwiseStep, ...]], list[BoxMessage]] = defaultdict(list)
    for message in messages:
        sent_to[message.receiver, message.leaf, message.steps].append(message)
    constants, places_of = _constants(wanted, dtypes, senders)
    arrivals: dict[int, dict[Fetch, Arrival]] = defaultdict(dict)
    for receiver, several in wanted.items():
        for fetch in several:
            if not senders.have(fetch.leaf):
                turn, first = places_of[receiver, fetch.leaf, fetch.box]
                whole = (len(rounds) + turn, first, fetch.box.size)
                origin = (0,) * len(fetch.box.size)
                arrivals[receiver][fetch] = Arrival(0, dtypes[fetch.leaf], (whole,), (origin,))
                continue
            early, dtype = early_steps(fetch.steps, dtypes[fetch.leaf])
            inside = [
                message
                for message in sent_to[receiver, fetch.leaf, fetch.steps[:early]]
                if message.box.lies_in(fetch.box)
            ]
            parts = tuple((*where[messages[message]], message.box.size) for message in inside)
            places = tuple(message.box.offset_in(fetch.box) for message in inside)
            arrivals[receiver][fetch] = Arrival(early, dtype, parts, places)
    return list(messages), rounds, constants, arrivals


def _constants(
    wanted: Mapping[int, Iterable[Fetch]], dtypes: Sequence[str], senders: Senders
) -> tuple[list[ConstantBoxes], dict[tuple[int, int, Box], tuple[int, int]]]:
    """The boxes of constants by type, and of each the number of its type and its first element there."""
    boxes: dict[str, dict[int, list[tuple[int, Box]]]] = {}
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    starts: dict[tuple[int, int, Box], tuple[int, int]] = {}
    for receiver, several in wanted.items():
        for leaf, box in dict.fromkeys((fetch.leaf, fetch.box) for fetch in several):
            if senders.have(leaf):
                continue
            wire = wire_of(dtypes[leaf])
            boxes.setdefault(wire, defaultdict(list))[receiver].append((leaf, box))
            starts[receiver, leaf, box] = list(boxes).index(wire), sizes[wire, receiver]
            sizes[wire, receiver] += box.volume
    most = {wire: max(sizes[wire, receiver] for receiver in entry) for wire, entry in boxes.items()}
    return [
        ConstantBoxes(wire, most[wire], {receiver: tuple(several) for receiver, several in entry.items()})
        for wire, entry in boxes.items()
    ], starts


def _rounds(messages: Sequence[BoxMessage]) -> list[BoxRound]:
    """All messages of two devices travel at once; rounds are of pairs that send as many elements each."""
    pairs: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for number, message in enumerate(messages):
        pairs[message.wire, message.sender, message.receiver].append(number)
    alike: dict[tuple[str, int, bool], list[tuple[int, int]]] = defaultdict(list)
    for (wire, sender, receiver), numbers in pairs.items():
        size = sum(messages[number].box.volume for number in numbers)
        alike[wire, size, sender == receiver].append((sender, receiver))
    rounds = []
    for (wire, size, _), candidates in alike.items():
        colours = edge_colouring(candidates)
        for colour in range(max(colours) + 1):
            chosen = tuple(pair for pair, entry in zip(candidates, colours, strict=True) if entry == colour)
            rounds.append(BoxRound(wire, size, chosen, tuple(tuple(pairs[wire, a, b]) for a, b in chosen)))
    return rounds


def _offsets(numbers: Sequence[int], messages: Sequence[BoxMessage]) -> Iterator[tuple[int, int]]:
    """Messages end to end: the number of each, and its first element."""
    start = 0
    for number in numbers:
        yield number, start
        start += messages[number].box.volume


def received(messages: Sequence[BoxMessage]) -> int:
    """Bytes that devices take in from others, all together."""
    return sum(message.nbytes for message in messages if message.sender != message.receiver)
