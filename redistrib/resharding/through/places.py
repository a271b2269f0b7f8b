"""Places of boxes in the buffers that devices send and receive, separate from the operations on them.

Devices whose boxes have the same shapes do the same, at any places of the boxes. So they share compiled code, and
take the places as data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redistrib.resharding.through.forms import Fetch, Form, with_fetches
from redistrib.resharding.through.messages import Arrival, BoxRound, ConstantBoxes, SentLeaf
from redistrib.theory.boxes import Box
from redistrib.theory.placement import Int64


def sent_buffers(
    sent: Sequence[SentLeaf], rounds: Sequence[BoxRound], devices: int
) -> tuple[dict[int, list[tuple[int, Box]]], Int64, dict[str, int]]:
    """The contents of each sender's buffers, in an order that is the same for senders of the same kinds of boxes.

    Returns:
        The boxes of each sender, end to end, each with the number of its `SentLeaf`; `[devices, rounds]` the first
        element that a device sends in a round, 0 where it sends nothing; and the elements of the buffer for each type
        of elements, on every sender.
    """
    sizes = dict.fromkeys((round_.wire for round_ in rounds), 0)
    starts = np.zeros((devices, len(rounds)), np.int64)
    kinds: dict[Any, int] = {}
    every = [each.boxes.box.rows() for each in sent]
    by_sender: dict[int, list[tuple[int, int, list[tuple[int, Box]]]]] = {}
    for k, round_ in enumerate(rounds):
        for (sender, _), rows in zip(round_.pairs, round_.rows, strict=True):
            several = [(number, every[number][row]) for number, row in rows]
            kind = kinds.setdefault(tuple((number, box.size) for number, box in several), len(kinds))
            by_sender.setdefault(sender, []).append((kind, k, several))
    contents: dict[int, list[tuple[int, Box]]] = {}
    for sender, bundles in by_sender.items():
        filled = dict.fromkeys(sizes, 0)
        bundles.sort(key=lambda bundle: bundle[:2])
        for _, k, _ in bundles:
            starts[sender, k] = filled[rounds[k].wire]
            filled[rounds[k].wire] += rounds[k].size
        contents[sender] = [each for *_, several in bundles for each in several]
        sizes = {wire: max(size, filled[wire]) for wire, size in sizes.items()}
    return contents, starts, sizes


def received_buffers(
    rounds: Sequence[BoxRound], constants: Sequence[ConstantBoxes]
) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """The contents of each receiver's buffers: the arrivals of all rounds, end to end; and boxes of constants.

    Returns:
        Of each type of constants, and then of each round, the number of its buffer and its first element there; and the
        elements of the buffer of all rounds for each type of elements.
    """
    sizes: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for round_ in rounds:
        start = sizes.get(round_.wire, 0)
        sizes[round_.wire] = start + round_.size
        places.append((list(sizes).index(round_.wire), start))
    return [(len(sizes) + k, 0) for k in range(len(constants))] + places, sizes


def apart_from_places(
    forms: Sequence[Form], arrivals: Mapping[Fetch, Arrival], places: Sequence[tuple[int, int]]
) -> tuple[tuple[Form, ...], tuple[Arrival, ...], list[int]]:
    """A device's results without the places of their boxes, and these places.

    Args:
        forms: of the results.
        arrivals: of the boxes of inputs in them.
        places: of the rounds in the buffers, see `received_buffers`.

    Returns:
        The forms, with boxes at the origin and numbers of arrivals in the place of inputs; the arrivals, of each part
        the number of its buffer in the place of its round, and its number among all parts in that of its first
        element; and for each part its first element in the buffer.
    """
    number = {fetch: k for k, fetch in enumerate(arrivals)}
    starts: list[int] = []
    relative = []
    for arrival in arrivals.values():
        parts = []
        for turn, first, inside in arrival.parts:
            buffer, start = places[turn]
            parts.append((buffer, len(starts), inside))
            starts.append(start + first)
        relative.append(replace(arrival, parts=tuple(parts)))

    def at_origin(fetch: Fetch) -> Fetch:
        return replace(fetch, leaf=number[fetch], box=Box.whole(fetch.box.size))

    return tuple(with_fetches(form, at_origin) for form in forms), tuple(relative), starts
