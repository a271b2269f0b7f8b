"""Who sends what several devices hold: one chooser, for steps of plans and for moves without a plan."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Literal, TypeAlias

import numpy as np

from redistrib.theory.placement import Int64, Placement
from redistrib.theory.torus import Torus

SendingRule: TypeAlias = Literal["in turn", "spread", "stay"]

_Part: TypeAlias = tuple[int, int, int]  # who needs it, the number of its tile, how much it is
_Queue: TypeAlias = list[tuple[int, int, int, int]]  # a heap: the load of a holder, its place among them, the device


class Senders:
    """Who sends: of the holders on the receiver's side, or else of all, the one that has sent least, then the first.

    One object may serve several tables, one after the other.

    Args:
        side: of each device, such as its process or its host; by default all are on one side.
        torus: of the devices; then a holder with the fewest links to the receiver sends, whatever the sides.
        rule: "in turn": every part gets its sender before the next one. "spread": parts with a holder on their side
            come first, and no holder sends more to its side than some device must send or receive in any case. "stay":
            such parts come first, and all others come from the sides that have sent least to other sides.
    """

    def __init__(
        self, side: Mapping[int, int] | None = None, torus: Torus | None = None, rule: SendingRule = "in turn"
    ) -> None:
        self._side, self._torus, self._rule = side or {}, torus, rule
        self._sent: dict[int, int] = defaultdict(int)
        self._away: dict[int | None, int] = defaultdict(int)  # what a side has sent to others, where they "stay"

    def of(
        self, source: Placement, holders: Sequence[int], receiver: Int64, tile: Int64, amounts: Sequence[int]
    ) -> list[int]:
        """For each part the device that sends it, from who needs it, the number of its tile, and how much it is."""
        parts = list(zip(receiver.tolist(), tile.tolist(), amounts, strict=True))
        able: dict[int, list[int]] = {number: [] for _, number, _ in parts}  # the holders of each tile
        is_needed = np.zeros(max(able, default=0) + 2, dtype=bool)
        is_needed[tile] = True
        places = np.flatnonzero(is_needed[np.minimum(source.number, len(is_needed) - 1)])
        for place, number in zip(places.tolist(), source.number[places].tolist(), strict=True):
            able[number].append(holders[place])
        most = _busiest(able, parts) if self._rule == "spread" else math.inf
        if self._torus is not None:
            return self._nearest(self._torus, able, parts, most)
        queues, chosen = self._queues(able), [-1] * len(parts)
        later: dict[int, list[int]] = {number: [] for number in able}
        for k, (to, number, amount) in enumerate(parts):
            device = self._first(queues.get((number, self._side.get(to)), []), most)
            if device < 0 and self._rule == "in turn":
                device = self._first(queues[number, None])
            if device < 0:
                later[number].append(k)
            else:
                chosen[k] = self._send(device, to, amount)
        for number, rows in later.items():
            for k in rows:
                chosen[k] = self._send(self._first(queues[number, None]), parts[k][0], parts[k][2])
        return chosen

    def _queues(self, able: Mapping[int, Sequence[int]]) -> dict[tuple[int, int | None], _Queue]:
        """The holders of each tile, on each side and on all (None)."""
        queues: dict[tuple[int, int | None], _Queue] = defaultdict(list)
        for number, devices in able.items():
            for place, device in enumerate(devices):
                for side in {None, self._side.get(device)}:
                    queues[number, side].append((*self._load(device), place, device))
        for queue in queues.values():
            heapify(queue)
        return queues

    def _load(self, device: int) -> tuple[int, int]:
        return self._away[self._side.get(device)], self._sent[device]

    def _first(self, queue: _Queue, most: float = math.inf) -> int:
        """The device of a queue whose turn it is; -1 where none has sent less than `most`."""
        if not queue:
            return -1
        while (load := self._load(queue[0][3])) != queue[0][:2]:  # the entry is from before the device sent more
            heapreplace(queue, (*load, *queue[0][2:]))
        return queue[0][3] if load[1] < most else -1

    def _send(self, device: int, to: int, amount: int) -> int:
        self._sent[device] += amount
        side = self._side.get(device)
        if self._rule == "stay" and side != self._side.get(to):
            self._away[side] += amount
        return device

    def _nearest(
        self, torus: Torus, able: Mapping[int, Sequence[int]], parts: Sequence[_Part], most: float
    ) -> list[int]:
        chosen, rows_of = [-1] * len(parts), defaultdict[int, list[int]](list)
        for k, (_, number, _) in enumerate(parts):
            rows_of[number].append(k)
        for number, rows in rows_of.items():
            devices = np.array(able[number])
            sent = np.array([self._sent[device] for device in able[number]])
            hops = torus.hops(devices[:, None], np.array([parts[k][0] for k in rows])[None, :])
            for k, away in zip(rows, hops.T, strict=True):
                best = int(np.lexsort((sent, away, sent >= most))[0])
                chosen[k] = able[number][best]
                sent[best] += parts[k][2]
            self._sent.update(zip(able[number], sent.tolist(), strict=True))
        return chosen


def _busiest(able: Mapping[int, Sequence[int]], parts: Sequence[_Part]) -> int:
    """What some device receives, or some holder of a tile sends, whoever sends."""
    received: dict[int, int] = defaultdict(int)
    wanted: dict[int, int] = defaultdict(int)
    for to, number, amount in parts:
        received[to] += amount
        wanted[number] += amount
    sent = [-(-amount // len(able[number])) for number, amount in wanted.items()]
    return max([*received.values(), *sent], default=0)
