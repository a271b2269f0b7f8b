"""Links between processes that carry data in one direction at a time.

XLA:CPU opens one connection for every two devices of different processes. On it a receiver announces that it is ready.
If the receiver also sends a tile on that connection, its announcement may wait behind the tile. Then the two tiles
travel one after the other, and half of the link idles. So a permute is split into two turns: in each turn every process
sends half of its tiles and receives half. Where two turns take longer, because a process has one such tile, another
device of the process receives the tile and relays it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from redistrib.plans.steps import AllGather, AllToAll
from redistrib.plans.writes import Write
from redistrib.theory.placement import Int64

_MOST_LOAD = 1.25  # load of two turns over that of one permute; above it, two turns take longer than a swap


@dataclass(frozen=True)
class HalfDuplexLinks:
    """Links between processes on which large shares do not travel in both directions at the same time.

    Attributes:
        processes: process of every device.
        least_bytes: bytes of the smallest share that counts as large.
    """

    processes: tuple[int, ...]
    least_bytes: int

    def permute(
        self,
        tile: jax.Array,
        pairs: Int64,
        send: Callable[[jax.Array, Int64], jax.Array],
        is_one_of: Callable[[Int64], jax.Array],
    ) -> jax.Array:
        """A permute of the tile without swaps; devices in no pair receive zeros.

        Args:
            tile: the tile of the running device.
            pairs: `[pairs, 2]` senders and receivers.
            send: one permute.
            is_one_of: whether the running device is one of these devices.
        """
        if not self.splits(tile.size * tile.dtype.itemsize):
            return send(tile, pairs)
        keeps = pairs[:, 0] == pairs[:, 1]
        moving, keepers = pairs[~keeps], pairs[keeps, 0]
        if (turns := two_turns(moving, self.processes)) is not None:
            first = send(tile, turns[0])
            second = send(tile, turns[1])
        elif (turns := relayed(moving, self.processes)) is not None:
            first = send(tile, turns[0])
            second = send(first, turns[1])
        else:
            return send(tile, pairs)
        received = jnp.where(is_one_of(turns[1][:, 1]), second, first)
        return jnp.where(is_one_of(keepers), tile, received) if len(keepers) else received

    def writes(self, write: Write, element_bytes: int) -> list[Write]:
        """The writes of the turns of a permute, for elements of so many bytes."""
        assert write.pairs is not None
        if write.padded is not None or not self.splits(write.volume * element_bytes):
            return [write]
        turns = two_turns(write.pairs, self.processes)
        return [write] if turns is None else [write.between(pairs) for pairs in turns]

    def ring(self, groups: Int64, size: int) -> tuple[Int64, list[int]] | None:
        """The groups of a gather with the members of each process side by side, and where each member stands there.

        Gathers send around a ring in the order of the group. None for small tiles, where the members are in such an
        order, or where the groups differ in it.
        """
        if not self.splits(size):
            return None
        where = np.array(self.processes)[groups]
        order = np.argsort(where, axis=1, kind="stable")
        in_order = np.take_along_axis(where, order, axis=1)
        if (order != order[0]).any() or (_crossings(where) <= _crossings(in_order)).all():
            return None
        return groups[:, order[0]], np.argsort(order[0]).tolist()

    def swaps(self, step: AllGather | AllToAll, size: int) -> bool:
        """Whether members of different processes send shares of so many bytes to one another at the same time.

        A gather of more than two members sends around a ring.
        """
        if (isinstance(step, AllGather) and step.group_size > 2) or not self.splits(size):
            return False
        where = np.array(self.processes)[step.groups]
        return bool((where != where[:, :1]).any())

    def splits(self, size: int) -> bool:
        """Whether permutes of shares of so many bytes are split into turns."""
        return size >= self.least_bytes


def _crossings(where: Int64) -> Int64:
    """For each row, how often neighbours on a ring around it differ."""
    crossings: Int64 = (where != np.roll(where, 1, axis=1)).sum(axis=1)
    return crossings


def two_turns(pairs: Int64, processes: Sequence[int]) -> tuple[Int64, Int64] | None:
    """The pairs of a permute in two turns without swaps; None where one turn takes no longer.

    Args:
        pairs: `[pairs, 2]` senders and receivers, each at most once.
        processes: process of every device.
    """
    sent = {(a, b) for a, b in pairs.tolist() if processes[a] != processes[b]}
    swaps = [(a, b) for a, b in sent if a < b and (b, a) in sent]
    if not swaps:
        return None
    first = _oriented(sorted(swaps), processes)
    turns = [first, {(b, a) for a, b in first}]
    for pair in sorted(sent - turns[0] - turns[1]):
        min(turns, key=lambda turn: _load({*turn, pair}, processes)).add(pair)
    if sum(_load(turn, processes) for turn in turns) > _MOST_LOAD * _load(sent, processes):
        return None
    second = np.array([tuple(pair) in turns[1] for pair in pairs.tolist()])
    return pairs[~second], pairs[second]


def relayed(pairs: Int64, processes: Sequence[int]) -> tuple[Int64, Int64] | None:
    """A permute without swaps, with other receivers for some tiles, and the permute by which these relay the tiles.

    A device can relay a tile if it receives none itself. It relays within its process, so each link between processes
    carries as many tiles as before. None where no two devices of different processes send to one another, or where no
    device can relay. Arguments as for `two_turns`.
    """
    receiver = dict(pairs.tolist())
    swaps = sorted((a, b) for a, b in receiver.items() if processes[a] != processes[b] and receiver.get(b) == a)
    free = sorted(set(range(len(processes))) - set(receiver.values()))
    relays = []
    for a, b in swaps:
        if receiver[a] != b or receiver[b] != a:
            continue  # the other direction is relayed already
        paths = ((s, r, m) for s, r in ((a, b), (b, a)) for m in free if processes[m] == processes[r])
        path = next((path for path in paths if receiver.get(path[2]) != path[0]), None)
        if path is None:
            return None
        sender, last, middle = path
        receiver[sender] = middle
        relays.append((middle, last))
        free.remove(middle)
    first = np.array([(a, receiver[a]) for a in pairs[:, 0].tolist()], np.int64).reshape(-1, 2)
    return (first, np.array(relays, np.int64)) if relays else None


def _oriented(swaps: Sequence[tuple[int, int]], processes: Sequence[int]) -> set[tuple[int, int]]:
    """One direction of each swap, so that every process sends as often as it receives, or once more or less.

    Processes are vertices, swaps are edges. Processes with an odd number of swaps are joined to one more vertex. Then
    all degrees are even, so a walk over unused edges can end only where it began, and each edge is directed as it is
    walked.
    """
    edges: list[tuple[int, int, tuple[int, int] | None]] = [(processes[a], processes[b], (a, b)) for a, b in swaps]
    degree = Counter(process for a, b, _ in edges for process in (a, b))
    outside = -1 - max(processes)
    edges += [(outside, process, None) for process, count in degree.items() if count % 2]
    unused: dict[int, list[int]] = {}
    for number, (a, b, _) in enumerate(edges):
        for process in (a, b):
            unused.setdefault(process, []).append(number)
    walked: set[int] = set()
    directed: set[tuple[int, int]] = set()
    for start in unused:
        process = start
        while unused[process]:
            number = unused[process].pop()
            if number in walked:
                continue
            walked.add(number)
            a, b, swap = edges[number]
            if swap is not None:
                directed.add(swap if process == a else swap[::-1])
            process = b if process == a else a
    return directed


def _load(pairs: set[tuple[int, int]], processes: Sequence[int]) -> int:
    """The most tiles that a process sends, or receives."""
    ends = np.array([(processes[a], processes[b]) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    return max((int(np.bincount(column).max()) for column in ends.T if len(column)), default=0)
