"""Places of boxes in the buffers that devices send and receive, separate from the operations on them.

Devices whose boxes have the same shapes do the same, at any places of the boxes. So they share compiled code, and
take the places as data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redistrib.resharding.through.forms import Fetch, Form, with_fetches
from redistrib.resharding.through.messages import Arrival, BoxMessage, BoxRound, ConstantBoxes
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Int64


@dataclass(frozen=True)
class SentBundle:
    """The messages of a sender in a round.

    Attributes:
        round: its number.
        messages: their numbers, end to end in the buffer.
        start: the first element in the buffer of the round's type.
    """

    round: int
    messages: tuple[int, ...]
    start: int


class SentBuffers:
    """The contents of each sender's buffers: bundles in an order that is the same for senders of the same bundles.

    Attributes:
        bundles: of each sender.
        sizes: elements of the buffer for each type of elements, on every sender.
    """

    def __init__(self, messages: Sequence[BoxMessage], rounds: Sequence[BoxRound]) -> None:
        self._rounds = len(rounds)
        self.sizes = dict.fromkeys((round_.wire for round_ in rounds), 0)
        kinds: dict[Any, int] = {}
        by_sender: dict[int, list[tuple[int, int, tuple[int, ...]]]] = {}
        for k, round_ in enumerate(rounds):
            for (sender, _), numbers in zip(round_.pairs, round_.messages, strict=True):
                kind = kinds.setdefault(tuple(messages[number].form for number in numbers), len(kinds))
                by_sender.setdefault(sender, []).append((kind, k, numbers))
        self.bundles: dict[int, tuple[SentBundle, ...]] = {}
        for sender, several in by_sender.items():
            filled, bundles = dict.fromkeys(self.sizes, 0), []
            for _, k, numbers in sorted(several):
                wire = rounds[k].wire
                bundles.append(SentBundle(k, numbers, filled[wire]))
                filled[wire] += rounds[k].size
            self.bundles[sender] = tuple(bundles)
            self.sizes = {wire: max(size, filled[wire]) for wire, size in self.sizes.items()}

    def starts(self, devices: int) -> Int64:
        """For each device and round the first element that it sends; 0 where it sends nothing."""
        table = np.zeros((devices, self._rounds), np.int64)
        for sender, bundles in self.bundles.items():
            for bundle in bundles:
                table[sender, bundle.round] = bundle.start
        return table


class ReceivedBuffers:
    """The contents of each receiver's buffers: the arrivals of all rounds, end to end, and then boxes of constants.

    Attributes:
        sizes: elements of the buffer of all rounds for each type of elements.
        rounds: of each round, and then of each type of constants, the number of its buffer and its first element there.
    """

    def __init__(self, rounds: Sequence[BoxRound], constants: Sequence[ConstantBoxes]) -> None:
        self.sizes: dict[str, int] = {}
        self.rounds: list[tuple[int, int]] = []
        for round_ in rounds:
            start = self.sizes.get(round_.wire, 0)
            self.sizes[round_.wire] = start + round_.size
            self.rounds.append((list(self.sizes).index(round_.wire), start))
        self.rounds += [(len(self.sizes) + k, 0) for k in range(len(constants))]


@dataclass(frozen=True)
class RelativeArrival:
    """An arrival without the places of its parts in buffers; see `Arrival`.

    Attributes:
        parts: for each part its number among all parts, the number of its buffer, and its shape.
    """

    early: int
    dtype: str
    parts: tuple[tuple[int, int, tuple[int, ...]], ...]
    places: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RelativeResults:
    """A device's results, with boxes at the origin, and numbers of arrivals in the place of inputs.

    Attributes:
        forms: of the results.
        arrivals: by number.
        starts: for each part its first element in the buffer of its type.
    """

    forms: tuple[Form, ...]
    arrivals: tuple[RelativeArrival, ...]
    starts: tuple[int, ...]

    @staticmethod
    def of(forms: Sequence[Form], arrivals: Mapping[Fetch, Arrival], received: ReceivedBuffers) -> RelativeResults:
        """The results of a device."""
        number = {fetch: k for k, fetch in enumerate(arrivals)}
        starts: list[int] = []
        relative = []
        for arrival in arrivals.values():
            parts = []
            for turn, first, shape in arrival.parts:
                buffer, start = received.rounds[turn]
                parts.append((len(starts), buffer, shape))
                starts.append(start + first)
            relative.append(RelativeArrival(arrival.early, arrival.dtype, tuple(parts), arrival.places))

        def at_origin(fetch: Fetch) -> Fetch:
            return replace(fetch, leaf=number[fetch], box=Box.whole(fetch.box.size))

        return RelativeResults(tuple(with_fetches(form, at_origin) for form in forms), tuple(relative), tuple(starts))
