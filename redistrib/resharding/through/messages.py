"""Which device sends which box of which input to whom: every box that a device lacks once, in its fewest bits."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from redistrib.backends.jax.values import bits_of
from redistrib.plans.dtypes import itemsize_of
from redistrib.resharding.through.boxes import Box, Fetch, Form, Step, fetches
from redistrib.synthesis.rounds import edge_colouring


@dataclass(frozen=True)
class Slot:
    """Boxes of one input and one shape, of which no device sends or receives two.

    Attributes:
        leaf: the input.
        shape: of the boxes.
        steps: taken before they are sent.
        dtype: in which they are sent.
        pairs: senders and receivers, by their numbers; a device may be both.
        boxes: of each pair, within the input.
    """

    leaf: int
    shape: tuple[int, ...]
    steps: tuple[Step, ...]
    dtype: str
    pairs: tuple[tuple[int, int], ...]
    boxes: tuple[Box, ...]

    @property
    def elements(self) -> int:
        """Elements of a box."""
        return math.prod(self.shape)

    @property
    def wire(self) -> np.dtype[Any]:
        """The type as which elements travel: small floats as integers of their bits."""
        dtype = jnp.dtype(self.dtype)
        bits: np.dtype[Any] = bits_of(dtype) or dtype
        return bits

    @property
    def nbytes(self) -> int:
        """Bytes of a box."""
        return math.prod(self.shape) * itemsize_of(self.dtype)


@dataclass(frozen=True)
class Arrival:
    """A box of an input that reaches a device, in parts.

    Attributes:
        fetch: the box, and what steps are taken of it in all.
        early: how many of the steps are taken before it is sent.
        dtype: in which it is sent.
        parts: for each part the number of the slot.
        places: for each part where it stands in the box.
    """

    fetch: Fetch
    early: int
    dtype: str
    parts: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]


def early_steps(steps: Sequence[Step], dtype: str) -> tuple[int, str]:
    """How many steps to take before sending, so that elements have the fewest bits; and their type then.

    The fewest steps that do; a cast to more bits comes after the move.
    """
    types = [dtype, *(step.dtype for step in steps)]
    least = min(range(len(types)), key=lambda k: itemsize_of(types[k]))
    return least, types[least]


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
        for each in boxes:
            holders: dict[Box, list[int]] = defaultdict(list)
            for device, box in sorted(each.items()):
                holders[box].append(device)
            self._holders.append(holders)

    def parts(self, leaf: int, box: Box, receiver: int, itemsize: int) -> list[tuple[Box, int]]:
        """The parts of a box, each with the device that sends it: the receiver itself where it has the part, else one
        of its process, else that which sends least."""
        result = []
        for whole, holders in self._holders[leaf].items():
            part = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, whole, strict=True))
            if any(a >= b for a, b in part):
                continue
            if receiver in holders:
                sender = receiver
            else:
                here = [device for device in holders if self._process[device] == self._process[receiver]]
                sender = min(here or holders, key=lambda device: (self._sent[device], device))
                self._sent[sender] += itemsize * math.prod(b - a for a, b in part)
            result.append((part, sender))
        return result


def scheduled(
    forms: Mapping[int, Sequence[Form]], dtypes: Sequence[str], senders: Senders
) -> tuple[list[Slot], dict[int, dict[Fetch, Arrival]]]:
    """The slots that bring devices what forms need, and what arrives in them.

    Args:
        forms: for each receiver its results.
        dtypes: of the inputs.
        senders: who has what.
    """
    wanted: dict[Any, list[tuple[int, int, Box]]] = defaultdict(list)  # by kind: sender, receiver, box
    taken: set[Any] = set()
    for receiver, results in forms.items():
        for fetch in dict.fromkeys(fetch for form in results for fetch in fetches(form)):
            early, dtype = early_steps(fetch.steps, dtypes[fetch.leaf])
            for part, sender in senders.parts(fetch.leaf, fetch.box, receiver, itemsize_of(dtype)):
                kind = (fetch.leaf, tuple(b - a for a, b in part), fetch.steps[:early], dtype)
                message = (sender, receiver, part)
                if (kind, message) not in taken:
                    taken.add((kind, message))
                    wanted[kind].append(message)
    slots: list[Slot] = []
    for kind, messages in wanted.items():
        colours = edge_colouring([(sender, receiver) for sender, receiver, _ in messages])
        for colour in range(max(colours) + 1):
            some = [message for message, each in zip(messages, colours, strict=True) if each == colour]
            pairs, boxes = tuple((a, b) for a, b, _ in some), tuple(box for _, _, box in some)
            leaf, shape, steps, dtype = kind
            slots.append(Slot(leaf, shape, steps, dtype, pairs, boxes))
    arrivals: dict[int, dict[Fetch, Arrival]] = defaultdict(dict)
    by_receiver: dict[tuple[int, int, tuple[Step, ...]], list[tuple[Box, int]]] = defaultdict(list)
    for k, slot in enumerate(slots):
        for (_, receiver), box in zip(slot.pairs, slot.boxes, strict=True):
            by_receiver[receiver, slot.leaf, slot.steps].append((box, k))
    for receiver, results in forms.items():
        for fetch in dict.fromkeys(fetch for form in results for fetch in fetches(form)):
            early, dtype = early_steps(fetch.steps, dtypes[fetch.leaf])
            parts = [
                (box, k)
                for box, k in by_receiver[receiver, fetch.leaf, fetch.steps[:early]]
                if all(a <= c and d <= b for (a, b), (c, d) in zip(fetch.box, box, strict=True))
            ]
            places = tuple(tuple(c - a for (a, _), (c, _) in zip(fetch.box, box, strict=True)) for box, _ in parts)
            arrivals[receiver][fetch] = Arrival(fetch, early, dtype, tuple(k for _, k in parts), places)
    return slots, arrivals


def received(slots: Sequence[Slot]) -> int:
    """Bytes that devices take in from others, all together."""
    return sum(slot.nbytes for slot in slots for sender, receiver in slot.pairs if sender != receiver)
